// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/open_files.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>

#include "inductorfs/base/encoding.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/log.h"

namespace inductorfs::mount {
namespace {

constexpr Milliseconds kDeadline{10'000};
constexpr char kClosed = '0';
constexpr char kOpen = '1';
constexpr char kNobodyKnows = '?';

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

/// "INODE PATH\n" for each, the path in hexadecimal digits, as many as one message takes.
std::string to_text(const std::vector<vfs::OpenQuestion>& questions) {
  std::string text;
  for (const auto& question : questions) {
    const std::string line = std::to_string(question.inode_number) + " " + to_hex(question.path) + "\n";
    if (text.size() + line.size() > fingerprint::kExaminerRequest) break;
    text += line;
  }
  return text;
}

/// In a child. Writes an answer of one character for each question into the descriptor, as soon as it is known.
std::string answer(const std::string& mountpoint, const fingerprint::ExaminerCall& call) {
  // Who opens a file for writing while it has our lease makes the kernel send this one.
  (void)::signal(SIGIO, SIG_IGN);
  const Fd mount(::open(mountpoint.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  uint64_t answered = 0;
  for (std::string_view rest = call.request; mount && !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    uint64_t inode_number = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), inode_number);
    const auto digits = static_cast<size_t>(end - line.data());
    const auto path =
        error == std::errc() && digits < line.size() ? from_hex(std::string(line.substr(digits + 1))) : std::nullopt;
    const char state = path ? state_of(mount.get(), *path, inode_number) : kNobodyKnows;
    if (!pwrite_full(call.descriptor, std::string_view(&state, 1), answered++)) break;
  }
  return std::to_string(answered);
}

}  // namespace

std::vector<vfs::OpenState> OpenFiles::who_writes(const std::vector<vfs::OpenQuestion>& questions,
                                                  const std::stop_token& stop) const {
  std::vector<vfs::OpenState> states(questions.size(), vfs::OpenState::kNotAsked);
  const std::string text = to_text(questions);
  if (text.empty() || stop.stop_requested()) return states;
  const auto asked = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  const Fd memory(::memfd_create("answers", MFD_CLOEXEC));
  const auto done = memory ? examiner_->ask(kTask, text, Deadline::after(patience_), memory.get())
                           : Result<std::string>(fail_errno("memfd_create"));
  std::string answers(asked, kNobodyKnows);
  const size_t got = memory ? pread_full(memory.get(), answers.data(), answers.size(), 0).value_or(0) : 0;
  for (size_t i = 0; i < got; ++i) {
    states[i] = answers[i] == kClosed ? vfs::OpenState::kNotForWriting
                : answers[i] == kOpen ? vfs::OpenState::kForWriting
                                      : vfs::OpenState::kUnknown;
  }
  if (got == asked) return states;
  states[got] = vfs::OpenState::kLate;
  if (stop.stop_requested()) return states;
  log::write_limited(
      log::Level::kWarning, "mount.open_files_unknown",
      {{"path", questions[got].path}, {"why", done ? std::string("it cannot be opened") : done.error().what()}});
  return states;
}

fingerprint::ExaminerTask open_files_task(std::string mountpoint) {
  fingerprint::ExaminerTask task;
  task.capabilities = {CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_LEASE};
  task.deadline = kDeadline;
  task.answer = [mountpoint = std::move(mountpoint)](const fingerprint::ExaminerCall& call) {
    return answer(mountpoint, call);
  };
  return task;
}

}  // namespace inductorfs::mount
