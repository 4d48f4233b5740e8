// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "cli/commands/session_end.h"
#include "cli/common/answers.h"
#include "cli/common/command.h"
#include "cli/common/mount_arguments.h"
#include "inductorfs/base/text.h"
#include "inductorfs/cli/run.h"
#include "inductorfs/mount/launch.h"
#include "inductorfs/mount/layers.h"
#include "inductorfs/mount/process.h"
#include "inductorfs/mount/worker_tree.h"
#include "inductorfs/mount/worker_user.h"
#include "inductorfs/places/mountpoint.h"
#include "inductorfs/places/sweep.h"

namespace inductorfs::cli {
namespace {

/// Looks at the mountpoint while nothing living is mounted there, and becomes the supervisor. Returns only an error.
Result<void> launch(config::Settings& settings, mount::Readiness& readiness) {
  // Before anything changes the directory that relative paths are taken from.
  INDUCTORFS_TRY_ASSIGN(const auto program, mount::own_program());
  INDUCTORFS_TRY(mount::settle(settings.mountpoint, settings.foreground));
  if (settings.foreground && !mount::log_is_in_store(settings)) INDUCTORFS_TRY(mount::open_log(settings));
  places::sweep_runtime_directory(config::runtime_directory(::geteuid(), config::process_environment()), true);
  INDUCTORFS_TRY_ASSIGN(bool uncovered, places::free_mountpoint(settings.mountpoint));
  auto real = places::resolve_mountpoint(settings.mountpoint);
  if (!real) return mount::wrong_path(real.error());
  INDUCTORFS_TRY_ASSIGN(const bool uncovered_too, places::free_mountpoint(*real));
  settings.mountpoint = std::move(*real);
  INDUCTORFS_TRY(places::check_mountpoint_outside_of_mounts(settings.mountpoint));
  INDUCTORFS_TRY(mount::check_place_of_store(settings.store));
  INDUCTORFS_TRY_ASSIGN(auto covered, places::ownership_of(settings.mountpoint));
  covered.uncovered = covered.uncovered || uncovered || uncovered_too;
  const auto ownership = config::shown_ownership(settings, covered);
  if (!ownership) return mount::wrong_option(ownership.error());
  if (::geteuid() == 0 && ownership->uid != 0)
    config::give_default_places(settings, config::user_by_id(ownership->uid));
  INDUCTORFS_TRY(mount::choose_worker_user(settings));
  Fd tree;
  mount::choose_worker_tree(settings, tree);
  return fail(mount::launch_supervisor({settings, *ownership}, covered, program, tree, readiness));
}

int launch_or_report(config::Settings& settings, mount::Readiness readiness) {
  const Result<void> launched = launch(settings, readiness);
  if (readiness.has_listener()) {
    readiness.failed(launched.error());
  } else {
    (void)::fputs(mount::error_line(launched.error()).c_str(), stderr);
  }
  return mount::exit_code_of(launched.error());
}

int mount_with(config::Settings settings) {
  if (settings.foreground) return launch_or_report(settings, mount::Readiness());
  Result<mount::Forked> forked = mount::fork_daemon();
  if (!forked) {
    return fail_with(forked.error());
  }
  // Nothing of the parent's is run at the child's end.
  if (forked->child) ::_exit(launch_or_report(settings, std::move(forked->readiness)));
  const Result<std::string> ready = mount::await_ready(*forked, settings.start_timeout, mount::log_path(settings));
  if (ready) {
    for (const std::string& caution : mount::cautions(settings)) {
      (void)::fputs(mount::warning_line(caution).c_str(), stderr);
    }
    for (const std::string_view line : parts_of(*ready, '\n')) {
      (void)::fputs(mount::warning_line(std::string(line)).c_str(), stderr);
    }
    const std::string warning = session_end_warning();
    if (!warning.empty()) (void)::fputs(mount::warning_line(warning).c_str(), stderr);
    return kExitDone;
  }
  return ready.error().code() == ErrorCode::kInvalid ? fail_options(ready.error()) : fail_with(ready.error());
}

class MountCommand final : public Subcommand {
 public:
  void add_to(Words& words) override {
    words.add_mountpoint(path_);
    options_.add_to(words, "read options from this TOML file; the command line takes precedence");
  }
  [[nodiscard]] Result<void> check() const override { return options_.check(); }
  [[nodiscard]] int run(const config::Environment& environment) override {
    Result<config::Settings> settings = options_.settings(path_, config::current_user(environment), environment);
    if (!settings) return fail_options(settings.error());
    if (const auto changed = config::change_families(*settings, options_.file()); !changed) {
      return fail_options(changed.error());
    }
    return mount_with(std::move(*settings));
  }

 private:
  std::string path_;
  MountArguments options_;
};

}  // namespace

std::unique_ptr<Subcommand> mount_command() { return std::make_unique<MountCommand>(); }

}  // namespace inductorfs::cli
