// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/open_files.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
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

namespace inductorfs::mount {
namespace {

constexpr Milliseconds kSlice{50};
constexpr size_t kMostKilled = 4;
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

/// False: it was killed.
bool OpenFiles::wait_for(pid_t child, const std::stop_token& stop) {
  const Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  pollfd ended{pidfd.get(), POLLIN, 0};
  const auto poll_for = [&](Milliseconds most) { return ::poll(&ended, 1, static_cast<int>(most.count())) == 1; };
  const Deadline deadline = Deadline::after(patience_);
  bool done = false;
  while (pidfd && !done && !deadline.passed() && !stop.stop_requested()) done = poll_for(kSlice);
  if (!done) {
    (void)::kill(child, SIGKILL);
    if (!pidfd || !poll_for(kSlice)) {
      killed_.push_back(child);
      return false;
    }
  }
  (void)::waitpid(child, nullptr, 0);  // it has ended
  return done;
}

std::vector<vfs::OpenState> OpenFiles::who_writes(const std::vector<vfs::OpenQuestion>& questions,
                                                  const std::stop_token& stop) {
  std::erase_if(killed_, [](pid_t child) { return ::waitpid(child, nullptr, WNOHANG) != 0; });
  std::vector<vfs::OpenState> states(questions.size(), vfs::OpenState::kNotAsked);
  if (states.empty()) return states;
  std::string text;
  for (const auto& question : questions) {
    text += std::to_string(question.inode_number) + " " + question.path;
    text.push_back('\0');
  }
  const auto in = memory_file("questions", text);
  const auto out = memory_file("answers", {});
  // Each one that got no answer may go on for as long as the mount is not answered.
  const pid_t child = in && out && killed_.size() < kMostKilled ? start_child(mountpoint_, in->get(), out->get()) : 0;
  const bool done = child > 0 && wait_for(child, stop);
  std::string answers(questions.size(), kNobodyKnows);
  const size_t got = child > 0 ? pread_full(out->get(), answers.data(), answers.size(), 0).value_or(0) : 0;
  for (size_t i = 0; i < got; ++i) {
    states[i] = answers[i] == kClosed ? vfs::OpenState::kNotForWriting
                : answers[i] == kOpen ? vfs::OpenState::kForWriting
                                      : vfs::OpenState::kUnknown;
  }
  if (got == states.size()) return states;
  states[got] = vfs::OpenState::kLate;
  if (stop.stop_requested()) return states;
  const char* why = done ? "the child gave no answer" : "the child was killed at its deadline";
  log::write_limited(log::Level::kWarning, "mount.open_files_unknown",
                     {{"path", questions[got].path}, {"why", child > 0 ? why : "the child could not be started"}});
  return states;
}

int be_open_files(int argc, char** argv) {
  // Who opens a file for writing while it has our lease makes the kernel send this one.
  (void)::signal(SIGIO, SIG_IGN);
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody would read its answers
  const Fd mount(argc == 2 ? ::open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC) : -1);
  const auto questions = read_file(AT_FDCWD, "/proc/self/fd/0", kQuestionLimit);
  if (!mount || !questions) return 1;
  uint64_t answered = 0;
  for (std::string_view rest = *questions; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    uint64_t inode_number = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), inode_number);
    const auto digits = static_cast<size_t>(end - line.data());
    const bool sound = error == std::errc() && digits < line.size();
    const char answer =
        sound ? state_of(mount.get(), std::string(line.substr(digits + 1)), inode_number) : kNobodyKnows;
    if (!pwrite_full(STDOUT_FILENO, std::string_view(&answer, 1), answered++)) return 1;
  }
  return 0;
}

}  // namespace inductorfs::mount
