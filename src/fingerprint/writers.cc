// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/fingerprint/writers.h"

#include <utility>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "look.h"
#include "sight.h"
#include "writers_judge.h"

namespace inductorfs::fingerprint {
namespace {

/// A look takes 0.3 ms, 20 ms on a busy machine. A request of the kernel waits no longer than for the cluster.
constexpr Milliseconds kLookWait{250};

/// Safe for concurrent use.
class ProcWriters final : public Writers {
 public:
  ProcWriters(const WritersOptions& options, const Fingerprint& facts, Counters& counters, Milliseconds wait)
      : deadline_(options.package_deadline),
        sight_(std::make_shared<Sight>(options, wait)),
        facts_(std::make_shared<const MountFacts>(facts)),
        identified_(counters.get("writers.identified")),
        scanned_(counters.get("writers.scanned")),
        unseen_(counters.get("writers.unseen")),
        late_(counters.get("writers.late_looks")),
        start_only_(counters.get("writers.start_environment")),
        remembered_(counters.get("writers.processes")),
        reads_(counters.get("writers.package_reads")) {}

  std::shared_ptr<const Writer> identify(pid_t tid) override;
  Judgement glance(const Writer* writer, std::span<const Facet> facets) override;
  Judgement judge(const Writer* writer, std::span<const Facet> facets) override;
  void set_facts(const Fingerprint& facts) override {
    auto next = std::make_shared<const MountFacts>(facts);
    facts_.write([&next](auto& mine) { mine = std::move(next); });
  }

 private:
  [[nodiscard]] std::optional<Look::Found> see(pid_t pid, const ProcessStat& stat, std::shared_ptr<Look>& look);
  [[nodiscard]] Judgement judge_with(const Writer* writer, std::span<const Facet> facets, const FactOf& fact_of) const;
  /// The background counts for itself: it may outlive the counters.
  void count();

  const Milliseconds deadline_;
  const std::shared_ptr<Sight> sight_;
  SharedGuarded<std::shared_ptr<const MountFacts>> facts_;
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

std::shared_ptr<const Writer> ProcWriters::identify(pid_t tid) {
  identified_.add();
  // The kernel gives 0 for a process that has no id in this pid namespace (fs/fuse/dev.c, fuse_get_req).
  const ProcReader& reader = sight_->reader();
  auto stat = tid <= 0 ? std::nullopt : reader.stat_of(tid);
  const pid_t pid = stat ? sight_->process_of(tid, stat->identity) : 0;
  if (pid > 0 && pid != tid) stat = reader.stat_of(pid);
  std::shared_ptr<Look> look;
  const auto found = pid > 0 && stat ? see(pid, *stat, look) : std::optional<Look::Found>(nullptr);
  count();
  if (!found) {
    late_.add();
    return std::make_shared<const Writer>(std::move(look));
  }
  if (!*found) unseen_.add();
  return *found;
}

Judgement ProcWriters::judge_with(const Writer* writer, std::span<const Facet> facets, const FactOf& fact_of) const {
  const auto facts = facts_.read([](const auto& mine) { return mine; });
  if (writer == nullptr || !writer->look()) return judge_writer(writer, facets, *facts, fact_of);
  if (const auto found = writer->look()->found()) return judge_writer(found->get(), facets, *facts, fact_of);
  if (system_clock().now() - writer->look()->begun() < deadline_) {
    return {Match::kLater, "the writer has to be looked at first"};
  }
  return {Match::kUnknown, "the writer could not be looked at within " + std::to_string(deadline_.count()) +
                               " ms: its memory map is locked, or its file system does not answer"};
}

Judgement ProcWriters::glance(const Writer* writer, std::span<const Facet> facets) {
  return judge_with(writer, facets,
                    [this](Facet facet, const Process& process) { return sight_->packages().known(facet, process); });
}

Judgement ProcWriters::judge(const Writer* writer, std::span<const Facet> facets) {
  Judgement judgement = judge_with(
      writer, facets, [this](Facet facet, const Process& process) { return sight_->packages().ask(facet, process); });
  count();
  return judgement;
}

}  // namespace

std::unique_ptr<Writers> open_writers_that_wait(const WritersOptions& options, const Fingerprint& facts,
                                                Counters& counters, Milliseconds wait) {
  return std::make_unique<ProcWriters>(options, facts, counters, wait);
}

std::unique_ptr<Writers> open_writers(const WritersOptions& options, const Fingerprint& facts, Counters& counters) {
  return open_writers_that_wait(options, facts, counters, kLookWait);
}

}  // namespace inductorfs::fingerprint
