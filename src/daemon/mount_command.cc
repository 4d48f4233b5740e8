// SPDX-License-Identifier: Apache-2.0
#include "mount_command.h"

#include <unistd.h>

#include <cstdio>

#include "inductorfs/base/log.h"
#include "inductorfs/daemon/daemon.h"
#include "launch.h"
#include "mountpoint.h"
#include "process.h"

namespace inductorfs::daemon {
namespace {

/// Looks at the mountpoint while nothing is mounted there, and becomes the supervisor. Returns only an error.
Result<void> launch(Settings& settings, Readiness& readiness) {
  // Before anything changes the directory that relative paths are taken from.
  const Result<std::string> program = own_program();
  if (!program) return fail(program.error());
  INDUCTORFS_TRY(settle(settings.mountpoint, settings.foreground));
  if (settings.foreground) INDUCTORFS_TRY(open_log(settings));
  INDUCTORFS_TRY(free_mountpoint(settings.mountpoint));
  Result<std::string> real = resolve_mountpoint(settings.mountpoint);
  if (!real) return fail(real.error());
  settings.mountpoint = std::move(*real);
  INDUCTORFS_TRY(free_mountpoint(settings.mountpoint));
  const Result<Ownership> ownership = ownership_of(settings.mountpoint);
  if (!ownership) return fail(ownership.error());
  if (::geteuid() == 0 && ownership->uid != 0) give_default_place(settings, user_by_id(ownership->uid));
  return fail(launch_supervisor({settings, *ownership}, *program, readiness));
}

int launch_or_report(Settings& settings, Readiness readiness) {
  const Result<void> launched = launch(settings, readiness);
  if (readiness.has_listener()) {
    readiness.failed(launched.error());
  } else {
    (void)::fputs(error_line(launched.error()).c_str(), stderr);
  }
  return kExitFailed;
}

}  // namespace

int mount_command(Settings settings) {
  if (settings.foreground) return launch_or_report(settings, Readiness());
  Result<Forked> forked = fork_daemon();
  if (!forked) {
    (void)::fputs(error_line(forked.error()).c_str(), stderr);
    return kExitFailed;
  }
  // Nothing of the parent's is run at the child's end.
  if (forked->child) ::_exit(launch_or_report(settings, std::move(forked->readiness)));
  const Result<std::string> ready = await_ready(*forked, settings.start_timeout, log_path(settings));
  if (ready) {
    if (!ready->empty()) (void)::fputs(warning_line(*ready).c_str(), stderr);
    return kExitDone;
  }
  (void)::fputs(error_line(ready.error()).c_str(), stderr);
  return kExitFailed;
}

}  // namespace inductorfs::daemon
