// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/fingerprint/writers.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "writers_judge.h"
#include "writers_packages.h"
#include "writers_process.h"

namespace inductorfs::fingerprint {
namespace {

/// From the linker to the job there are a driver, sometimes a shell and a wrapper such as ccache.
constexpr int kAncestorLimit = 16;
/// Threads remembered for each process: a job has as many as it has CPUs, and those of its pools.
constexpr size_t kThreadsPerProcess = 16;

/// A process as it was seen last. Immutable value.
struct Seen {
  std::shared_ptr<const Process> process;
  std::shared_ptr<const Writer> writer;
  SteadyTime environment_at;
  SteadyTime maps_at;
  uint64_t used = 0;
};
struct Thread {
  ProcessIdentity identity;
  pid_t pid = 0;
  uint64_t used = 0;
};
struct State {
  std::map<pid_t, Seen> processes;
  std::map<pid_t, Thread> threads;
  uint64_t ticks = 0;
};

template <typename Value>
void keep(std::map<pid_t, Value>& values, pid_t key, Value value, size_t limit) {
  if (values.size() >= limit && !values.contains(key)) {
    values.erase(std::min_element(values.begin(), values.end(), [](const auto& one, const auto& other) {
      return one.second.used < other.second.used;
    }));
  }
  values[key] = std::move(value);
}

/// Safe for concurrent use.
class ProcWriters final : public Writers {
 public:
  ProcWriters(const WritersOptions& options, const Fingerprint& facts, Counters& counters)
      : options_(options),
        reader_(options.proc),
        packages_({options.cache_file, options.package_reader, options.package_deadline}, counters),
        facts_(std::make_shared<const MountFacts>(facts)),
        identified_(counters.get("writers.identified")),
        scanned_(counters.get("writers.scanned")),
        unseen_(counters.get("writers.unseen")),
        start_only_(counters.get("writers.start_environment")),
        remembered_(counters.get("writers.processes")) {}

  std::shared_ptr<const Writer> identify(pid_t tid) override;
  Judgement glance(const Writer* writer, std::span<const Facet> facets) override;
  Judgement judge(const Writer* writer, std::span<const Facet> facets) override;
  void set_facts(const Fingerprint& facts) override {
    auto next = std::make_shared<const MountFacts>(facts);
    facts_.write([&next](auto& mine) { mine = std::move(next); });
  }

 private:
  /// The process of a thread; 0 when it cannot be told.
  [[nodiscard]] pid_t process_of(pid_t tid, const ProcessIdentity& identity);
  [[nodiscard]] std::shared_ptr<const Writer> look(pid_t pid, const ProcessStat& stat);
  [[nodiscard]] Seen refreshed(Seen seen, pid_t pid, const ProcessIdentity& identity);

  const WritersOptions options_;
  const ProcReader reader_;
  Packages packages_;
  SharedGuarded<std::shared_ptr<const MountFacts>> facts_;
  Guarded<State> state_;
  Counter& identified_;
  Counter& scanned_;
  Counter& unseen_;
  Counter& start_only_;
  Counter& remembered_;
};

pid_t ProcWriters::process_of(pid_t tid, const ProcessIdentity& identity) {
  const pid_t known = state_.with([&](State& state) {
    const auto found = state.threads.find(tid);
    if (found == state.threads.end() || !(found->second.identity == identity)) return pid_t{0};
    found->second.used = ++state.ticks;
    return found->second.pid;
  });
  if (known != 0) return known;
  const auto pid = reader_.process_of(tid);
  if (!pid) return 0;
  state_.with([&](State& state) {
    keep(state.threads, tid, Thread{identity, *pid, ++state.ticks}, options_.process_limit * kThreadsPerProcess);
  });
  return *pid;
}

Seen ProcWriters::refreshed(Seen seen, pid_t pid, const ProcessIdentity& identity) {
  const SteadyTime now = system_clock().now();
  const bool same = seen.process && seen.process->identity == identity;
  const bool complete = same && !seen.process->torch.path.empty();
  // A process that has no torch yet may load it: an interpreter makes the cache's directories before.
  if (!same || (!complete && now - seen.maps_at >= options_.environment_age)) {
    scanned_.add();
    auto process = reader_.look_at(pid, identity);
    if (!process) return {};
    seen = {std::make_shared<const Process>(std::move(*process)), nullptr, {}, now, 0};
  }
  if (!seen.writer || now - seen.environment_at >= options_.environment_age) {
    LiveEnvironment environment;
    if (seen.process->has_package()) {
      auto live = reader_.environment_of(*seen.process);
      if (!live) return {};
      environment = std::move(*live);
      if (!environment.live) start_only_.add();
    }
    seen.writer = std::make_shared<const Writer>(seen.process, std::move(environment));
    seen.environment_at = now;
  }
  return seen;
}

std::shared_ptr<const Writer> ProcWriters::look(pid_t pid, const ProcessStat& stat) {
  Seen seen = state_.with([pid](const State& state) {
    const auto found = state.processes.find(pid);
    return found == state.processes.end() ? Seen{} : found->second;
  });
  seen = refreshed(std::move(seen), pid, stat.identity);
  if (!seen.writer) return nullptr;
  std::shared_ptr<const Writer> writer = seen.writer;
  state_.with([&](State& state) {
    seen.used = ++state.ticks;
    keep(state.processes, pid, std::move(seen), options_.process_limit);
    remembered_.set(state.processes.size());
  });
  return writer;
}

std::shared_ptr<const Writer> ProcWriters::identify(pid_t tid) {
  identified_.add();
  // The kernel gives 0 for a process that has no id in this pid namespace (fs/fuse/dev.c, fuse_get_req).
  auto stat = tid <= 0 ? std::nullopt : reader_.stat_of(tid);
  pid_t pid = stat ? process_of(tid, stat->identity) : 0;
  if (pid > 0 && pid != tid) stat = reader_.stat_of(pid);
  std::shared_ptr<const Writer> first;
  for (int depth = 0; pid > 0 && stat && depth < kAncestorLimit; ++depth) {
    auto writer = look(pid, *stat);
    if (!writer) break;
    if (writer->process().has_package()) return writer;
    if (!first) first = std::move(writer);
    pid = stat->parent;
    stat = reader_.stat_of(pid);
  }
  if (!first) unseen_.add();
  return first;
}

Judgement ProcWriters::glance(const Writer* writer, std::span<const Facet> facets) {
  const auto facts = facts_.read([](const auto& mine) { return mine; });
  return judge_writer(writer, facets, *facts,
                      [this](Facet facet, const Process& process) { return packages_.known(facet, process); });
}

Judgement ProcWriters::judge(const Writer* writer, std::span<const Facet> facets) {
  const auto facts = facts_.read([](const auto& mine) { return mine; });
  return judge_writer(writer, facets, *facts,
                      [this](Facet facet, const Process& process) { return packages_.ask(facet, process); });
}

}  // namespace

std::unique_ptr<Writers> open_writers(const WritersOptions& options, const Fingerprint& facts, Counters& counters) {
  return std::make_unique<ProcWriters>(options, facts, counters);
}

}  // namespace inductorfs::fingerprint
