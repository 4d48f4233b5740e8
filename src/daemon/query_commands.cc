// SPDX-License-Identifier: Apache-2.0
#include "query_commands.h"

#include <cstdio>

#include "also.h"
#include "control.h"
#include "inductorfs/daemon/daemon.h"
#include "inductorfs/fuse/session.h"
#include "json.h"
#include "learn.h"
#include "locate.h"
#include "mountpoint.h"
#include "process.h"
#include "report.h"
#include "requests.h"
#include "runtime_files.h"
#include "sharing.h"
#include "socket.h"
#include "status.h"
#include "text.h"

namespace inductorfs::daemon {
namespace {

constexpr Milliseconds kQueryPatience{10000};
/// An unmount waits for the daemon's end, so that the store is free for the next mount when the command returns.
constexpr Milliseconds kUnmountPatience{60000};
constexpr Milliseconds kDeathPatience{1000};
constexpr Milliseconds kDeathPause{10};

int fail_with(const Error& error) {
  (void)::fputs(error_line(error).c_str(), stderr);
  return kExitFailed;
}

/// An output that cannot be written is a failure of the command: `inductorfs status > /full/disk`.
int print(const std::string& text) {
  if (::fputs(text.c_str(), stdout) >= 0 && ::fflush(stdout) == 0) return kExitDone;
  return fail_with(Error(ErrorCode::kNoSpace, "the answer cannot be written: standard output: is its disk full?"));
}

/// What went wrong on the way to a daemon, in the user's terms.
Error on_the_way(const std::string& mountpoint, const Error& error) {
  if (error.code() == ErrorCode::kTimedOut) {
    return Error(ErrorCode::kTimedOut, "the daemon is too slow to answer: " + mountpoint + ": see its log");
  }
  return error;
}

Result<std::string> ask_daemon(const Located& mount, const std::string& request, Milliseconds patience,
                               const Environment& environment) {
  const Result<std::string> answer = ask_any_worker(mount, request, Deadline::after(patience), environment);
  if (!answer) return fail(on_the_way(mount.mountpoint, answer.error()));
  return parse_answer(*answer);
}

std::string pretty(const std::string& json) { return to_pretty(Json::parse(json, nullptr, false)) + "\n"; }

/// A mount without a daemon to ask: the kernel can take it away all the same.
Result<void> unmount_orphan(const std::string& mountpoint, bool lazy, const Environment& environment) {
  const std::vector<MountEntry> table = read_mount_table();
  const MountEntry* entry = find_mount_at(table, mountpoint);
  const std::string device = entry == nullptr ? std::string() : entry->device;
  (void)end_waits_without_daemon(mountpoint);
  INDUCTORFS_TRY(unmount_if_there(mountpoint, lazy, device));  // to end the waits may have been enough
  detach_binds_of(device);
  sweep_runtime_directory(runtime_directory(::geteuid(), environment));
  return {};
}

/// A daemon that is being killed hangs up first and lets go of its socket a moment later.
bool has_died(const std::string& socket) {
  const Deadline deadline = Deadline::after(kDeathPatience);
  while (is_listening(socket)) {
    if (deadline.passed()) return false;
    (void)wait_for(-1, 0, Deadline::after(kDeathPause));
  }
  return true;
}

Result<void> unmount(const Invocation& invocation, const Environment& environment) {
  const std::string mountpoint = absolute_path(invocation.path, working_directory());
  const Result<Located> mount = locate_mount(mountpoint, environment);
  if (!mount && mount.error().code() == ErrorCode::kUnavailable) {
    return unmount_orphan(mountpoint, invocation.lazy, environment);
  }
  if (!mount) return fail(mount.error());
  const Result<std::string> answer =
      ask_and_await_end(mount->socket, unmount_request(invocation.lazy), Deadline::after(kUnmountPatience));
  const bool broke_off = !answer && answer.error().code() == ErrorCode::kUnavailable;
  if (broke_off && has_died(mount->socket)) return unmount_orphan(mountpoint, invocation.lazy, environment);
  if (!answer) return fail(on_the_way(mountpoint, answer.error()));
  const Result<std::string> done = parse_answer(*answer);
  if (!done) return fail(done.error());
  return {};
}

}  // namespace

int unmount_command(const Invocation& invocation, const Environment& environment) {
  const Result<void> done = unmount(invocation, environment);
  return done ? kExitDone : fail_with(done.error());
}

int status_command(const Invocation& invocation, const Environment& environment) {
  const Result<Located> mount = locate_mount(absolute_path(invocation.path, working_directory()), environment);
  if (!mount) return fail_with(mount.error());
  const Result<std::string> status = ask_daemon(*mount, status_request(), kQueryPatience, environment);
  if (!status) return fail_with(status.error());
  return print(invocation.json ? pretty(*status) : status_text(*status));
}

int sync_command(const Invocation& invocation, const Environment& environment) {
  const Result<Located> mount = locate_mount(absolute_path(invocation.path, working_directory()), environment);
  if (!mount) return fail_with(mount.error());
  const Milliseconds timeout = invocation.timeout;
  const Result<std::string> done = ask_daemon(*mount, sync_request(timeout), timeout + kQueryPatience, environment);
  if (!done) {
    if (invocation.json) (void)print(to_pretty(Json{{"synced", false}, {"why", done.error().what()}}) + "\n");
    return fail_with(done.error());
  }
  Json report = Json::parse(*done, nullptr, false);
  if (!report.is_object()) report = Json::object();
  const bool kept = flag_at(report, "nothing_shared");
  const std::string text = sync_text(report);
  report["synced"] = true;
  const int printed = invocation.json ? print(to_pretty(report) + "\n") : print(text);
  return printed == kExitDone && kept ? kExitKept : printed;
}

int explain_command(const Invocation& invocation, const Environment& environment) {
  const Result<LocatedPath> path = locate_path(absolute_path(invocation.path, working_directory()), environment);
  if (!path) return fail_with(path.error());
  const Result<std::string> explanation =
      ask_daemon(path->mount, explain_request(path->relative), kQueryPatience, environment);
  if (!explanation) return fail_with(explanation.error());
  return print(invocation.json ? pretty(*explanation) : explanation_text(*explanation));
}

Result<void> change_families(const Settings& settings, const std::string& file) {
  if (settings.families.empty()) return {};
  Result<void> changed = layout::change_rules(settings.families);
  if (!changed) return fail(std::move(changed).error().with_context(file + ": families"));
  return {};
}

int fingerprint_command(const Invocation& invocation) {
  const Result<Settings> settings = facts_settings_of(invocation);
  if (!settings) return fail_with(settings.error());
  if (const Result<void> changed = change_families(*settings, invocation.config); !changed) {
    return fail_with(changed.error());
  }
  FactsRequest request;
  request.file = settings->fingerprint;
  request.python = settings->python;
  request.environment = settings->environment;
  if (!invocation.cache.empty()) request.cache_file = absolute_path(invocation.cache, working_directory());
  const Result<fingerprint::Fingerprint> facts = learn_facts(request);
  if (!facts) return fail_with(facts.error());
  const auto show = [&](const Json& report, std::string (*text)(const Json&)) {
    return print(invocation.json ? to_pretty(report) + "\n" : text(report));
  };
  if (invocation.families) return show(families_report(*facts), families_text);
  if (invocation.compare.empty()) return show(fingerprint_report(*facts), fingerprint_text);
  FactsRequest other;
  other.file = absolute_path(invocation.compare, working_directory());
  const Result<fingerprint::Fingerprint> theirs = learn_facts(other);
  if (!theirs) return fail_with(theirs.error());
  return show(comparison_report(*facts, *theirs), comparison_text);
}

}  // namespace inductorfs::daemon
