// SPDX-License-Identifier: Apache-2.0
#include "cli/common/mount_arguments.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "inductorfs/config/given.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/mount/process.h"

namespace inductorfs::cli {
namespace {

std::string help_of(const config::Option& option) {
  std::string help(option.help);
  if (!option.default_text.empty() && option.default_text != "false") {
    help.append(" [").append(option.default_text).append("]");
  }
  return help;
}

}  // namespace

void MountArguments::add(Words& words, const config::Option& option) {
  Given& given = given_.emplace_back();
  given.option = &option;
  using Kind = config::Option::Kind;
  std::string name = "--" + std::string(option.name);
  if (option.kind == Kind::kToggle) name += ",!--no-" + std::string(option.name);
  KnownWord& word = words.add(name, &given.flag, help_of(option), std::string(option.value_name));
  if (option.kind == Kind::kText) word.place = &given.text;
  word.one_each = true;
  if (option.kind == Kind::kList) {
    word.place = &given.values;
  } else {
    word.given = &given.values;
  }
}

void MountArguments::add_file(Words& words, const std::string& config_help) {
  words.add("--config", &file_, config_help, "FILE");
}

void MountArguments::add_to(Words& words, const std::string& config_help) {
  add_file(words, config_help);
  for (const config::Option& option : config::mount_options()) add(words, option);
}

void MountArguments::add_chosen_to(Words& words, const std::string& config_help,
                                   std::span<const std::string_view> names) {
  add_file(words, config_help);
  for (const config::Option& option : config::mount_options()) {
    if (std::ranges::find(names, option.name) != names.end()) add(words, option);
  }
}

void MountArguments::add_facts_to(Words& words, const std::string& config_help) {
  constexpr std::array<std::string_view, 3> kNames{"python", "fingerprint", "environment"};
  add_chosen_to(words, config_help, kNames);
}

void MountArguments::add_remote_to(Words& words, const std::string& config_help) {
  constexpr std::array<std::string_view, 6> kNames{"remote",    "password-file", "ca-file",
                                                   "cert-file", "key-file",      "prefix"};
  add_chosen_to(words, config_help, kNames);
}

Result<void> MountArguments::check_toggles() const {
  for (const Given& one : given_) {
    if (one.option->kind != config::Option::Kind::kToggle) continue;
    if (std::ranges::adjacent_find(one.values, std::ranges::not_equal_to()) == one.values.end()) continue;
    const std::string name(one.option->name);
    return fail(ErrorCode::kInvalid,
                "--" + name + " and --no-" + name + " contradict each other: command line: give one of them");
  }
  return {};
}

Result<void> MountArguments::check() const {
  INDUCTORFS_TRY(check_toggles());
  INDUCTORFS_TRY(config::check_contradictions(values(), "command line"));
  config::Settings scratch;
  return config::apply(values(), "command line", "/", scratch);
}

config::RawValues MountArguments::values() const {
  config::RawValues values;
  for (const Given& one : given_) {
    if (one.values.empty()) continue;
    const bool is_switch = one.option->value_name.empty();
    values[std::string(one.option->name)] =
        is_switch ? std::vector<std::string>{one.flag ? "true" : "false"} : one.values;
  }
  return values;
}

Result<void> MountArguments::apply_to(config::Settings& settings) const {
  const std::string here = config::working_directory();
  if (!file_.empty()) {
    const std::string file = config::absolute_path(file_, here);
    INDUCTORFS_TRY_ASSIGN(auto configuration, config::read_configuration(file));
    INDUCTORFS_TRY(config::check_contradictions(configuration.values, file));
    settings.given.push_back({std::move(configuration.values), file, config::absolute_path("..", file)});
    settings.families = std::move(configuration.families);
  }
  for (const std::string& unknown : config::unknown_variables(config::process_variables())) {
    (void)std::fputs(mount::warning_line(unknown).c_str(), stderr);
  }
  INDUCTORFS_TRY_ASSIGN(auto from_variables, config::given_by(config::process_variables(), here));
  for (config::GivenValues& one : from_variables) settings.given.push_back(std::move(one));
  settings.given.push_back({values(), "command line", here});
  const auto gives = [&given = settings.given](const char* option) {
    return config::overruled_by(given, option).empty() &&
           std::any_of(given.begin(), given.end(),
                       [option](const config::GivenValues& one) { return one.values.contains(option); });
  };
  // Whoever mounts from a job's environment need not repeat its variables. A file of facts has its own.
  std::vector<std::string> own = config::declared_by(config::process_variables());
  if (!own.empty() && !gives("environment") && !gives("fingerprint")) {
    settings.given.insert(settings.given.begin(), {config::RawValues{{"environment", std::move(own)}},
                                                   std::string(config::kOwnVariables), here});
  }
  for (const config::GivenValues& given : settings.given) {
    INDUCTORFS_TRY(apply(given.values, given.where, given.base, settings));
  }
  return {};
}

Result<config::Settings> MountArguments::settings(const std::string& mountpoint, const config::User& user,
                                                  const config::Environment& environment) const {
  config::Settings settings;
  settings.mountpoint = config::absolute_path(mountpoint, config::working_directory());
  settings.alias = settings.mountpoint;
  INDUCTORFS_TRY(apply_to(settings));
  INDUCTORFS_TRY(config::complete(settings, user, environment));
  return settings;
}

Result<config::Settings> MountArguments::facts_settings() const {
  config::Settings settings;
  INDUCTORFS_TRY(apply_to(settings));
  return settings;
}

}  // namespace inductorfs::cli
