// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/config/json.h"
#include "inductorfs/places/own_mounts.h"
#include "support/lacks.h"
#include "support/learned_facts.h"
#include "support/patience.h"
#include "support/temporary_directory.h"

/// Runs the built program as a user runs it.
namespace inductorfs::cli {

inline constexpr Milliseconds kPatience{60000 * testing::kSlowness};
inline constexpr uint64_t kOutputLimit = 16ULL << 20;

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

inline std::string contents(const std::string& path) { return read_file(AT_FDCWD, path, kOutputLimit).value_or(""); }

/// Polls for what another process does; every wait has a deadline.
template <typename Condition>
bool eventually(Condition&& condition) {
  const Deadline deadline = Deadline::after(kPatience);
  while (!condition()) {
    if (deadline.passed()) return false;
    (void)::poll(nullptr, 0, 10);
  }
  return true;
}

inline bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }
inline bool is_one_line(const std::string& text) { return !text.empty() && text.find('\n') == text.size() - 1; }

class Cli : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::chmod(directory_.path().c_str(), 0711), 0);  // for the user of root's workers
    ASSERT_EQ(::mkdir(mount_.c_str(), 0755), 0);
    write_facts(facts_, {});
  }

  static void write_facts(const std::string& path, const std::map<fingerprint::Facet, std::string>& values) {
    ASSERT_TRUE(write_file_atomically(AT_FDCWD, path, testing::facts::all_known(values).to_json()).has_value());
  }

  void TearDown() override {
    if (is_mounted()) (void)run({"unmount", "--lazy", mount_});
    while (is_mounted() && ::umount2(mount_.c_str(), MNT_DETACH) == 0) {
    }
    for (const pid_t pid : started_) {
      (void)::kill(pid, SIGKILL);
      (void)::waitpid(pid, nullptr, 0);
    }
  }

  pid_t start(std::vector<std::string> arguments, const std::string& out, const std::string& err,
              const std::vector<std::string>& environment = {}) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    (void)::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
    (void)::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
    (void)::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    for (const std::string& variable : environment) (void)::putenv(const_cast<char*>(variable.c_str()));
    arguments.insert(arguments.begin(), INDUCTORFS_PROGRAM);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    (void)::execv(argv[0], argv.data());
    ::_exit(127);
  }

  Outcome run(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {}) {
    const std::string out = directory_ / "out";
    const std::string err = directory_ / "err";
    const pid_t pid = start(arguments, out, err, environment);
    int status = 0;
    (void)::waitpid(pid, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), contents(out), contents(err)};
  }

  std::vector<std::string> mount_arguments(const std::vector<std::string>& more = {}) {
    std::vector<std::string> all{"mount", mount_,         "--store", store_,      "--fingerprint",
                                 facts_,  "--quiet-time", "50",      "--writers", "all"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  /// Expects this exit code and one line that has all the parts.
  void expect_refusal(const Outcome& outcome, const std::vector<std::string>& parts, int code = 1) {
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_TRUE(is_one_line(outcome.err)) << outcome.err;
    EXPECT_EQ(outcome.err.find("inductorfs: "), 0U) << outcome.err;
    for (const std::string& part : parts) EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  }

  bool is_mounted() const {
    const std::vector<MountEntry> table = read_mount_table();
    return find_mount_at(table, mount_) != nullptr;
  }
  bool shows_mount(const std::string& path) const {
    const std::vector<MountEntry> table = read_mount_table();
    const MountEntry* entry = find_mount_at(table, path);
    return entry != nullptr && entry->is_ours();
  }

  config::Json status() {
    const Outcome outcome = run({"status", "--json", mount_});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return config::Json::parse(outcome.out, nullptr, false);
  }
  pid_t daemon_pid() { return status().value("pid", pid_t{-1}); }
  pid_t supervisor_pid() { return status()["takeover"].value("supervisor", pid_t{-1}); }
  /// Supervisor and worker at once: nobody is left who would serve the mount again.
  void kill_daemon() {
    const config::Json facts = status();
    for (const pid_t pid : {facts["takeover"].value("supervisor", pid_t{-1}), facts.value("pid", pid_t{-1})}) {
      ASSERT_GT(pid, 1);
      ASSERT_EQ(::kill(pid, SIGKILL), 0);
      ASSERT_TRUE(eventually([&] { return is_gone(pid); }));
    }
  }
  bool is_gone(pid_t pid) { return ::kill(pid, 0) != 0; }

  testing::TemporaryDirectory directory_;
  std::string mount_ = directory_ / "mnt";
  std::string store_ = directory_ / "store";
  std::string facts_ = directory_ / "facts.json";
  std::vector<pid_t> started_;
};

/// Tests that mount need the device and the right.
class CliMount : public Cli {
 protected:
  void SetUp() override {
    if (!exists("/dev/fuse")) INDUCTORFS_LACKS("/dev/fuse");
    if (::geteuid() != 0) INDUCTORFS_LACKS("root (tests/mount has the ordinary user)");
    Cli::SetUp();
  }
  /// `warning`: how the one line on standard error begins; empty: there is none.
  void mount(const std::vector<std::string>& more = {"--no-also"}, const std::string& warning = {}) {
    const Outcome outcome = run(mount_arguments(more));
    ASSERT_EQ(outcome.code, 0) << outcome.err << contents(store_ + "/log");
    EXPECT_EQ(warning.empty() ? outcome.err : outcome.err.substr(0, warning.size()), warning) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
};

}  // namespace inductorfs::cli
