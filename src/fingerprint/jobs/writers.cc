// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/fingerprint/writers.h"

#include <array>
#include <bit>
#include <map>
#include <utility>
#include <vector>

#include "fingerprint/jobs/jobs.h"
#include "fingerprint/jobs/sight.h"
#include "fingerprint/processes/look.h"
#include "fingerprint/processes/writers_judge.h"
#include "inductorfs/base/clock.h"

namespace inductorfs::fingerprint {
namespace {

/// A look takes 0.3 ms, 20 ms on a busy machine. A request of the kernel waits no longer than for the cluster.
constexpr Milliseconds kLookWait{250};

/// Safe for concurrent use.
class ProcWriters final : public Writers {
 public:
  ProcWriters(const WritersOptions& options, Counters& counters, Milliseconds wait)
      : deadline_(options.package_deadline),
        is_ours_(options.is_ours),
        sight_(std::make_shared<Sight>(options, wait)),
        jobs_(sight_, options),
        identified_(counters.get("writers.identified")),
        scanned_(counters.get("writers.scanned")),
        unseen_(counters.get("writers.unseen")),
        late_(counters.get("writers.late_looks")),
        start_only_(counters.get("writers.start_environment")),
        remembered_(counters.get("writers.processes")),
        reads_(counters.get("writers.package_reads")) {}

  std::shared_ptr<const Writer> identify(pid_t tid) override;
  Judgement glance(const Writer* writer, std::span<const Facet> facets, const ExpectedFacts& expected) override;
  Judgement judge(const Writer* writer, std::span<const Facet> facets, const ExpectedFacts& expected) override;
  JobFacts job_of(pid_t tid, const JobQuestion& question) override;
  std::map<std::string, std::string> job_variables(pid_t tid) override;
  std::optional<bool> runs_torch(pid_t tid) override;
  uint64_t program_of(pid_t tid) const override;
  void expect(pid_t tid) override;
  std::vector<UnknownJobs> unknown_jobs() const override { return jobs_.unknown(); }
  JobEnvironments::InUse environments_in_use() const override { return jobs_.in_use(); }

 private:
  struct Asker {
    pid_t pid = 0;
    ProcessStat stat;
    bool operator==(const Asker&) const = default;
  };
  /// Returns the process that a thread belongs to.
  [[nodiscard]] std::optional<Asker> asker_of(pid_t tid) const;
  /// Whether the look was at a program that the process ran before.
  [[nodiscard]] static bool is_another_program(const Process& seen, const Asker& asker) {
    return seen.pid == asker.pid && !asker.stat.identity.may_be(seen.identity);
  }
  /// Returns the process with those that started it.
  [[nodiscard]] std::vector<Asker> line_of(const Asker& asker) const;
  [[nodiscard]] std::shared_ptr<const Writer> identify(const std::optional<Asker>& asker);
  [[nodiscard]] std::optional<Look::Found> see(pid_t pid, const ProcessStat& stat, std::shared_ptr<Look>& look);
  [[nodiscard]] Judgement judge_with(const Writer* writer, std::span<const Facet> facets, const ExpectedFacts& expected,
                                     const FactOf& fact_of) const;
  /// The background counts for itself: it may outlive the counters.
  void count();

