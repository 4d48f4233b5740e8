// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/jobs/sight.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace inductorfs::fingerprint {
namespace {

/// Threads remembered for each process: a job has as many as it has CPUs, and those of its pools.
constexpr size_t kThreadsPerProcess = 16;
/// What an examiner needs to give a child up, and to say so.
constexpr Milliseconds kToSaySo{5000};

/// Of too many it forgets an eighth, those that were not used for longest: to look for one at each call would take
/// longer than what is remembered saves.
template <typename Value>
void keep(std::map<pid_t, Value>& values, pid_t key, Value value, size_t limit) {
  if (values.size() >= limit && !values.contains(key)) {
    std::vector<uint64_t> used;
    used.reserve(values.size());
    for (const auto& [number, one] : values) used.push_back(one.used);
    const auto last = used.begin() + static_cast<ptrdiff_t>(used.size() / 8);
    std::nth_element(used.begin(), last, used.end());
    std::erase_if(values, [oldest = *last](const auto& one) { return one.second.used <= oldest; });
  }
  values[key] = std::move(value);
}

/// An eighth of what this process may have open.
size_t most_descriptors() {
  constexpr rlim_t kShare = 8;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  return std::max<size_t>(limit.rlim_cur / kShare, 1);
}

/// As long as it maps no more.
bool has_nothing(const Process& process) { return !process.has_package() && process.whole; }

}  // namespace

Sight::Sight(const WritersOptions& options, Milliseconds wait)
    : options_(options),
      wait_(wait),
      reader_(options.proc),
      looker_(make_far_looker(options.examiner, options.package_deadline + kToSaySo)),
      kept_(std::min(options.process_limit, most_descriptors())),
      packages_(options.package_deadline, looker_) {}

void Sight::recognise(pid_t pid, ProcessStat& stat) {
  if (stat.identity.shows_program()) return;
  const auto process = seen_of(pid).process;
  if (!process || !process->memory || !stat.identity.may_be(process->identity)) return;
  if (process->owner != stat.owner || process->is_forked != stat.is_forked) return;
  if (is_in_use(*process->memory)) stat.identity = process->identity;
}

void Sight::find_out(pid_t pid, ProcessStat& stat) {
  recognise(pid, stat);
  const auto now = stat.identity.shows_program() ? std::nullopt : looker_->identity_of(pid);
  if (now && stat.identity.may_be(*now)) stat.identity = *now;
}

std::optional<ProcessStat> Sight::stat_of(pid_t pid) {
  auto stat = reader_.stat_of(pid);
  if (stat) recognise(pid, *stat);
  return stat;
}

pid_t Sight::process_of(pid_t tid, const ProcessIdentity& identity) {
  const pid_t known = state_.with([&](State& state) {
    const auto found = state.threads.find(tid);
    if (found == state.threads.end() || found->second.start != identity.start) return pid_t{0};
    found->second.used = ++state.ticks;
    return found->second.pid;
  });
  if (known != 0) return known;
  const auto pid = reader_.process_of(tid);
  if (!pid) return 0;
  state_.with([&](State& state) {
    keep(state.threads, tid, Thread{identity.start, *pid, ++state.ticks}, options_.process_limit * kThreadsPerProcess);
  });
  return *pid;
}

size_t Sight::remembered() const {
  return state_.with([](const State& state) { return state.processes.size(); });
}

Sight::Seen Sight::seen_of(pid_t pid) {
  return state_.with([pid](State& state) {
    const auto found = state.processes.find(pid);
    if (found == state.processes.end()) return Seen{};
    found->second.used = ++state.ticks;
    return found->second;
  });
}

std::shared_ptr<const Writer> Sight::last_seen(pid_t pid, const ProcessIdentity& identity) {
  const Seen seen = seen_of(pid);
  return seen.writer && seen.process->identity == identity ? seen.writer : nullptr;
}

bool Sight::is_fresh(const Seen& seen, const ProcessIdentity& identity) const {
  if (!seen.writer || !seen.process->shows_exec || !(seen.process->identity == identity)) return false;
  const SteadyTime now = system_clock().now();
  if (now - seen.environment_at >= options_.environment_age) return false;
  // A process that has no torch yet may load it: an interpreter makes the cache's directories before.
  return !seen.process->torch.path.empty() || now - seen.maps_at < options_.environment_age;
}

std::optional<Look::Found> Sight::recall(pid_t pid, const ProcessStat& stat) {
  Look::Found first;
  std::optional<ProcessStat> at = stat;
  for (int depth = 0; pid > 0 && at && depth < kAncestorLimit; ++depth) {
    const Seen seen = seen_of(pid);
    if (!is_fresh(seen, at->identity)) return std::nullopt;
    if (seen.process->has_package()) return seen.writer;
    if (!first) first = seen.writer;
    pid = at->parent;
    at = stat_of(pid);
  }
  return first;
}

std::shared_ptr<Look> Sight::look_at(pid_t pid, const ProcessStat& stat, bool anew) {
  auto look = std::make_shared<Look>();
  const auto under_way = state_.with([&](State& state) -> std::shared_ptr<Look> {
    const auto found = state.looks.find(pid);
    if (found != state.looks.end() && found->second.identity == stat.identity) return found->second.look;
    state.looks[pid] = {stat.identity, stat.owner, look};
    return nullptr;
  });
  if (under_way) return under_way;
  const auto forget = [pid, look](Sight& sight) {
    sight.state_.with([&](State& state) {
      const auto found = state.looks.find(pid);
      if (found != state.looks.end() && found->second.look == look) state.looks.erase(found);
    });
  };
  const bool taken = lookers_.run(stat.owner, [sight = shared_from_this(), forget, look, pid, stat, anew] {
    bool is_late = false;
    auto result = sight->look_through(pid, stat, anew, is_late);
    forget(*sight);
    if (result || !is_late) look->finish(std::move(result));  // else it stays open, and is late for whoever waits
  });
  if (!taken) forget(*this);
  return taken ? look : nullptr;
}

