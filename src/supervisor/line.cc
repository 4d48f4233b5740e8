// SPDX-License-Identifier: Apache-2.0
#include "line.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <ctime>
#include <string_view>

#include "inductorfs/base/journal.h"

namespace inductorfs::supervisor {
namespace {

constexpr size_t kLineLimit = 512;
const char* destination = nullptr;
WorkerIds owner;
bool is_in_store = false;

/// By hand: gmtime_r and strftime look for a time zone first, which takes memory and a file (glibc, time/tzset.c).
size_t put_time(std::array<char, kLineLimit>& line) {
  using namespace std::chrono;
  timespec now{};
  (void)::clock_gettime(CLOCK_REALTIME, &now);  // cannot fail for this clock
  const seconds since{now.tv_sec};
  const sys_days day{floor<days>(since)};
  const year_month_day date{day};
  const hh_mm_ss time{since - day.time_since_epoch()};
  const int used =
      std::snprintf(line.data(), line.size(), "%04d-%02u-%02uT%02d:%02d:%02d.%03dZ ", static_cast<int>(date.year()),
                    static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                    static_cast<int>(time.hours().count()), static_cast<int>(time.minutes().count()),
                    static_cast<int>(time.seconds().count()), static_cast<int>(now.tv_nsec / 1'000'000));
  return static_cast<size_t>(std::max(used, 0));
}

/// The children that write; those beyond are not begun, and their lines are lost.
std::array<pid_t, 4> writers{};

/// Returns how many of them have not ended.
size_t reap_writers() {
  for (pid_t& writer : writers) {
    if (writer != 0 && ::waitpid(writer, nullptr, WNOHANG) != 0) writer = 0;
  }
  return static_cast<size_t>(std::ranges::count_if(writers, [](pid_t writer) { return writer != 0; }));
}

/// In the child, which the kernel may never let go: it keeps nothing else open.
[[noreturn]] void append(std::string_view line) {
  const bool is_owner = is_in_store ? become_server(owner) : become(owner);
  (void)::syscall(SYS_close_range, 0, ~0U, 0);  // best effort: Linux 5.9
  if (!is_owner) ::_exit(1);
  // Not made when it is missing: its owner and mode are the worker's business. A log of another user's is no link.
  const int no_link = owner.uid == 0 ? 0 : O_NOFOLLOW;
  const int file = ::open(destination, O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC | no_link);
  struct stat status {};
  const bool is_file = file >= 0 && ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  if (is_file || owner.uid == 0) (void)!::write(file, line.data(), line.size());
  ::_exit(0);
}

/// By a child: the log lies beside the blobs as a rule, on a disk that may not answer.
void append_aside(std::string_view line) {
  constexpr int kTurns = 500;
  constexpr timespec kTurn{0, 1'000'000};
  const size_t left = reap_writers();
  if (left == writers.size()) return;
  const bool stands_still = left > 0;
  pid_t& writer = *std::ranges::find(writers, 0);
  const pid_t child = ::fork();
  if (child == 0) append(line);
  writer = std::max(child, 0);
  if (child < 0 || stands_still) return;
  for (int i = 0; i < kTurns && reap_writers() > 0; ++i) (void)::nanosleep(&kTurn, nullptr);
}

}  // namespace

void log_to(const char* path, const WorkerIds& user, const char* file_of_store) {
  destination = path;
  owner = user;
  const std::string_view file(file_of_store == nullptr ? "" : file_of_store);
  const size_t slash = file.rfind('/');
  is_in_store = path != nullptr && slash != std::string_view::npos &&
                std::string_view(path).starts_with(file.substr(0, slash + 1));
}

void log_line(const char* level, const char* format, ...) {
  std::array<char, kLineLimit> line{};
  const char* const prefix = destination == nullptr ? journal_prefix(level) : "";
  size_t used = *prefix == '\0' ? put_time(line) : 0;
  used += static_cast<size_t>(std::max(std::snprintf(line.data() + used, line.size() - used, "%s", prefix), 0));
  used += static_cast<size_t>(std::max(std::snprintf(line.data() + used, line.size() - used, "%s ", level), 0));
  va_list arguments;
  va_start(arguments, format);
  const int more = std::vsnprintf(line.data() + used, line.size() - used, format, arguments);
  va_end(arguments);
  used = std::min(used + static_cast<size_t>(std::max(more, 0)), line.size() - 2);  // a long line is cut
  line[used++] = '\n';
  if (destination != nullptr) return append_aside({line.data(), used});
  (void)!::write(STDERR_FILENO, line.data(), used);  // nobody else could be told
}

}  // namespace inductorfs::supervisor
