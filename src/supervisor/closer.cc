// SPDX-License-Identifier: Apache-2.0
#include "closer.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

namespace inductorfs::supervisor {
namespace {

constexpr int kTurns = 100;  ///< of a millisecond
constexpr rlim_t kMostDescriptors = 4096;

bool is_one_of(std::span<const Fd> descriptors, int fd) {
  return std::ranges::any_of(descriptors, [fd](const Fd& one) { return one.get() == fd; });
}

/// In the child: holds these alone until the parent has closed them, so that this is who closes them last.
[[noreturn]] void close_last(std::span<const Fd> descriptors, int parent) {
  rlimit limit{};
  (void)::getrlimit(RLIMIT_NOFILE, &limit);
  const int end = static_cast<int>(std::min(limit.rlim_cur, kMostDescriptors));
  for (int fd = 0; fd < end; ++fd) {
    if (fd != parent && !is_one_of(descriptors, fd)) (void)::close(fd);
  }
  char nothing = 0;
  while (::read(parent, &nothing, 1) < 0 && errno == EINTR) {
  }
  ::_exit(0);
}

}  // namespace

pid_t* Closer::free_place() {
  constexpr timespec kTurn{0, 1'000'000};
  for (int i = 0; i < kTurns; ++i) {
    for (pid_t& child : children_) {
      if (child == 0 || ::waitpid(child, nullptr, WNOHANG) != 0) return &child;
    }
    (void)::nanosleep(&kTurn, nullptr);
  }
  return nullptr;
}

bool Closer::close(std::span<Fd> descriptors) {
  if (std::ranges::none_of(descriptors, [](const Fd& one) { return static_cast<bool>(one); })) return true;
  pid_t* const place = free_place();
  int ends[2] = {-1, -1};
  const bool ready = place != nullptr && ::pipe2(ends, O_CLOEXEC) == 0;
  const Fd theirs(ends[0]);
  const Fd ours(ends[1]);  // its end tells the child that this process has closed the others
  const pid_t child = ready ? ::fork() : -1;
  if (child == 0) close_last(descriptors, theirs.get());
  if (place != nullptr) *place = std::max(child, 0);
  for (Fd& one : descriptors) {
    if (child > 0) one.reset();
    (void)one.release();
  }
  return child > 0;
}

}  // namespace inductorfs::supervisor
