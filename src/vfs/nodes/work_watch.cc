// SPDX-License-Identifier: Apache-2.0
#include "vfs/nodes/work_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/process_start.h"

namespace inductorfs::vfs {
namespace {

constexpr uint64_t kFileLimit = uint64_t{64} * 1024;
/// Of a process with its descendants; whoever has more works.
constexpr size_t kMostThreadsOfOne = 4096;
/// Threads that look now and then whether there is anything to do use less in a second.
constexpr uint64_t kTicksOfNothing = 2;
/// What one look says of the time before it: in a longer one the whole host may have stood still.
constexpr Milliseconds kMostOfOneLook{2'000};

struct Work {
  uint64_t ticks = 0;
  bool goes_on = false;
  size_t threads = 0;
};

void add_numbers(std::string_view text, std::vector<pid_t>& to) {
  const char* at = text.data();
  const char* const end = at + text.size();
  for (pid_t number = 0; at < end;) {
    const auto [next, error] = std::from_chars(at, end, number);
    if (error == std::errc()) to.push_back(number);
    at = next + 1;
  }
}

/// Adds what this process does, and its children to those that are to be looked at.
void add_work(pid_t process, Work& work, std::vector<pid_t>& more) {
  const std::string directory = "/proc/" + std::to_string(process);
  const auto stat = read_file(AT_FDCWD, directory + "/stat", kFileLimit);
  if (!stat) return;  // it has ended
  work.ticks += ticks_in_stat(*stat).value_or(0);
  std::error_code failed;
  for (std::filesystem::directory_iterator at(directory + "/task", failed), end; !failed && at != end && !work.goes_on;
       at.increment(failed)) {
    const auto thread = read_file(AT_FDCWD, at->path().string() + "/stat", kFileLimit);
    if (!thread) continue;
    // The kernel has this file if it was built with CONFIG_PROC_CHILDREN; a descendant that is not seen may work.
    const auto children = read_file(AT_FDCWD, at->path().string() + "/children", kFileLimit);
    work.goes_on = waits_for_disk_in_stat(*thread) || !children || ++work.threads > kMostThreadsOfOne;
    if (children) add_numbers(*children, more);
  }
}

Work work_of(pid_t process) {
  Work work;
  std::vector<pid_t> left{process};
  while (!left.empty() && !work.goes_on) {
    const pid_t next = left.back();
    left.pop_back();
    add_work(next, work, left);
  }
  if (work.threads == 0) work.goes_on = true;  // nothing was seen
  return work;
}

}  // namespace

std::set<SetOwner> WorkWatch::waiting_of(const std::vector<SetOwner>& processes) {
  const SteadyTime now = std::chrono::steady_clock::now();
  std::map<SetOwner, Seen> seen;
  std::set<SetOwner> waiting;
  for (const SetOwner& process : processes) {
    const auto before = seen_.find(process);
    const Work work = work_of(process.process);
    const uint64_t ticks = before == seen_.end() ? work.ticks : before->second.ticks;
    const uint64_t grown =
        work.ticks > ticks ? work.ticks - ticks : ticks - work.ticks;  // an ended child takes its own
    const auto since =
        std::chrono::duration_cast<Milliseconds>(now - (before == seen_.end() ? now : before->second.looked));
    const auto seconds = std::max<uint64_t>(static_cast<uint64_t>(since.count()) / 1000, 1);
    const bool works = before == seen_.end() || work.goes_on || grown > kTicksOfNothing * seconds;
    const Milliseconds waited = works ? Milliseconds(0) : before->second.waited + std::min(since, kMostOfOneLook);
    seen[process] = {work.ticks, now, waited};
    if (waited >= patience_) waiting.insert(process);
  }
  seen_ = std::move(seen);
  return waiting;
}

}  // namespace inductorfs::vfs
