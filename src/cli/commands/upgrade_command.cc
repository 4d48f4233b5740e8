// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

#include "cli/common/answers.h"
#include "cli/common/command.h"
#include "cli/common/locate.h"
#include "inductorfs/base/mount_table.h"
#include "inductorfs/cli/run.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/text.h"
#include "inductorfs/control/control.h"
#include "inductorfs/control/requests.h"
#include "inductorfs/mount/launch.h"
#include "inductorfs/mount/process.h"
#include "inductorfs/places/own_mounts.h"

namespace inductorfs::cli {

using config::Json;
using config::number_at;
using config::text_at;

namespace {

constexpr Milliseconds kAskPatience{10000};
/// To answer what was begun, and to be gone.
constexpr Milliseconds kHandOverPatience{20000};
/// To start the new program, and the old one again when that fails.
constexpr Milliseconds kTakeoverPatience{10000};
constexpr int kTick = 20;

struct Upgraded {
  std::string from;
  std::string to;
  uint64_t pid = 0;
};

Result<Json> ask_status(const Located& mount, const config::Environment& environment,
                        Deadline deadline = Deadline::after(kAskPatience)) {
  const Result<std::string> answer = ask_any_worker(mount, control::status_request(), deadline, environment);
  INDUCTORFS_TRY_ASSIGN(const auto result, answer ? control::parse_answer(*answer) : answer);
  return config::from_text(result);
}

/// The status of the process that serves after `pid`.
Result<Json> status_after(const Located& mount, uint64_t pid, const config::Environment& environment) {
  const Deadline deadline = Deadline::after(kTakeoverPatience);
  std::string why = "nobody answers";
  while (!deadline.passed()) {
    Result<Json> status = ask_status(mount, environment, deadline);
    if (status && number_at(*status, "pid") != pid) return status;
    if (!status) why = status.error().what();
    (void)::poll(nullptr, 0, kTick);
  }
  return fail(ErrorCode::kTimedOut, "no program serves the mount, " + std::to_string(kTakeoverPatience.count() / 1000) +
                                        " s after the upgrade: " + mount.mountpoint + ": " + why +
                                        "; both programs are tried on, and inductorfs status tells how it stands");
}

Result<Upgraded> upgrade(const Located& mount, const std::string& program, const config::Environment& environment) {
  INDUCTORFS_TRY_ASSIGN(const auto before, ask_status(mount, environment));
  // By descriptor: who serves the mount need not see this one's files.
  const auto executable = open_at(AT_FDCWD, program, O_PATH);
  if (!executable && executable.error().code() == ErrorCode::kNameTooLong) {
    return fail(ErrorCode::kInvalid, "--program: it is too long: a path has at most 4095 bytes");
  }
  if (!executable) {
    return fail(ErrorCode::kInvalid, "the daemon cannot run this program: " + program + ": name another --program");
  }
  const Result<std::string> answer = control::ask_and_await_end(
      mount.socket, control::upgrade_request(program), Deadline::after(kHandOverPatience), {}, executable->get());
  const Result<std::string> taken = answer ? control::parse_answer(*answer) : answer;
  if (!taken && taken.error().code() == ErrorCode::kNotSupported) {
    return fail(ErrorCode::kNotSupported, "the version of this daemon does not support upgrade: " + mount.mountpoint +
                                              ": unmount it and mount again");
  }
  if (!taken) return fail(taken.error());
  INDUCTORFS_TRY_ASSIGN(const auto after, status_after(mount, number_at(before, "pid"), environment));
  const auto failures = [](const Json& status) {
    const Json takeover = config::part_of(status, "takeover");
    return number_at(takeover, "upgrades_failed") + number_at(takeover, "upgrades_taken_back");
  };
  if (failures(after) > failures(before)) {
    return fail(ErrorCode::kUnavailable, "the new program does not serve the mount, the old one does (version " +
                                             text_at(after, "version") + ", process " +
                                             std::to_string(number_at(after, "pid")) + "): " + mount.mountpoint +
                                             ": see supervisor.new_program_failed in the mount's log");
  }
  return Upgraded{text_at(before, "version"), text_at(after, "version"), number_at(after, "pid")};
}

/// They have nothing to upgrade, but whoever upgrades all would think that they were.
void tell_dead_mounts(const config::Environment& environment) {
  const std::vector<MountEntry> table = read_mount_table();
  for (const MountEntry& entry : table) {
    const bool is_own = entry.is_ours() && fuse_user_of(entry) == ::geteuid();
    if (!is_own || places::find_main_mount(table, entry) != &entry) continue;
    const auto found = locate_mount(entry.mount_point, environment);
    if (found || found.error().code() != ErrorCode::kUnavailable) continue;
    (void)::fputs(mount::warning_line("not upgraded: " + found.error().what()).c_str(), stderr);
  }
}

/// All that was asked for, each with what came of it.
class Report {
 public:
  explicit Report(bool json) : json_(json) {}

  void add(const std::string& mountpoint, const Result<Upgraded>& done) {
    Json one = {{"mountpoint", mountpoint}, {"upgraded", done.has_value()}};
    if (done) {
      one.update({{"from", done->from}, {"to", done->to}, {"pid", done->pid}});
      text_ += config::printable(mountpoint) + ": " + done->from + " -> " + done->to + " (pid " +
               std::to_string(done->pid) + ")\n";
    } else {
      one.update(error_json(done.error()));
      (void)fail_with(done.error());
      failed_ = true;
    }
    list_.push_back(std::move(one));
  }

  [[nodiscard]] int finish(bool all) const {
    const Json& answer = all ? list_ : list_.front();
    const std::string text = json_ ? config::to_pretty(answer) + "\n" : text_;
    const bool written = ::fputs(text.c_str(), stdout) >= 0 && ::fflush(stdout) == 0;
    return written && !failed_ ? kExitDone : kExitFailed;
  }

 private:
  bool json_;
  bool failed_ = false;
  Json list_ = Json::array();
  std::string text_;
};

class UpgradeCommand final : public Subcommand {
 public:
  void add_to(Words& words) override {
    words.add_path("MOUNTPOINT", path_, "directory of the mount");
    words.add("--all", &all_, "upgrade all mounts of this user").excludes = {"MOUNTPOINT"};
    words.add("--program", &program_, "serve with this program instead of the one that you run", "FILE");
    words.add_json(json_);
  }
  [[nodiscard]] Result<void> check() const override {
    if (path_.empty() && !all_) return fail(ErrorCode::kInvalid, "give a MOUNTPOINT, or --all");
    return {};
  }
  [[nodiscard]] int run(const config::Environment& environment) override {
    const Result<std::string> own = mount::own_program();
    if (!own) return fail_query(own.error(), json_);
    const std::string program = program_.empty() ? *own : absolute(program_);
    Report report(json_);
    if (all_) {
      for (const Located& mount : own_mounts(environment)) {
        report.add(mount.mountpoint, upgrade(mount, program, environment));
      }
      tell_dead_mounts(environment);
      return report.finish(true);
    }
    const std::string mountpoint = absolute(path_);
    const Result<Located> mount = locate_mount(mountpoint, environment);
    if (!mount) return fail_query(mount.error(), json_);
    const Result<Upgraded> done = upgrade(*mount, program, environment);
    if (!done) return fail_query(done.error(), json_);
    report.add(mountpoint, done);
    return report.finish(false);
  }

 private:
  std::string path_;
  std::string program_;
  bool all_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Subcommand> upgrade_command() { return std::make_unique<UpgradeCommand>(); }

}  // namespace inductorfs::cli
