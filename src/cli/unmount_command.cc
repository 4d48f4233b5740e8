// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "answers.h"
#include "command.h"
#include "inductorfs/cli/run.h"
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
constexpr Milliseconds kDeathPause{10};

/// A mount without a daemon to ask: the kernel can take it away all the same.
Result<void> unmount_orphan(const std::string& mountpoint, bool lazy, const config::Environment& environment) {
  const std::vector<MountEntry> table = read_mount_table();
  const MountEntry* entry = find_mount_at(table, mountpoint);
  const places::BindId mount = entry == nullptr ? places::BindId{} : places::BindId{entry->id, entry->device};
  if (entry != nullptr) (void)places::end_waits_without_daemon(*entry);
  INDUCTORFS_TRY(places::unmount_if_there(mountpoint, mount, lazy));  // to end the waits may have been enough
  places::detach_binds_of(mount.device);
  places::sweep_runtime_directory(config::runtime_directory(::geteuid(), environment));
  return {};
}

/// A daemon that is being killed hangs up first and lets go of its socket a moment later.
bool has_died(const std::string& socket) {
  const Deadline deadline = Deadline::after(kDeathPatience);
  while (control::is_listening(socket)) {
    if (deadline.passed()) return false;
    (void)control::wait_for(-1, 0, Deadline::after(kDeathPause));
  }
  return true;
}

Result<void> unmount(const std::string& mountpoint, bool lazy, const config::Environment& environment) {
  const Result<Located> mount = locate_mount(mountpoint, environment);
  if (!mount && mount.error().code() == ErrorCode::kUnavailable) {
    return unmount_orphan(mountpoint, lazy, environment);
  }
  if (!mount) return fail(mount.error());
  const Result<std::string> answer =
      control::ask_and_await_end(mount->socket, control::unmount_request(lazy), Deadline::after(kUnmountPatience));
  const bool broke_off = !answer && answer.error().code() == ErrorCode::kUnavailable;
  if (broke_off && has_died(mount->socket)) return unmount_orphan(mountpoint, lazy, environment);
  if (!answer) return fail(on_the_way(mountpoint, answer.error()));
  INDUCTORFS_TRY(control::parse_answer(*answer));
  return {};
}

class UnmountCommand final : public Subcommand {
 public:
  [[nodiscard]] std::string_view name() const override { return "unmount"; }
  [[nodiscard]] std::string_view help() const override { return "Unmount the cache and stop its daemon"; }
  void add_to(CLI::App& app) override {
    add_mountpoint(app, path_);
    app.add_flag("--lazy", lazy_, "detach the mount even if it is in use");
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
