// SPDX-License-Identifier: Apache-2.0
#include "remains.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/number.h"
#include "inductorfs/supervisor/protocol.h"

namespace inductorfs::supervisor {
namespace {

using Text = std::array<char, 1024>;

// Fields of /proc/PID/stat, counted from the state as 0 (proc_pid_stat(5) counts from 1 with the pid).
constexpr int kFlags = 9 - 3;
constexpr int kExitCode = 52 - 3;
/// Linux, include/linux/sched.h: PF_EXITING, PF_POSTCOREDUMP and PF_DUMPCORE. A core waits for all threads.
constexpr uint32_t kEnding = 0x4 | 0x8 | 0x200;
/// In what getdents64(2) gives. readdir(3) takes memory, of which there may be none.
constexpr size_t kSizeInEntry = 16;
constexpr size_t kNameInEntry = 19;

/// What is known of one thread. Immutable value.
struct Thread {
  std::string_view name;
  std::string_view fields;  ///< from the state on
  [[nodiscard]] char state() const { return fields.empty() ? '?' : fields.front(); }
};

std::optional<Thread> read_thread(const char* path, Text& text) {
  const Fd file(::open(path, O_RDONLY | O_CLOEXEC));
  const ssize_t got = file ? ::read(file.get(), text.data(), text.size()) : -1;
  if (got <= 0) return std::nullopt;
  const std::string_view line(text.data(), static_cast<size_t>(got));
  const size_t open = line.find('(');
  const size_t close = line.rfind(") ");  // the name may hold anything
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return std::nullopt;
  return Thread{line.substr(open + 1, close - open - 1), line.substr(close + 2)};
}

/// The field of this number, counted from the state as 0; 0 when it is no number.
template <typename Number>
Number field(std::string_view rest, int number) {
  for (; number > 0; --number) rest.remove_prefix(std::min(rest.find(' '), rest.size() - 1) + 1);
  return leading_number<Number>(rest);
}

enum class Part { kGoesOn, kEnded, kLoose };

Part part_of(const Thread& thread) {
  const bool ended = thread.state() == 'Z' || thread.state() == 'X';
  if (ended || (field<uint32_t>(thread.fields, kFlags) & kEnding) != 0) return Part::kEnded;
  return thread.state() == 'D' && thread.name == kLooseThread ? Part::kLoose : Part::kGoesOn;
}

/// Whether loose threads are all that has not ended.
bool only_loose_are_left(pid_t child) {
  std::array<char, 64> path{};
  (void)std::snprintf(path.data(), path.size(), "/proc/%d/task", child);
  const Fd directory(::open(path.data(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return false;
  bool loose = false;
  std::array<char, 4096> entries{};
  while (true) {
    const auto got = ::syscall(SYS_getdents64, directory.get(), entries.data(), entries.size());
    if (got <= 0) return got == 0 && loose;
    for (long at = 0; at < got;) {
      const char* const entry = entries.data() + at;
      uint16_t size = 0;
      std::memcpy(&size, entry + kSizeInEntry, sizeof size);
      at += size;
      if (entry[kNameInEntry] == '.') continue;
      (void)std::snprintf(path.data(), path.size(), "/proc/%d/task/%.20s/stat", child, entry + kNameInEntry);
      Text text;
      const std::optional<Thread> thread = read_thread(path.data(), text);
      const Part part = thread ? part_of(*thread) : Part::kEnded;
      if (part == Part::kGoesOn) return false;
      loose = loose || part == Part::kLoose;
    }
  }
}

}  // namespace

std::optional<int> status_of_remains(pid_t child) {
  std::array<char, 32> path{};
  (void)std::snprintf(path.data(), path.size(), "/proc/%d/stat", child);
  Text text;
  const std::optional<Thread> leader = read_thread(path.data(), text);
  if (!leader || part_of(*leader) != Part::kEnded || !only_loose_are_left(child)) return std::nullopt;
  return field<int>(leader->fields, kExitCode);
}

void Remains::add(pid_t child) {
  const auto free = std::find(children_.begin(), children_.end(), 0);
  if (free != children_.end()) *free = child;
}

void Remains::reap() {
  for (pid_t& child : children_) {
    if (child != 0 && ::waitpid(child, nullptr, WNOHANG) != 0) child = 0;
  }
}

}  // namespace inductorfs::supervisor
