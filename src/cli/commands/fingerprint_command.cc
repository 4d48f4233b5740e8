// SPDX-License-Identifier: Apache-2.0
#include "cli/common/answers.h"
#include "cli/common/command.h"
#include "cli/common/mount_arguments.h"
#include "inductorfs/config/json.h"
#include "inductorfs/host/learn.h"
#include "inductorfs/host/report.h"

namespace inductorfs::cli {
namespace {

class FingerprintCommand final : public Subcommand {
 public:
  void add_to(Words& words) override {
    words.add_json(json_);
    words.add("--families", &families_, "show for each family of artefacts with which hosts it is shared, and why");
    words.add("--compare", &compare_, "compare this host with the one that wrote FILE", "FILE");
    words.add("--cache", &cache_, "remember the digests of large files in FILE", "FILE");
    options_.add_facts_to(words, "read the configuration file of a mount");
  }
  [[nodiscard]] Result<void> check() const override {
    if (families_ && !compare_.empty()) {
      return fail(ErrorCode::kInvalid, "--families and --compare exclude each other");
    }
    return options_.check();
  }
  [[nodiscard]] int run(const config::Environment&) override {
    const auto settings = options_.facts_settings();
    if (!settings) return fail_options(settings.error(), json_);
    if (const auto changed = config::change_families(*settings, options_.file()); !changed) {
      return fail_options(changed.error(), json_);
    }
    const Result<fingerprint::Fingerprint> facts = learn(*settings);
    if (!facts)
      return settings->fingerprint.empty() ? fail_query(facts.error(), json_) : fail_options(facts.error(), json_);
    if (families_) return show(host::families_report(*facts), host::families_text);
    if (compare_.empty()) return show(host::fingerprint_report(*facts), host::fingerprint_text);
    host::FactsRequest other;
    other.file = absolute(compare_);
    const Result<fingerprint::Fingerprint> theirs = host::learn_facts(other);
    if (!theirs) return fail_options(theirs.error(), json_);
    return show(host::comparison_report(*facts, *theirs), host::comparison_text);
  }

 private:
  [[nodiscard]] Result<fingerprint::Fingerprint> learn(const config::Settings& settings) const {
    host::FactsRequest request;
    request.file = settings.fingerprint;
    request.python = settings.python;
    request.environment = settings.environment;
    if (!cache_.empty()) request.cache_file = absolute(cache_);
    return host::learn_facts(request);
  }
  [[nodiscard]] int show(const config::Json& report, std::string (*text)(const config::Json&)) const {
    return print(json_ ? config::to_pretty(report) + "\n" : text(report));
  }

  MountArguments options_;
  std::string compare_;
  std::string cache_;
  bool families_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Subcommand> fingerprint_command() { return std::make_unique<FingerprintCommand>(); }

}  // namespace inductorfs::cli
