// SPDX-License-Identifier: Apache-2.0

#include "cli/common/answer_text.h"
#include "cli/common/answers.h"
#include "cli/common/command.h"
#include "cli/common/mount_arguments.h"
#include "inductorfs/base/log.h"
#include "inductorfs/cli/run.h"
#include "inductorfs/config/given.h"
#include "inductorfs/config/json.h"
#include "inductorfs/mount/layers.h"
#include "inductorfs/mount/process.h"

namespace inductorfs::cli {
namespace {

/// What no mountpoint would give: the real one decides the default of --store only.
constexpr const char* kNoMountpoint = "/MOUNTPOINT";

/// A string of JSON is a basic string of TOML.
std::string quoted(const std::string& text) {
  return config::Json(text).dump(-1, ' ', false, config::Json::error_handler_t::replace);
}

std::string value_text(const config::Option& option, const std::vector<std::string>& values) {
  using Kind = config::Option::Kind;
  if (option.kind == Kind::kSwitch || option.kind == Kind::kToggle) return values.back();
  if (option.kind == Kind::kText) return quoted(log::redact_url(values.back()));
  std::string text;
  for (const std::string& value : values) text.append(text.empty() ? "" : ", ").append(quoted(value));
  return "[" + text + "]";
}

class ConfigCommand final : public Subcommand {
 public:
  void add_to(Words& words) override {
    KnownWord& action =
        words.add("ACTION", &action_, "check says what is wrong, if anything; show prints a configuration file");
    action.required = true;
    action.among = {"check", "show"};
    words.add("--origin", &origin_, "show for each option where its value comes from");
    options_.add_to(words,
                    "read options from this TOML file; variables (INDUCTORFS_STORE_LIMIT) take precedence, and the "
                    "command line before both");
  }
  [[nodiscard]] Result<void> check() const override { return options_.check(); }
  [[nodiscard]] int run(const config::Environment& environment) override {
    const auto settings = options_.settings(kNoMountpoint, config::current_user(environment), environment);
    if (!settings) return fail_options(settings.error());
    if (const auto changed = config::change_families(*settings, options_.file()); !changed) {
      return fail_options(changed.error());
    }
    if (action_ == "check") {
      if (const auto named = mount::check_named(*settings); !named) return fail_options(named.error());
      if (const auto shown = config::shown_ownership(*settings, {}); !shown) return fail_options(shown.error());
      for (const std::string& caution : mount::cautions(*settings)) {
        (void)::fputs(mount::warning_line(caution).c_str(), stderr);
      }
    }
    if (action_ == "show") return print(configuration_text(*settings, origin_));
    return print(settings->remote.empty() ? "the configuration is right\n"
                                          : "the configuration is right; its server was not asked: inductorfs doctor "
                                            "with the same options does that\n");
  }

 private:
  MountArguments options_;
  std::string action_;
  bool origin_ = false;
};

}  // namespace

std::string configuration_text(const config::Settings& settings, bool origin) {
  std::string text;
  for (const config::Option& option : config::mount_options()) {
    const config::GivenValues* giver = nullptr;
    for (const config::GivenValues& one : settings.given) {
      if (one.values.contains(option.name)) giver = &one;  // the last one counts
    }
    const std::string overruled = config::overruled_by(settings.given, option.name);
    const bool is_set = overruled.empty() && giver != nullptr && !giver->values.find(option.name)->second.empty();
    std::string line(option.name);
    if (!overruled.empty()) {
      line = "# " + line + ": not in force, because of " + config::printable(overruled);
    } else if (is_set) {
      line += " = " + value_text(option, giver->values.find(option.name)->second);
    } else {
      line = "# " + line + ": " + (option.default_text.empty() ? "not set" : std::string(option.default_text));
    }
    if (origin && is_set) line += "  # " + config::printable(giver->where);
    text += line + "\n";
  }
  for (const layout::RuleChange& change : settings.families) {
    text += "# [families." + config::printable(change.family) + "] is changed by the configuration file\n";
  }
  return text;
}

std::unique_ptr<Subcommand> config_command() { return std::make_unique<ConfigCommand>(); }

}  // namespace inductorfs::cli
