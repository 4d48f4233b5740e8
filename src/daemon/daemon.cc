// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/daemon/daemon.h"

#include <unistd.h>

#include <cstdio>

#include "check_command.h"
#include "command_line.h"
#include "inductorfs/fingerprint/fingerprint.h"
#include "inductorfs/fingerprint/writers.h"
#include "mount_command.h"
#include "process.h"
#include "query_commands.h"
#include "upgrade_command.h"
#include "worker_command.h"

namespace inductorfs::daemon {
namespace {

int print_command(const Invocation& invocation) {
  std::FILE* const out = invocation.exit_code == kExitDone ? stdout : stderr;
  const bool written = std::fputs(invocation.text.c_str(), out) >= 0 && std::fflush(out) == 0;
  return written ? invocation.exit_code : kExitFailed;
}

int mount(const Invocation& invocation, const Environment& environment) {
  Result<Settings> settings = settings_of(invocation, current_user(environment), environment);
  if (settings) {
    if (Result<void> changed = change_families(*settings, invocation.config); !changed) {
      settings = fail(std::move(changed).error());
    }
  }
  if (settings) return mount_command(std::move(*settings));
  (void)std::fputs(error_line(settings.error()).c_str(), stderr);
  return kExitFailed;
}

}  // namespace

int run(int argc, char** argv) {
  const Invocation invocation = parse_command_line(argc, argv);
  hide_secrets(argc, argv);
  const Environment environment = process_environment();
  switch (invocation.verb) {
    case Invocation::Verb::kPrint:
      return print_command(invocation);
    case Invocation::Verb::kMount:
      return mount(invocation, environment);
    case Invocation::Verb::kUnmount:
      return unmount_command(invocation, environment);
    case Invocation::Verb::kStatus:
      return status_command(invocation, environment);
    case Invocation::Verb::kSync:
      return sync_command(invocation, environment);
    case Invocation::Verb::kExplain:
      return explain_command(invocation, environment);
    case Invocation::Verb::kUpgrade:
      return upgrade_command(invocation, environment);
    case Invocation::Verb::kFingerprint:
      return fingerprint_command(invocation);
    case Invocation::Verb::kCheck:
      return check_command(invocation);
    case Invocation::Verb::kGpuProbe:
      return fingerprint::run_gpu_probe();
    case Invocation::Verb::kPackageFacts:
      return fingerprint::run_package_reader();
    case Invocation::Verb::kWorker:
      return worker_command();
  }
  return kExitUsage;
}

}  // namespace inductorfs::daemon
