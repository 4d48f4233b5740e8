// SPDX-License-Identifier: Apache-2.0
#include "upgrade_command.h"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

#include "control.h"
#include "inductorfs/daemon/daemon.h"
#include "json.h"
#include "launch.h"
#include "locate.h"
#include "process.h"
#include "requests.h"
#include "text.h"

namespace inductorfs::daemon {
namespace {

constexpr Milliseconds kAskPatience{10000};
/// To answer what was begun, to start the new program, and to start the old one again when that fails.
constexpr Milliseconds kTakeoverPatience{60000};
constexpr int kTick = 20;

struct Upgraded {
  std::string from;
  std::string to;
  uint64_t pid = 0;
};

Result<Json> ask_status(const Located& mount, const Environment& environment) {
  const Result<std::string> answer =
      ask_any_worker(mount, status_request(), Deadline::after(kAskPatience), environment);
  const Result<std::string> result = answer ? parse_answer(*answer) : answer;
  if (!result) return fail(result.error());
  return Json::parse(*result, nullptr, false);
}

/// The status of the process that serves after `pid`.
Result<Json> status_after(const Located& mount, uint64_t pid, const Environment& environment) {
  const Deadline deadline = Deadline::after(kTakeoverPatience);
  while (!deadline.passed()) {
    Result<Json> status = ask_status(mount, environment);
    if (status && number_at(*status, "pid") != pid) return status;
    (void)::poll(nullptr, 0, kTick);
  }
  return fail(ErrorCode::kTimedOut, "no daemon answers after the upgrade: " + mount.mountpoint + ": see its log");
}

Result<Upgraded> upgrade(const Located& mount, const std::string& program, const Environment& environment) {
  const Result<Json> before = ask_status(mount, environment);
  if (!before) return fail(before.error());
  const Result<std::string> answer =
      ask_and_await_end(mount.socket, upgrade_request(program), Deadline::after(kTakeoverPatience));
  const Result<std::string> taken = answer ? parse_answer(*answer) : answer;
  if (!taken && taken.error().code() == ErrorCode::kNotSupported) {
    return fail(ErrorCode::kNotSupported, "the daemon is of a version that cannot be upgraded: " + mount.mountpoint +
                                              ": unmount it and mount again");
  }
  if (!taken) return fail(taken.error());
  const Result<Json> after = status_after(mount, number_at(*before, "pid"), environment);
  if (!after) return fail(after.error());
  const auto failures = [](const Json& status) {
    const Json takeover = part_of(status, "takeover");
    return number_at(takeover, "upgrades_failed") + number_at(takeover, "upgrades_taken_back");
  };
  if (failures(*after) > failures(*before)) {
    return fail(ErrorCode::kUnavailable, "the new program does not serve the mount, the old one does: " +
                                             mount.mountpoint + ": see the mount's log");
  }
  return Upgraded{text_at(*before, "version"), text_at(*after, "version"), number_at(*after, "pid")};
}

/// All that was asked for, each with what came of it.
class Report {
 public:
  explicit Report(bool json) : json_(json) {}

  void add(const std::string& mountpoint, const Result<Upgraded>& done) {
    Json one = {{"mountpoint", mountpoint}, {"upgraded", done.has_value()}};
    if (done) {
      one.update({{"from", done->from}, {"to", done->to}, {"pid", done->pid}});
      text_ +=
          printable(mountpoint) + ": " + done->from + " -> " + done->to + " (pid " + std::to_string(done->pid) + ")\n";
    } else {
      one["why"] = done.error().what();
      (void)::fputs(error_line(done.error()).c_str(), stderr);
      failed_ = true;
    }
    list_.push_back(std::move(one));
  }

  [[nodiscard]] int finish(bool all) const {
    const Json& answer = all ? list_ : list_.front();
    const std::string text = json_ ? to_pretty(answer) + "\n" : text_;
    const bool written = ::fputs(text.c_str(), stdout) >= 0 && ::fflush(stdout) == 0;
    return written && !failed_ ? kExitDone : kExitFailed;
  }

 private:
  bool json_;
  bool failed_ = false;
  Json list_ = Json::array();
  std::string text_;
};

}  // namespace

int upgrade_command(const Invocation& invocation, const Environment& environment) {
  const Result<std::string> own = own_program();
  if (!own) {
    (void)::fputs(error_line(own.error()).c_str(), stderr);
    return kExitFailed;
  }
  const std::string program =
      invocation.program.empty() ? *own : absolute_path(invocation.program, working_directory());
  Report report(invocation.json);
  if (invocation.all) {
    for (const Located& mount : own_mounts(environment))
      report.add(mount.mountpoint, upgrade(mount, program, environment));
    return report.finish(true);
  }
  const std::string mountpoint = absolute_path(invocation.path, working_directory());
  const Result<Located> mount = locate_mount(mountpoint, environment);
  report.add(mountpoint, mount ? upgrade(*mount, program, environment) : Result<Upgraded>(fail(mount.error())));
  return report.finish(false);
}

}  // namespace inductorfs::daemon