std::optional<Look::Found> Sight::result_of(Look& look, uid_t owner) {
  const SteadyTime late = system_clock().now() - wait_;
  const bool waits = state_.with([&](const State& state) {
    return std::none_of(state.looks.begin(), state.looks.end(),
                        [&](const auto& one) { return one.second.owner == owner && one.second.look->begun() < late; });
  });
  return waits ? look.wait(look.begun() + wait_) : look.found();
}

Look::Found Sight::look_through(pid_t pid, ProcessStat stat, bool anew, bool& is_late) {
  Look::Found first;
  for (int depth = 0; depth < kAncestorLimit; ++depth) {
    auto writer = look_once(pid, stat, anew, is_late);
    if (is_late) return nullptr;  // an ancestor may be the one
    if (!writer) break;
    if (writer->process().has_package()) return writer;
    if (!first) first = std::move(writer);
    pid = stat.parent;
    const auto next = pid > 0 ? stat_of(pid) : std::nullopt;
    if (!next) break;
    stat = *next;
  }
  return first;
}

std::shared_ptr<const Writer> Sight::look_once(pid_t pid, const ProcessStat& stat, bool anew, bool& is_late) {
  Seen seen = refreshed(seen_of(pid), pid, stat, anew, is_late);
  bool is_it = stat.identity.may_be(seen.identity);
  if (!is_it && !is_late) {
    // Who may look sees none of this program: memory that it had can be in use by another process (clone(2), CLONE_VM).
    state_.with([pid](State& state) { state.processes.erase(pid); });
    const auto now = stat_of(pid);
    if (now) seen = refreshed({}, pid, *now, anew, is_late);
    is_it = now && now->identity.may_be(seen.identity);
  }
  if (!is_it) return nullptr;
  std::shared_ptr<const Writer> writer = seen.writer;
  state_.with([&](State& state) {
    seen.used = ++state.ticks;
    keep(state.processes, pid, std::move(seen), kept_);
  });
  return writer;
}

/// While this thread's caller keeps a request of the process waiting, the process has not ended, and its files can be
/// reached.
void Sight::read_while_it_lives(const Process& process) {
  if (!process.root.empty()) packages_.begin(process);  // who judges asks for the answer
}

std::shared_ptr<const Writer> Sight::with_environment(const std::shared_ptr<const Process>& process, bool& is_late) {
  if (!process->has_package()) return std::make_shared<const Writer>(process, LiveEnvironment());
  Looked<Variables> looked = looker_->variables_of(*process);
  is_late = is_late || looked.is_late;
  if (!looked.found) return nullptr;
  LiveEnvironment& live = looked.found->environment;
  if (!live.live) ++start_only_;
  Process with_files = *process;
  with_files.files = std::move(looked.found->files);
  with_files.named = std::move(looked.found->named);
  with_files.compiler = compiler_call(live.values);
  if (!with_files.files.empty()) read_while_it_lives(with_files);
  return std::make_shared<const Writer>(std::make_shared<const Process>(std::move(with_files)), std::move(live));
}

bool Sight::needs_look(const Seen& seen, const ProcessStat& stat, bool anew) const {
  if (!(seen.identity == stat.identity)) return true;
  const bool maps_other = seen.size != stat.size;
  const bool aged = system_clock().now() - seen.maps_at >= options_.environment_age;
  if (!seen.process) return maps_other || aged;  // it may let itself be examined without mapping more
  if (!seen.process->shows_exec) return true;
  if (!seen.process->torch.path.empty()) return false;
  // A look costs a process of its own, and those that have started a program hardly ever map any more.
  return has_nothing(*seen.process) ? maps_other : anew || aged;
}

Sight::Seen Sight::looked_at(pid_t pid, const ProcessStat& stat, bool& is_late) {
  Seen seen{stat.identity, nullptr, nullptr, {}, system_clock().now(), stat.size};
  ++scanned_;
  Looked<Process> looked = looker_->look_at(pid, stat.identity);
  is_late = is_late || looked.is_late;
  if (looked.is_late) return {};
  if (!looked.found) return seen;
  read_while_it_lives(*looked.found);
  seen.identity = looked.found->identity;
  if (stat.identity.shows_program()) looked.found->memory.reset();  // it is seen without
  seen.process = std::make_shared<const Process>(std::move(*looked.found));
  return seen;
}

Sight::Seen Sight::refreshed(Seen seen, pid_t pid, const ProcessStat& stat, bool anew, bool& is_late) {
  const SteadyTime now = system_clock().now();
  if (needs_look(seen, stat, anew)) {
    seen = looked_at(pid, stat, is_late);
  } else if (seen.process && has_nothing(*seen.process)) {
    seen.maps_at = now;
  }
  if (!seen.process) return seen;
  if (anew || !seen.writer || now - seen.environment_at >= options_.environment_age) {
    seen.writer = with_environment(seen.process, is_late);
    if (!seen.writer) return {};
    seen.environment_at = now;
  }
  return seen;
}

}  // namespace inductorfs::fingerprint
