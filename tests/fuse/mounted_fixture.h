// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <future>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "fake_file_system.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/fuse/session.h"
#include "support/lacks.h"
#include "support/patience.h"
#include "support/temporary_directory.h"

namespace inductorfs::testing {

/// Why real mounts cannot be tested here; empty: they can.
inline std::string no_mounts_because() {
  if (geteuid() != 0) return "root";
  if (access("/dev/fuse", R_OK | W_OK) != 0) return "/dev/fuse";
  return "";
}

/// The fake file system, really mounted, with every trace removed when the test ends, also when it failed. A mount that
/// hangs is aborted after kPatience, so that the test fails instead of hanging.
class MountedTest : public ::testing::Test {
 protected:
  static constexpr std::chrono::seconds kPatience{30 * kSlowness};

  void SetUp() override {
    if (const std::string why = no_mounts_because(); !why.empty()) INDUCTORFS_LACKS(why);
    mount({});
  }
  void TearDown() override {
    watchdog_.request_stop();
    if (!fuse::mounted_type(mountpoint()).empty()) (void)fuse::unmount(mountpoint(), true);  // may have gone meanwhile
    session_.reset();
  }

  void mount(const fuse::SessionOptions& options) {
    fuse::MountOptions where;
    where.mountpoint = mountpoint();
    where.allow_other = true;
    auto device = fuse::mount(where);
    ASSERT_TRUE(device) << device.error().to_string();
    auto opened = fuse::Session::open(std::move(device->device), options, files_, counters_);
    ASSERT_TRUE(opened) << opened.error().to_string();
    session_ = std::move(*opened);
    session_->start([this] { ended_.set_value(); });
    watchdog_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  }
  void watch(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any condition;
    std::unique_lock lock(mutex);
    condition.wait_for(lock, stop, kPatience, [] { return false; });
    if (!stop.stop_requested()) umount2(mountpoint().c_str(), MNT_FORCE);
  }

  [[nodiscard]] const std::string& mountpoint() const { return directory_.path(); }
  [[nodiscard]] std::string path(const std::string& name) const { return directory_ / name; }
  [[nodiscard]] uint64_t counted(const std::string& name) { return counters_.get("fuse." + name).get(); }
  [[nodiscard]] uint64_t requests() { return counted("requests"); }
  /// How many requests `action` causes.
  template <typename Action>
  [[nodiscard]] uint64_t requests_of(Action&& action) {
    const uint64_t before = requests();
    action();
    return requests() - before;
  }
  /// Until `condition`, or false after a while.
  template <typename Condition>
  [[nodiscard]] static bool eventually(Condition&& condition) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::yield();
    }
    return true;
  }

  TemporaryDirectory directory_;
  FakeFileSystem files_;
  Counters counters_;
  std::promise<void> ended_;
  std::unique_ptr<fuse::Session> session_;
  std::jthread watchdog_;
};

/// A forked process that runs `entry` and ends with what it returns; killed when this object goes.
/// Needs external synchronisation.
class Child {
 public:
  explicit Child(const std::function<int()>& entry) : pid_(fork()) {
    if (pid_ != 0) return;
    alarm(60);  // never outlives a failed test
    _exit(entry());
  }
  ~Child() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  void send(int signal) const { kill(pid_, signal); }
  /// The exit status, 1000 + signal, or -1 when it does not end.
  int wait() {
    const Fd ended(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
    pollfd waited{ended.get(), POLLIN, 0};
    int status = 0;
    if (poll(&waited, 1, 30'000) != 1 || waitpid(pid_, &status, WNOHANG) != pid_) return -1;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

 private:
  pid_t pid_;
};

}  // namespace inductorfs::testing
