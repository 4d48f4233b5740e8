// SPDX-License-Identifier: Apache-2.0
#include "line.h"

#include <fcntl.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <ctime>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/journal.h"

namespace inductorfs::supervisor {
namespace {

constexpr size_t kLineLimit = 512;
const char* destination = nullptr;

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

}  // namespace

void log_to(const char* path) { destination = path; }

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
  // Not made when it is missing: its owner and mode are the worker's business.
  const Fd file(destination == nullptr ? -1 : ::open(destination, O_WRONLY | O_APPEND | O_CLOEXEC));
  if (destination != nullptr && !file) return;
  (void)!::write(file ? file.get() : STDERR_FILENO, line.data(), used);  // nobody else could be told
}

}  // namespace inductorfs::supervisor
