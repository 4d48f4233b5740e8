// SPDX-License-Identifier: Apache-2.0
#include <charconv>

#include "cli/common/answer_text.h"
#include "cli/common/cluster_arguments.h"
#include "cli/common/command.h"
#include "inductorfs/cli/run.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/text.h"

namespace inductorfs::cli {

using config::Json;
using config::number_at;

namespace {

/// "90s", "45m", "12h", "30d"
Result<std::chrono::seconds> parse_age(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(end, text.data() + text.size());
  const int64_t seconds = unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3'600 : unit == "d" ? 86'400 : 0;
  constexpr int64_t kMost = 36'500;  // days, in the largest unit
  if (error != std::errc() || number < 0 || seconds == 0 || number > kMost * 86'400 / seconds) {
    return fail(ErrorCode::kInvalid, "--older-than " + text + ": give a number with s, m, h or d, for instance 30d");
  }
  return std::chrono::seconds(number * seconds);
}

class PurgeCommand final : public Subcommand {
 public:
  void add_to(Words& words) override {
    cluster_.add_to(words);
    words.add("--scope", &scopes_, "select entries of the scope whose id begins with ID; repeatable", "ID").one_each =
        true;
    words.add("--family", &families_, "select entries of this family, as explain shows it; repeatable", "NAME")
        .one_each = true;
    words.add("--torch", &torch_, "select entries of scopes with this version of torch", "VERSION");
    words.add("--pattern", &pattern_, "select entries whose canonical path matches: * ? and ** for any directories",
              "GLOB");
    words.add("--digest", &digest_, "select entries with these bytes, and remove their blob", "HEX");
    words.add("--older-than", &older_than_, "select entries whose file is older: 90s, 45m, 12h, 30d", "AGE");
    words.add("--all", &all_, "select everything");
    words.add("--yes", &yes_, "do it; without it nothing is changed");
    add_acknowledge_timeout(words, timeout_);
  }
  [[nodiscard]] Result<void> check() const override {
    INDUCTORFS_TRY(cluster_.check());
    const bool selects = !scopes_.empty() || !families_.empty() || !torch_.empty() || !pattern_.empty() ||
                         !digest_.empty() || !older_than_.empty();
    if (selects && all_) return fail(ErrorCode::kInvalid, "--all excludes all other selections");
    if (!selects && !all_) {
      return fail(ErrorCode::kInvalid,
                  "nothing is selected: give --scope, --family, --torch, --pattern, --digest, --older-than, or --all");
    }
    const auto request = make_request();
    return request ? Result<void>() : fail(request.error());
  }
  [[nodiscard]] int run(const config::Environment& environment) override {
    auto request = make_request();
    if (!request) return fail_options(request.error(), cluster_.json());
    const auto answer = cluster_.ask(std::move(*request), environment);
    if (!answer) return fail_query(answer.error(), cluster_.json());
    const int printed = print(cluster_.json() ? config::to_pretty(*answer) + "\n" : purge_text(*answer));
    return printed == kExitDone && yes_ ? obedience_code(*answer) : printed;
  }

 private:
  [[nodiscard]] Result<mount::ClusterRequest> make_request() const {
    mount::ClusterRequest request;
    request.kind = mount::ClusterRequest::Kind::kPurge;
    request.selection.scopes = scopes_;
    request.selection.families = families_;
    request.selection.pattern = pattern_;
    request.torch = torch_;
    request.dry_run = !yes_;
    request.acknowledged = std::chrono::seconds(timeout_);
    if (!digest_.empty()) {
      request.selection.digest = codec::Digest::from_hex(digest_);
      if (!request.selection.digest) {
        return fail(ErrorCode::kInvalid, "--digest " + digest_ + ": give 64 hexadecimal digits, as explain shows them");
      }
    }
    if (!older_than_.empty()) {
      INDUCTORFS_TRY_ASSIGN(const auto age, parse_age(older_than_));
      request.older_than = age;
    }
    return request;
  }

  ClusterArguments cluster_;
  std::vector<std::string> scopes_;
  std::vector<std::string> families_;
  std::string torch_;
  std::string pattern_;
  std::string digest_;
  std::string older_than_;
  bool all_ = false;
  bool yes_ = false;
  int64_t timeout_ = 15;
};

}  // namespace

std::string purge_text(const Json& answer) {
  const bool dry = config::flag_at(answer, "dry_run");
  std::string text = std::to_string(number_at(answer, "selected")) + " of " +
                     std::to_string(number_at(answer, "looked_at")) + " entries in " +
                     std::to_string(number_at(answer, "scopes")) + " scopes are selected, " +
                     config::human_bytes(number_at(answer, "bytes")) + "\n";
  if (const uint64_t unknown = number_at(answer, "unknown"); unknown > 0) {
    text += std::to_string(unknown) + " entries stay, because another release wrote them or nobody can read them\n";
  }
  const Json& paths = config::part_of(answer, "paths");
  for (const Json& path : paths) text += "  " + config::plain_item(path) + "\n";
  if (number_at(answer, "selected") > paths.size()) text += "  ...\n";
  if (dry) return text + "nothing was changed; run it again with --yes to remove them\n";
  text += std::to_string(number_at(answer, "removed")) + " entries are removed from the cluster\n";
  if (const uint64_t times = number_at(answer, "began_anew"); times > 0) {
    text += "another server took the place of the one that was asked, so the purge began anew" +
            (times > 1 ? " " + std::to_string(times) + " times" : std::string()) +
            ": the numbers hold for all tries, without what one removed that was cut short\n";
  } else if (number_at(answer, "selected") == 0) {
    text += "no entry matches: compare the selection with the paths that inductorfs explain shows as canonical\n";
  }
  return text + obedience_text(answer);
}

std::unique_ptr<Subcommand> purge_command() { return std::make_unique<PurgeCommand>(); }

}  // namespace inductorfs::cli
