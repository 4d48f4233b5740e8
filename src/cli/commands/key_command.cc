// SPDX-License-Identifier: Apache-2.0
#include <sys/utsname.h>

#include <algorithm>
#include <ctime>

#include "cli/common/answers.h"
#include "cli/common/command.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/regular_file.h"
#include "inductorfs/base/text.h"
#include "inductorfs/cli/run.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/text.h"
#include "inductorfs/trust/signing_key.h"

namespace inductorfs::cli {
namespace {

using config::Json;
using config::line;
using config::printable;
using trust::Signer;

constexpr std::string_view kPublic = "ssh-";

/// "2026-12-01T00:00:00Z", or what stands for no time.
std::string time_text(uint64_t seconds) {
  if (seconds == 0) return "always";
  if (seconds == UINT64_MAX) return "forever";
  return config::utc(static_cast<std::time_t>(std::min<uint64_t>(seconds, INT64_MAX)));
}

Json json_of(const Signer& signer, const std::string& public_line) {
  Json answer = {{"public", printable(public_line)}, {"fingerprint", signer.key.fingerprint()}};
  if (!signer.certificate) return answer;
  Json principals = Json::array();
  for (const std::string& principal : signer.certificate->principals) principals.push_back(printable(principal));
  answer["certificate"] = {{"key_id", printable(signer.certificate->key_id)},
                           {"serial", signer.certificate->serial},
                           {"principals", std::move(principals)},
                           {"valid_after", time_text(signer.certificate->valid_after)},
                           {"valid_before", time_text(signer.certificate->valid_before)},
                           {"authority", signer.certificate->authority.fingerprint()},
                           {"genuine", signer.certificate->is_genuine()}};
  return answer;
}

std::string text_of(const Signer& signer, const std::string& public_line) {
  std::string text = printable(public_line) + "\n" + line("fingerprint", signer.key.fingerprint());
  if (!signer.certificate) return text;
  const trust::Certificate& certificate = *signer.certificate;
  text += line("key id", printable(certificate.key_id));
  text += line("serial", std::to_string(certificate.serial));
  text += line("principals", certificate.principals.empty() ? "none: it may sign for nothing"
                                                            : printable(joined(certificate.principals, ", ")));
  text += line("valid", "from " + time_text(certificate.valid_after) + " to " + time_text(certificate.valid_before));
  text +=
      line("authority", certificate.authority.fingerprint() +
                            (certificate.is_genuine() ? "" : ", which has not signed this: it is forged or damaged"));
  return text;
}

class KeyCommand final : public Subcommand {
 public:
  void add_to(Words& words) override {
    KnownWord& action =
        words.add("ACTION", &action_, "generate makes a key and prints its public line; show prints what a file has");
    action.required = true;
    action.among = {"generate", "show"};
    words.add_path("FILE", file_, "a private key; for show also a public key or a certificate", "FILE").required = true;
    words.add_json(json_);
  }
  [[nodiscard]] int run(const config::Environment&) override {
    if (action_ == "generate") {
      utsname host{};
      const bool is_named = ::uname(&host) == 0;
      const auto key =
          trust::SigningKey::generate(file_, is_named ? std::string("inductorfs@") + host.nodename : "inductorfs");
      return key ? answer(key->signer(), key->public_line()) : fail_options(key.error(), json_);
    }
    return show();
  }

 private:
  /// A public file begins with its type, and anybody may read it, so the checks of a private one are not made for it.
  /// Of a private one no more than that is read here.
  [[nodiscard]] int show() const {
    const auto file = open_regular(file_, trust::SigningKey::kFileLimit);
    if (!file && file.error().code() == ErrorCode::kNotFound) {
      return fail_options(Error(ErrorCode::kNotFound, file_ + " does not exist"), json_);
    }
    if (!file) return fail_options(file.error(), json_);
    std::string type(kPublic.size(), '\0');
    if (!pread_full(file->get(), type.data(), type.size(), 0) || type != kPublic) {
      const auto key = trust::SigningKey::load(file_);
      return key ? answer(key->signer(), key->public_line()) : fail_options(key.error(), json_);
    }
    const auto text = read_whole(*file, file_);
    if (!text) return fail_options(text.error(), json_);
    std::string_view rest = *text;
    const std::string_view first = trimmed(take_part(rest, '\n'));
    const auto signer = Signer::from_line(first);
    return signer ? answer(*signer, std::string(first))
                  : fail_options(Error(signer.error()).with_context(file_), json_);
  }
  [[nodiscard]] int answer(const Signer& signer, const std::string& public_line) const {
    return print(json_ ? config::to_pretty(json_of(signer, public_line)) + "\n" : text_of(signer, public_line));
  }

  std::string action_;
  std::string file_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Subcommand> key_command() { return std::make_unique<KeyCommand>(); }

}  // namespace inductorfs::cli
