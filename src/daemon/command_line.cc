// SPDX-License-Identifier: Apache-2.0
#include "command_line.h"

#include <CLI/CLI.hpp>
#include <cstring>
#include <list>

#include "inductorfs/daemon/daemon.h"

namespace inductorfs::daemon {
namespace {

using Verb = Invocation::Verb;

constexpr const char* kAbout =
    "A compile cache for torch.compile and Triton that the nodes of a cluster share, as a file system.";
constexpr int kMostTimeout = 24 * 3600;

/// Where CLI11 puts the values of one mount option until they are handed on as text.
struct Slot {
  const Option* option = nullptr;
  CLI::Option* handle = nullptr;
  std::string text;
  std::vector<std::string> list;
  bool flag = false;
};

std::string help_of(const Option& option) {
  std::string help(option.help);
  if (!option.default_text.empty() && option.default_text != "false") {
    help.append(" [").append(option.default_text).append("]");
  }
  return help;
}

void add_slot(CLI::App& app, Slot& slot) {
  const Option& option = *slot.option;
  const std::string dashed = "--" + std::string(option.name);
  switch (option.kind) {
    case Option::Kind::kText:
      slot.handle = app.add_option(dashed, slot.text, help_of(option));
      break;
    case Option::Kind::kList:
      slot.handle = app.add_option(dashed, slot.list, help_of(option))->allow_extra_args(false);
      break;
    case Option::Kind::kSwitch:
      slot.handle = app.add_flag(dashed, slot.flag, help_of(option));
      break;
    case Option::Kind::kToggle:
      slot.handle = app.add_flag(dashed + ",!--no-" + std::string(option.name), slot.flag, help_of(option));
      break;
  }
  if (!option.value_name.empty()) slot.handle->type_name(std::string(option.value_name));
}

RawValues values_of(const std::list<Slot>& slots) {
  RawValues values;
  for (const Slot& slot : slots) {
    if (slot.handle->count() == 0) continue;
    std::vector<std::string>& given = values[std::string(slot.option->name)];
    if (slot.option->kind == Option::Kind::kText) {
      given.push_back(slot.text);
    } else if (slot.option->kind == Option::Kind::kList) {
      given = slot.list;
    } else {
      given.emplace_back(slot.flag ? "true" : "false");
    }
  }
  return values;
}

/// The parser with everything that it writes to. Needs external synchronisation.
class Parser {
 public:
  Parser() {
    app_.set_version_flag("--version", std::string("inductorfs ") + INDUCTORFS_VERSION);
    app_.require_subcommand(1);
    add_mount();
    add_queries();
  }

  Invocation parse(int argc, const char* const* argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::ParseError& problem) {
      return report(problem);
    }
    for (CLI::App* chosen : app_.get_subcommands()) found_.verb = verbs_.at(chosen);
    found_.timeout = std::chrono::seconds(timeout_);
    found_.options = values_of(slots_);
    if (found_.families && !found_.compare.empty()) return usage("--families and --compare exclude each other");
    if (found_.verb == Verb::kUpgrade && found_.path.empty() && !found_.all) {
      return usage("give a MOUNTPOINT, or --all");
    }
    Settings scratch;  // a value that cannot be is a wrong command line, as an option that does not exist
    if (const Result<void> fits = apply(found_.options, "command line", "/", scratch); !fits) {
      return usage(fits.error().what());
    }
    return std::move(found_);
  }

 private:
  CLI::App& add(Verb verb, const std::string& name, const std::string& help) {
    CLI::App* command = app_.add_subcommand(name, help);
    verbs_[command] = verb;
    return *command;
  }

  void add_mountpoint(CLI::App& command) {
    command.add_option("MOUNTPOINT", found_.path, "directory of the mount")->required();
  }

  void add_mount() {
    CLI::App& mount = add(Verb::kMount, "mount", "Mount the cache; returns when the mount answers");
    add_mountpoint(mount);
    mount.add_option("--config", found_.config, "TOML file with these options; the command line wins")
        ->type_name("FILE");
    for (const Option& option : mount_options()) add_option(mount, option);
  }

  void add_option(CLI::App& command, const Option& option) {
    slots_.emplace_back();
    slots_.back().option = &option;
    add_slot(command, slots_.back());
  }

  void add_fingerprint() {
    CLI::App& command = add(Verb::kFingerprint, "fingerprint", "Show the facts of this host and who shares them");
    add_json(command);
    command.add_flag("--families", found_.families, "show which artefacts are shared with whom, and why");
    command.add_option("--compare", found_.compare, "show what this host shares with the one that wrote this file")
        ->type_name("FILE");
    command.add_option("--cache", found_.cache, "remember digests of large files in this file")->type_name("FILE");
    command.add_option("--config", found_.config, "the configuration of a mount")->type_name("FILE");
    for (const Option& option : mount_options()) {
      if (option.name == "python" || option.name == "fingerprint" || option.name == "environment") {
        add_option(command, option);
      }
    }
  }

