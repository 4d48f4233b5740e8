// SPDX-License-Identifier: Apache-2.0
#include "open_files.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/log.h"

namespace inductorfs::daemon {
namespace {

constexpr Milliseconds kChildPatience{3000};
constexpr uint64_t kQuestionLimit = 4ULL << 20;
constexpr char kClosed = '0';
constexpr char kOpen = '1';
constexpr char kNobodyKnows = '?';

/// An anonymous file with these bytes, read from its beginning.
Result<Fd> memory_file(const char* name, const std::string& bytes) {
  Fd file(::memfd_create(name, MFD_CLOEXEC));
  if (!file) return fail_errno("memfd_create");
  INDUCTORFS_TRY(pwrite_full(file.get(), bytes, 0));
  return file;
}

/// This program once more, with nothing but its two files. 0: it could not be started.
pid_t start_child(const std::string& mountpoint, int in, int out) {
  std::string name = kOpenFilesName;
  std::string where = mountpoint;
  const std::array<char*, 3> words{name.data(), where.data(), nullptr};
  const std::array<char*, 1> environment{nullptr};
  sigset_t none;
  sigset_t all;
  (void)::sigemptyset(&none);
  (void)::sigfillset(&all);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  if (::posix_spawn_file_actions_init(&actions) != 0) return 0;
  (void)::posix_spawnattr_init(&attributes);
  pid_t pid = 0;
  const bool ready = ::posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO) == 0 &&
                     ::posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO) == 0 &&
                     ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0) == 0 &&
                     ::posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1) == 0 &&
                     ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF) == 0 &&
                     ::posix_spawnattr_setsigmask(&attributes, &none) == 0 &&
                     ::posix_spawnattr_setsigdefault(&attributes, &all) == 0;
  // The running program, also after an upgrade has put another one at its path.
  if (!ready || ::posix_spawn(&pid, "/proc/self/exe", &actions, &attributes, words.data(), environment.data()) != 0) {
    pid = 0;
  }
  (void)::posix_spawnattr_destroy(&attributes);
  (void)::posix_spawn_file_actions_destroy(&actions);
  return pid;
}

/// False: it was killed at its deadline. It may wait for an answer of the mount and then stays until that comes.
bool wait_for(pid_t pid) {
  const Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  pollfd ended{pidfd.get(), POLLIN, 0};
  const bool done = pidfd && ::poll(&ended, 1, static_cast<int>(kChildPatience.count())) == 1;
  if (!done) (void)::kill(pid, SIGKILL);
  (void)::waitpid(pid, nullptr, done ? 0 : WNOHANG);  // else a zombie until this process ends
  return done;
}

char state_of(int mount, const std::string& path, uint64_t inode_number) {
  // Nothing but a file of this mount, whatever others have put there meanwhile.
  open_how how{};
  how.flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV;
  const Fd file(static_cast<int>(::syscall(SYS_openat2, mount, path.c_str(), &how, sizeof how)));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) return kNobodyKnows;
  if (!S_ISREG(status.st_mode) || status.st_ino != inode_number) return kNobodyKnows;
  if (::fcntl(file.get(), F_SETLEASE, F_RDLCK) != 0) return errno == EAGAIN ? kOpen : kNobodyKnows;
  (void)::fcntl(file.get(), F_SETLEASE, F_UNLCK);  // it goes with the descriptor anyway
  return kClosed;
}

}  // namespace

std::vector<vfs::OpenState> ask_who_writes(const std::string& mountpoint,
                                           const std::vector<vfs::OpenQuestion>& questions) {
  std::vector<vfs::OpenState> states(questions.size(), vfs::OpenState::kUnknown);
  std::string text;
  for (const auto& question : questions) {
    text += std::to_string(question.inode_number) + " " + question.path;
    text.push_back('\0');
  }
  const auto in = memory_file("questions", text);
  const auto out = memory_file("answers", {});
  const pid_t pid = in && out ? start_child(mountpoint, in->get(), out->get()) : 0;
  if (pid <= 0 || !wait_for(pid)) {
    log::write_limited(log::Level::kWarning, "open_files",
                       {{"why", pid <= 0 ? "the child could not be started" : "the child was killed at its deadline"}});
    return states;
  }
  std::string answers(questions.size(), kNobodyKnows);
  const auto got = pread_full(out->get(), answers.data(), answers.size(), 0);
  for (size_t i = 0; i < got.value_or(0); ++i) {
    if (answers[i] == kClosed) states[i] = vfs::OpenState::kNotForWriting;
    if (answers[i] == kOpen) states[i] = vfs::OpenState::kForWriting;
  }
  return states;
}

int be_open_files(int argc, char** argv) {
  // Who opens a file for writing while it has our lease makes the kernel send this one.
  (void)::signal(SIGIO, SIG_IGN);
  const Fd mount(argc == 2 ? ::open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC) : -1);
  const auto questions = read_file(AT_FDCWD, "/proc/self/fd/0", kQuestionLimit);
  if (!mount || !questions) return 1;
  std::string answers;
  for (std::string_view rest = *questions; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    uint64_t inode_number = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), inode_number);
    const auto digits = static_cast<size_t>(end - line.data());
    const bool sound = error == std::errc() && digits < line.size();
    answers += sound ? state_of(mount.get(), std::string(line.substr(digits + 1)), inode_number) : kNobodyKnows;
  }
  return pwrite_full(STDOUT_FILENO, answers, 0) ? 0 : 1;
}

}  // namespace inductorfs::daemon
