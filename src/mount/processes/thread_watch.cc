// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/thread_watch.h"

#include <fcntl.h>

#include <algorithm>
#include <string_view>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/number.h"

namespace inductorfs::mount {
namespace {

constexpr uint64_t kProcLimit = 16384;
// Fields of /proc/PID/stat behind the name, counted from the state as 0 (proc_pid_stat(5): 14 and 15).
constexpr int kUserTicks = 11;
constexpr int kSystemTicks = 12;

uint64_t number_at(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  return leading_number<uint64_t>(text);
}

uint64_t field(std::string_view text, int index) {
  for (; index > 0; --index) text.remove_prefix(std::min(text.find(' ', 1), text.size()));
  return number_at(text);
}

uint64_t labelled(std::string_view text, std::string_view label) {
  const size_t at = text.find(label);
  return at == std::string_view::npos ? 0 : number_at(text.substr(at + label.size()));
}

}  // namespace

ThreadSigns signs_of(pid_t thread) {
  const std::string directory = "/proc/self/task/" + std::to_string(thread);
  ThreadSigns signs;
  if (const Result<std::string> stat = read_file(AT_FDCWD, directory + "/stat", kProcLimit)) {
    const size_t name_end = stat->rfind(") ");  // the name may hold anything
    if (name_end != std::string::npos) {
      const std::string_view fields = std::string_view(*stat).substr(name_end + 1);
      signs.waits_in_kernel = fields.starts_with(" D");
      signs.ticks = field(fields, kUserTicks) + field(fields, kSystemTicks);
    }
  }
  if (const Result<std::string> status = read_file(AT_FDCWD, directory + "/status", kProcLimit)) {
    signs.switches =
        labelled(*status, "\nvoluntary_ctxt_switches:") + labelled(*status, "\nnonvoluntary_ctxt_switches:");
  }
  return signs;
}

std::string StuckThread::to_string() const {
  return "the thread " + work.name + " has made no progress for " + std::to_string(span.count()) + " s: it " +
         work.what + (waits_for_disk ? ", and waits for the disk" : "");
}

std::vector<StuckThread> ThreadWatch::look(SteadyTime now, const std::vector<AtWork>& at_work) {
  std::vector<StuckThread> stuck;
  if (patience_.count() == 0) return stuck;
  std::map<uint64_t, Seen> seen;
  for (const AtWork& work : at_work) {
    const auto known = seen_.find(work.number);
    if (known == seen_.end()) {
      seen[work.number] = {{}, now};  // most work is done before the next look
      continue;
    }
    Seen& one = seen[work.number] = known->second;
    const ThreadSigns signs = signs_of(work.thread);
    if (!signs.same_work(one.signs)) one.progress = now;
    one.signs = signs;
    const bool is_stuck = now - one.progress >= patience_;
    const auto span = std::chrono::duration_cast<std::chrono::seconds>(now - one.progress);
    if (is_stuck) stuck.push_back({work, span, signs.waits_in_kernel});
    if (is_stuck && !one.told) log::error("mount.thread_stuck", {{"what", stuck.back().to_string()}});
    if (!is_stuck && one.told) log::info("mount.thread_goes_on", {{"thread", work.name}, {"what", work.what}});
    one.told = is_stuck;
  }
  seen_ = std::move(seen);
  return stuck;
}

}  // namespace inductorfs::mount