  void add_check() {
    CLI::App& command = add(Verb::kCheck, "check", "Tell whether a store that is not mounted is sound");
    command.add_option("--store", found_.store, "directory of the store")->type_name("DIR")->required();
    command.add_flag("--repair", found_.repair, "remove what is damaged; it comes again from the cluster");
    add_json(command);
  }

  void add_upgrade() {
    CLI::App& upgrade = add(Verb::kUpgrade, "upgrade", "Let this program serve a mount from now on, without a remount");
    CLI::Option* const mountpoint = upgrade.add_option("MOUNTPOINT", found_.path, "directory of the mount");
    CLI::Option* const all = upgrade.add_flag("--all", found_.all, "all mounts of this user");
    mountpoint->excludes(all);
    upgrade.add_option("--program", found_.program, "this program instead of the one that is run")->type_name("FILE");
    add_json(upgrade);
  }

  void add_queries() {
    CLI::App& unmount = add(Verb::kUnmount, "unmount", "Unmount and end the daemon");
    add_mountpoint(unmount);
    unmount.add_flag("--lazy", found_.lazy, "detach a mount that is in use");
    CLI::App& status = add(Verb::kStatus, "status", "Show what a mount does");
    add_mountpoint(status);
    add_json(status);
    CLI::App& sync = add(Verb::kSync, "sync", "Wait until all that was written is published");
    add_mountpoint(sync);
    add_json(sync);
    sync.add_option("--timeout", timeout_, "most seconds to wait [60]")
        ->type_name("S")
        ->check(CLI::Range(0, kMostTimeout));
    add_upgrade();
    CLI::App& explain = add(Verb::kExplain, "explain", "Tell family, scope, digest and visibility of a path");
    explain.add_option("PATH", found_.path, "a path in a mount")->required();
    add_json(explain);
    add_fingerprint();
    add_check();
    // Started by the fingerprint itself, as a process of its own; no user needs it.
    add(Verb::kGpuProbe, "gpu-probe", "").group("");
    add(Verb::kPackageFacts, "package-facts", "").group("");
    // Started by the supervisor, with the mountpoint for whoever looks at the list of processes.
    add(Verb::kWorker, "worker", "").group("")->add_option("MOUNTPOINT", found_.path, "");
  }

  void add_json(CLI::App& command) { command.add_flag("--json", found_.json, "answer in JSON"); }

  Invocation usage(std::string_view what) {
    Invocation print;
    std::string command = "inductorfs";
    for (const CLI::App* chosen : app_.get_subcommands()) command += " " + chosen->get_name();
    print.text = "inductorfs: usage: " + printable(log::redact_url(what)) + ": see " + command + " --help\n";
    print.exit_code = kExitUsage;
    return print;
  }

  Invocation report(const CLI::ParseError& problem) {
    std::ostringstream out;
    std::ostringstream ignored;
    if (problem.get_exit_code() != 0) return usage(problem.what());
    (void)app_.exit(problem, out, ignored);  // the code is known: 0
    Invocation print;
    print.text = out.str();
    return print;
  }

  CLI::App app_{kAbout, "inductorfs"};
  Invocation found_;
  std::list<Slot> slots_;  // CLI11 keeps addresses of its members
  std::map<const CLI::App*, Verb> verbs_;
  int64_t timeout_ = 60;
};

}  // namespace

Invocation parse_command_line(int argc, const char* const* argv) {
  Parser parser;
  return parser.parse(argc, argv);
}

namespace {

/// What the configuration file and then the command line say.
Result<void> apply_given(const Invocation& invocation, Settings& settings) {
  const std::string here = working_directory();
  if (!invocation.config.empty()) {
    const std::string file = absolute_path(invocation.config, here);
    Result<Configuration> configuration = read_configuration(file);
    if (!configuration) return fail(configuration.error());
    settings.given.push_back({std::move(configuration->values), file, absolute_path("..", file)});
    settings.families = std::move(configuration->families);
  }
  settings.given.push_back({invocation.options, "command line", here});
  for (const GivenValues& given : settings.given) {
    INDUCTORFS_TRY(apply(given.values, given.where, given.base, settings));
  }
  return {};
}

}  // namespace

Result<Settings> settings_of(const Invocation& invocation, const User& user, const Environment& environment) {
  Settings settings;
  settings.mountpoint = absolute_path(invocation.path, working_directory());
  settings.alias = settings.mountpoint;
  INDUCTORFS_TRY(apply_given(invocation, settings));
  INDUCTORFS_TRY(complete(settings, user, environment));
  return settings;
}

Result<Settings> facts_settings_of(const Invocation& invocation) {
  Settings settings;
  INDUCTORFS_TRY(apply_given(invocation, settings));
  return settings;
}

void hide_secrets(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    char* const scheme = std::strstr(argv[i], "://");
    char* const at = std::strrchr(argv[i], '@');
    if (scheme == nullptr || at == nullptr || at < scheme) continue;
    for (char* c = scheme + 3; c < at; ++c) *c = '*';
  }
}

}  // namespace inductorfs::daemon
