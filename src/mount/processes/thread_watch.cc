// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/thread_watch.h"

#include <fcntl.h>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/process_start.h"

namespace inductorfs::mount {
namespace {

constexpr uint64_t kProcLimit = 16384;

}  // namespace

ThreadSigns signs_of(pid_t thread) {
  const std::string directory = "/proc/self/task/" + std::to_string(thread);
  ThreadSigns signs;
  if (const Result<std::string> stat = read_file(AT_FDCWD, directory + "/stat", kProcLimit)) {
    signs.waits_in_kernel = waits_for_disk_in_stat(*stat);
    signs.ticks = own_ticks_in_stat(*stat).value_or(0);
  }
  if (const Result<std::string> status = read_file(AT_FDCWD, directory + "/status", kProcLimit)) {
    for (const char* const kind : {"voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"}) {
      signs.switches += number_in_status(*status, kind).value_or(0);
    }
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