  const Milliseconds deadline_;
  const std::function<bool(pid_t process)> is_ours_;
  const std::shared_ptr<Sight> sight_;
  Jobs jobs_;
  /// Requests in job_of() that have no answer yet, of each user.
  Guarded<std::map<uid_t, size_t>> waiting_;
  /// A process whose request does not wait is told kLater, which costs it a miss; one that makes something has to be
  /// told kUnknown, which is for good. Therefore half of the places are kept for the latter.
  static constexpr size_t kWaitingOfOne = 32;
  static constexpr size_t kLookingOfOne = kWaitingOfOne / 2;
  /// Programs without torch and Triton (cp, find, rsync) by their number, with those that started them, as they were
  /// when none of these had a package.
  static constexpr size_t kOthers = 1024;
  Guarded<std::array<std::vector<Asker>, kOthers>> others_;
  Counter& identified_;
  Counter& scanned_;
  Counter& unseen_;
  Counter& late_;
  Counter& start_only_;
  Counter& remembered_;
  Counter& reads_;
};

void ProcWriters::count() {
  scanned_.set(sight_->scanned());
  start_only_.set(sight_->start_only());
  remembered_.set(sight_->remembered());
  reads_.set(sight_->packages().reads());
}

std::optional<Look::Found> ProcWriters::see(pid_t pid, const ProcessStat& stat, std::shared_ptr<Look>& look) {
  if (auto known = sight_->recall(pid, stat)) return known;
  look = sight_->look_at(pid, stat);
  if (!look) return nullptr;
  return sight_->result_of(*look, stat.owner);
}

std::optional<ProcWriters::Asker> ProcWriters::asker_of(pid_t tid) const {
  // The kernel gives 0 for a process that has no id in this pid namespace (fs/fuse/dev.c, fuse_get_req).
  const ProcReader& reader = sight_->reader();
  auto stat = tid <= 0 ? std::nullopt : reader.stat_of(tid);
  const pid_t pid = stat ? sight_->process_of(tid, stat->identity) : 0;
  if (pid > 0 && pid != tid) stat = reader.stat_of(pid);
  if (pid > 0 && stat) sight_->recognise(pid, *stat);
  return pid > 0 && stat ? std::optional<Asker>({pid, *stat}) : std::nullopt;
}

std::shared_ptr<const Writer> ProcWriters::identify(pid_t tid) { return identify(asker_of(tid)); }

std::shared_ptr<const Writer> ProcWriters::identify(const std::optional<Asker>& asker) {
  identified_.add();
  std::shared_ptr<Look> look;
  const auto found = asker ? see(asker->pid, asker->stat, look) : std::optional<Look::Found>(nullptr);
  count();
  if (!found) {
    late_.add();
    return std::make_shared<const Writer>(std::move(look));
  }
  if (!*found) unseen_.add();
  return *found;
}

std::vector<ProcWriters::Asker> ProcWriters::line_of(const Asker& asker) const {
  std::vector<Asker> line{asker};
  while (line.size() < kAncestorLimit && line.back().stat.parent > 0) {
    const auto stat = sight_->stat_of(line.back().stat.parent);
    if (!stat) break;
    line.push_back({line.back().stat.parent, *stat});
  }
  return line;
}

uint64_t ProcWriters::program_of(pid_t tid) const {
  const auto asker = asker_of(tid);
  if (!asker || !asker->stat.identity.shows_program()) return 0;
  const ProcessIdentity& identity = asker->stat.identity;
  return identity.start ^ identity.stack ^ std::rotl(identity.code, 1);
}

JobFacts ProcWriters::job_of(pid_t tid, const JobQuestion& question) {
  auto asker = asker_of(tid);
  if (!asker) {
    return {JobFacts::Kind::kUnknown, {}, "it cannot be looked at: it is of another pid namespace, or has ended"};
  }
  if (auto known = jobs_.recall(asker->pid, asker->stat)) return std::move(*known);
  const size_t place = static_cast<size_t>(asker->pid) % kOthers;
  auto line = line_of(*asker);
  if (others_.with([&](const auto& all) { return all[place] == line; })) return {JobFacts::Kind::kNeither, {}, {}};
  if (is_ours_ && is_ours_(asker->pid)) return {JobFacts::Kind::kNeither, {}, {}};
  // Each request that waits keeps a thread that answers the kernel, and other users need some, too.
  const uid_t user = asker->stat.owner;
  const size_t limit = question.makes ? kWaitingOfOne : kLookingOfOne;
  const bool waits = waiting_.with([&](auto& waiting) { return ++waiting[user] <= limit; });
  auto writer = identify(asker);
  if (writer && writer->look()) {
    const std::string key = "user " + std::to_string(user);
    const JobWait wait{waits ? jobs_.deadline_of(key, question) : system_clock().now(), question};
    const auto found = wait.in_steps([&writer](SteadyTime step) { return writer->look()->wait(step); });
    if (found) {
      writer = *found;
      jobs_.has_come(key);
    }
  }
  if (const auto now = asker_of(tid); now && now->pid == asker->pid) asker->stat = now->stat;
  sight_->find_out(asker->pid, asker->stat);
  const auto look_again = [&](bool anew) {
    const auto look = sight_->look_at(asker->pid, asker->stat, anew);
    const auto found = look ? look->wait(system_clock().now() + kLookWait) : std::nullopt;
    writer = found ? *found : (look ? std::make_shared<const Writer>(look) : nullptr);
  };
  if (writer && !writer->look() && is_another_program(writer->process(), *asker)) look_again(false);
  // It may have loaded torch since it was looked at.
  if (writer && !writer->look() && !writer->process().has_package()) look_again(true);
  JobFacts job = jobs_.learn(asker->pid, asker->stat, writer, question, waits);
  if (job.kind == JobFacts::Kind::kNeither && writer && writer->process().shows_exec) {
    for (Asker& one : line) sight_->recognise(one.pid, one.stat);
    others_.with([&](auto& all) { all[place] = std::move(line); });
  }
  waiting_.with([&](auto& waiting) {
    if (--waiting[user] == 0) waiting.erase(user);
  });
  count();
  return job;
}

std::map<std::string, std::string> ProcWriters::job_variables(pid_t tid) {
  const auto asker = asker_of(tid);
  const auto writer = asker ? sight_->last_seen(asker->pid, asker->stat.identity) : nullptr;
  std::map<std::string, std::string> variables;
  if (!writer) return variables;
  for (const auto& [name, value] : writer->environment().values) {
    if (names_job(name)) variables.emplace(name, value);
  }
  return variables;
}

std::optional<bool> ProcWriters::runs_torch(pid_t tid) {
  const auto asker = asker_of(tid);
  if (!asker) return std::nullopt;
  const auto job = jobs_.recall(asker->pid, asker->stat);
  if (job && job->kind == JobFacts::Kind::kKnown) return true;
  const auto line = line_of(*asker);
  const size_t place = static_cast<size_t>(asker->pid) % kOthers;
  if (others_.with([&](const auto& all) { return all[place] == line; })) return false;
  const auto writer = sight_->last_seen(asker->pid, asker->stat.identity);
  return writer && writer->process().has_package() ? std::optional(true) : std::nullopt;
}

void ProcWriters::expect(pid_t tid) {
  const auto asker = asker_of(tid);
  if (!asker || jobs_.recall(asker->pid, asker->stat)) return;
  const auto writer = identify(asker);
  if (writer && !writer->look() && writer->process().has_package()) sight_->packages().begin(writer->process());
  count();
}

Judgement ProcWriters::judge_with(const Writer* writer, std::span<const Facet> facets, const ExpectedFacts& expected,
                                  const FactOf& fact_of) const {
  if (writer == nullptr || !writer->look()) return judge_writer(writer, facets, expected, fact_of);
  if (const auto found = writer->look()->found()) return judge_writer(found->get(), facets, expected, fact_of);
  if (system_clock().now() - writer->look()->begun() < deadline_) {
    return {Match::kLater, "the writer has to be looked at first"};
  }
  return {Match::kUnknown, "the writer could not be looked at within " + std::to_string(deadline_.count()) +
                               " ms: its memory map is locked, or its file system does not answer"};
}

Judgement ProcWriters::glance(const Writer* writer, std::span<const Facet> facets, const ExpectedFacts& expected) {
  return judge_with(writer, facets, expected,
                    [this](Facet facet, const Process& process) { return sight_->packages().known(facet, process); });
}

Judgement ProcWriters::judge(const Writer* writer, std::span<const Facet> facets, const ExpectedFacts& expected) {
  Judgement judgement = judge_with(writer, facets, expected, [this](Facet facet, const Process& process) {
    return sight_->packages().ask(facet, process);
  });
  count();
  return judgement;
}

}  // namespace

std::unique_ptr<Writers> open_writers_that_wait(const WritersOptions& options, Counters& counters, Milliseconds wait) {
  return std::make_unique<ProcWriters>(options, counters, wait);
}

std::unique_ptr<Writers> open_writers(const WritersOptions& options, Counters& counters) {
  return open_writers_that_wait(options, counters, kLookWait);
}

}  // namespace inductorfs::fingerprint
