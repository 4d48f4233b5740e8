// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>

#include "cli/common/answers.h"
#include "cli/common/command.h"
#include "inductorfs/cli/run.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/control/control.h"
#include "inductorfs/control/requests.h"
#include "inductorfs/control/socket.h"
#include "inductorfs/places/also.h"
#include "inductorfs/places/mountpoint.h"
#include "inductorfs/places/sweep.h"

namespace inductorfs::cli {
namespace {

/// An unmount waits for the daemon's end, so that the store is free for the next mount when the command returns.
constexpr Milliseconds kUnmountPatience{60000};
constexpr Milliseconds kDeathPatience{1000};
/// For a supervisor without a worker, which sees that its mount has gone when it looks for the next worker's chance.
constexpr Milliseconds kSupervisorPatience{10'000};
constexpr Milliseconds kDeathPause{10};
/// Workers that may end one after the other while they are asked.
constexpr int kAttempts = 3;

/// A mount without a daemon to ask: the kernel can take it away all the same.
Result<void> unmount_orphan(const std::string& mountpoint, bool lazy, const config::Environment& environment) {
  const std::vector<MountEntry> table = read_mount_table();
  const MountEntry* entry = find_mount_at(table, mountpoint);
  const places::BindId mount = entry == nullptr ? places::BindId{} : places::BindId{entry->id, entry->device};
  if (entry != nullptr) (void)places::end_waits_without_daemon(*entry);
  INDUCTORFS_TRY(places::unmount_if_there(mountpoint, mount, lazy));  // to end the waits may have been enough
  places::detach_binds_of(mount.device, mountpoint);
  (void)places::detach_dead_mounts(mountpoint);  // those that were below it
  places::sweep_runtime_directory(config::runtime_directory(::geteuid(), environment), true);
  return {};
}

/// A daemon that is being killed hangs up first and lets go of its socket a moment later.
void await_death(const std::string& socket, Milliseconds patience = kDeathPatience) {
  const Deadline deadline = Deadline::after(patience);
  while (control::is_listening(socket) && !deadline.passed()) {
    (void)control::wait_for(-1, 0, Deadline::after(kDeathPause));
  }
}

/// What the socket says while the command waits for the end. On a busy host a worker that lives says it late, too.
Result<std::string> ask_meanwhile(const Located& mount) {
  constexpr Milliseconds kPatience{2000};
  return control::ask(mount.socket, control::where_request(), Deadline::after(kPatience));
}

/// Says for what the command still waits, in one line.
void tell_wait(const Located& mount, pid_t daemon, bool answers) {
  const std::string process = daemon > 0 ? " (pid " + std::to_string(daemon) + ")" : "";
  const std::string why = answers ? "its daemon" + process + " finishes requests and publishes what is queued"
                                  : "its worker" + process +
                                        " does not answer; the supervisor replaces one that hangs after --hang-timeout";
  (void)::fputs(("inductorfs: waiting for the end of the mount: " + config::printable(mount.mountpoint) + ": " + why +
                 "; at most " + std::to_string(kUnmountPatience.count() / 1000) + " s\n")
                    .c_str(),
                stderr);
}

Error too_late(const Located& mount, pid_t daemon) {
  const std::string remedy = daemon > 0 ? "if its worker hangs, run kill -9 " + std::to_string(daemon) +
                                              " and inductorfs unmount again; no file is lost"
                                        : "see its log";
  return {ErrorCode::kTimedOut, "the mount has not ended within " + std::to_string(kUnmountPatience.count() / 1000) +
                                    " s: " + mount.mountpoint + ": " + remedy};
}

/// Takes a mount away whose worker was killed and is not let go by the kernel: nobody could say who uses it.
Result<void> unmount_held(const Located& mount, pid_t held, const config::Environment& environment) {
  INDUCTORFS_TRY(unmount_orphan(mount.mountpoint, true, environment));
  return fail(ErrorCode::kUnavailable,
              "the mount is gone, but its worker hung and was killed, and the kernel keeps it (pid " +
                  std::to_string(held) + ") in a wait for the disk of --store: " + mount.mountpoint +
                  ": that store is in use until the disk answers, and so is what jobs have open in the mount; what is "
                  "not published is published after the next mount");
}

Result<void> unmount(const std::string& mountpoint, bool lazy, const config::Environment& environment) {
  const Deadline deadline = Deadline::after(kUnmountPatience);
  pid_t silent = 0;
  for (int attempt = 0;; ++attempt) {
    const Result<Located> mount = locate_mount(mountpoint, environment);
    if (!mount && mount.error().code() == ErrorCode::kUnavailable) {
      return unmount_orphan(mountpoint, lazy, environment);
    }
    if (!mount && mount.error().code() == ErrorCode::kNotFound && attempt > 0) return {};
    if (!mount) return fail(mount.error());
    pid_t held = 0;
    const auto on_silence = [&](pid_t daemon) {
      const Result<std::string> meanwhile = ask_meanwhile(*mount);
      held = meanwhile ? control::held_worker(*meanwhile) : 0;
      if (held == 0 && daemon != silent) tell_wait(*mount, daemon, meanwhile.has_value());
      silent = daemon;
      return held == 0;
    };
    const Result<std::string> answer =
        control::ask_and_await_end(mount->socket, control::unmount_request(lazy), deadline, on_silence);
    if (answer && held == 0) held = control::held_worker(*answer);
    if (held > 0) return unmount_held(*mount, held, environment);
    if (answer && control::is_of_no_worker(*answer)) {
      INDUCTORFS_TRY(unmount_orphan(mountpoint, lazy, environment));
      await_death(mount->socket, kSupervisorPatience);
      return {};
    }
    if (answer) {
      const Result<std::string> done = control::parse_answer(*answer);
      return done ? Result<void>() : fail(done.error());
    }
    if (answer.error().code() == ErrorCode::kTimedOut) return fail(too_late(*mount, silent));
    const bool broke_off = answer.error().code() == ErrorCode::kUnavailable;
    if (!broke_off || attempt == kAttempts) return fail(on_the_way(mountpoint, answer.error()));
    await_death(mount->socket);  // its successor, if there is one, is asked next
  }
}

class UnmountCommand final : public Subcommand {
 public:
  void add_to(Words& words) override {
    words.add_mountpoint(path_);
    words.add("--lazy", &lazy_, "detach the mount even if it is in use");
  }
  [[nodiscard]] int run(const config::Environment& environment) override {
    const std::string path = absolute(path_);
    (void)::chdir("/");  // in the mount, this process would itself keep it busy, and be named as its user
    const Result<void> done = unmount(path, lazy_, environment);
    return done ? kExitDone : fail_with(done.error());
  }

 private:
  std::string path_;
  bool lazy_ = false;
};

}  // namespace

std::unique_ptr<Subcommand> unmount_command() { return std::make_unique<UnmountCommand>(); }

}  // namespace inductorfs::cli
