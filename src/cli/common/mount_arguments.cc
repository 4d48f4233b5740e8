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

void MountArguments::add(CLI::App& app, const config::Option& option) {
  Given& given = given_.emplace_back();
  given.option = &option;
  const std::string dashed = "--" + std::string(option.name);
  switch (option.kind) {
    case config::Option::Kind::kText:
      given.handle = app.add_option(dashed, given.text, help_of(option));
      break;
    case config::Option::Kind::kList:
      given.handle = app.add_option(dashed, given.list, help_of(option))->allow_extra_args(false);
      break;
    case config::Option::Kind::kSwitch:
      given.handle = app.add_flag(dashed, given.flag, help_of(option));
      break;
    case config::Option::Kind::kToggle:
      given.handle = app.add_flag(dashed + ",!--no-" + std::string(option.name), given.flag, help_of(option));
      break;
  }
  if (!option.value_name.empty()) given.handle->type_name(std::string(option.value_name));
}

void MountArguments::add_file(CLI::App& app, const std::string& config_help) {
  app.add_option("--config", file_, config_help)->type_name("FILE");
}

void MountArguments::add_to(CLI::App& app, const std::string& config_help) {
  add_file(app, config_help);
  for (const config::Option& option : config::mount_options()) add(app, option);
}

void MountArguments::add_chosen_to(CLI::App& app, const std::string& config_help,
                                   std::span<const std::string_view> names) {
  add_file(app, config_help);
  for (const config::Option& option : config::mount_options()) {
    if (std::ranges::find(names, option.name) != names.end()) add(app, option);
  }
}

void MountArguments::add_facts_to(CLI::App& app, const std::string& config_help) {
  constexpr std::array<std::string_view, 3> kNames{"python", "fingerprint", "environment"};
  add_chosen_to(app, config_help, kNames);
}

void MountArguments::add_remote_to(CLI::App& app, const std::string& config_help) {
  constexpr std::array<std::string_view, 6> kNames{"remote",    "password-file", "ca-file",
                                                   "cert-file", "key-file",      "prefix"};
  add_chosen_to(app, config_help, kNames);
}

Result<void> MountArguments::check_toggles() const {
  for (const Given& one : given_) {
    if (one.option->kind != config::Option::Kind::kToggle) continue;
    const std::vector<std::string>& results = one.handle->results();
    if (std::adjacent_find(results.begin(), results.end(), std::not_equal_to<>()) == results.end()) continue;
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
    if (one.handle->count() == 0) continue;
    std::vector<std::string>& given = values[std::string(one.option->name)];
    if (one.option->kind == config::Option::Kind::kText) {
      given.push_back(one.text);
    } else if (one.option->kind == config::Option::Kind::kList) {
      given = one.list;
    } else {
      given.emplace_back(one.flag ? "true" : "false");
    }
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
