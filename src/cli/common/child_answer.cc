// SPDX-License-Identifier: Apache-2.0
#include "cli/common/child_answer.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "inductorfs/base/fd.h"

namespace inductorfs::cli {
namespace {

constexpr size_t kAnswerLimit = size_t{1} << 20;
/// Stands at the end of an answer, so that a child that was killed has given none.
constexpr char kWhole = '.';

void write_all(int fd, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t count = ::write(fd, text.data() + at, text.size() - at);
    if (count <= 0) return;
    at += static_cast<size_t>(count);
  }
}

std::optional<std::string> read_answer(int fd, Deadline deadline) {
  constexpr Milliseconds kGrace{200};
  std::string answer;
  std::array<char, 4096> piece{};
  while (true) {
    pollfd wait{fd, POLLIN, 0};
    if (::poll(&wait, 1, static_cast<int>((deadline.left() + kGrace).count())) != 1) return std::nullopt;
    const ssize_t count = ::read(fd, piece.data(), piece.size());
    if (count < 0 || answer.size() > kAnswerLimit) return std::nullopt;
    if (count == 0) break;
    answer.append(piece.data(), static_cast<size_t>(count));
  }
  if (answer.empty() || answer.back() != kWhole) return std::nullopt;
  answer.pop_back();
  return answer;
}

}  // namespace

bool become_user(uid_t user) {
  return ::geteuid() != 0 || user == 0 ||
         (::setgroups(0, nullptr) == 0 && ::setegid(user) == 0 && ::seteuid(user) == 0);
}

std::string wrong_with_writing(std::string path) {
  while (::faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
    if (errno == EROFS) return "is on a read-only file system";
    if (errno == EACCES || errno == EPERM) return "may not be written by uid " + std::to_string(::geteuid());
    if (errno != ENOENT || path.size() <= 1) return {};
    path.resize(std::max<size_t>(path.find_last_of('/'), 1));
  }
  return {};
}

std::optional<std::string> answer_of_child(uid_t user, Deadline deadline,
                                           const std::function<std::optional<std::string>()>& ask) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return std::nullopt;
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto text = become_user(user) ? ask() : std::nullopt;
    if (text) write_all(writer.get(), *text + kWhole);
    ::_exit(0);
  }
  writer = Fd();
  auto answer = child > 0 ? read_answer(reader.get(), deadline) : std::nullopt;
  if (child > 0) (void)::kill(child, SIGKILL);
  if (child > 0) (void)::waitpid(child, nullptr, answer ? 0 : WNOHANG);  // the kernel may not let it go
  return answer;
}

}  // namespace inductorfs::cli
