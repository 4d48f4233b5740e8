// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/compile_leases.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "inductorfs/base/log.h"
#include "inductorfs/base/thread.h"
#include "inductorfs/layout/layout.h"
#include "vfs/tree/branch_paths.h"
#include "vfs/tree/paths.h"

namespace inductorfs::vfs {
namespace {

/// How long a lease outlives the last heartbeat of its mount's worker: three are missed.
constexpr Milliseconds kLifetime{10'000};
/// How often leases are renewed and those of others are looked at.
constexpr Milliseconds kStep{1'000};
/// An artefact that has not reached the cluster by then, perhaps because it is private, is nothing to wait for.
constexpr std::chrono::minutes kOnItsWay{1};
/// A lease of another mount for which nobody waits here is remembered for as long.
constexpr Milliseconds kRemembered{2'000};
constexpr size_t kMostLeases = 4096;
constexpr size_t kMostQuestions = 1024;
constexpr size_t kMostWaiters = 1024;  ///< of one lease
constexpr size_t kOriginLength = 200;
constexpr std::string_view kGraphs = "fxgraph/";

/// Each worker has a name of its own: it knows no processes of the one before.
std::string holder_name(const std::string& origin) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return origin.substr(0, kOriginLength) + "/" + std::to_string(::getpid()) + "-" + std::to_string(now.count());
}

/// std::erase_if hands out constant values only.
template <typename Map, typename Stays>
void keep_those(Map& map, const Stays& stays) {
  for (auto at = map.begin(); at != map.end();) at = stays(at->first, at->second) ? std::next(at) : map.erase(at);
}

void call_all(const std::vector<std::function<void()>>& answers) {
  for (const auto& answer : answers) answer();
}

}  // namespace

CompileLeases::CompileLeases(const Services& services, RootTree& tree, RootScopes& scopes)
    : limit_(tree.options().compile_once),
      holder_(holder_name(tree.options().origin)),
      options_(tree.options()),
      catalog_(services.catalog),
      remote_(services.remote),
      tree_(tree),
      scopes_(scopes),
      taken_(services.counters.get("leases.taken")),
      waits_(services.counters.get("leases.waits")),
      served_(services.counters.get("leases.served")),
      too_long_(services.counters.get("leases.too_long")),
      wait_times_(services.counters.histogram("lease.wait")) {}

CompileLeases::~CompileLeases() { stop(); }

void CompileLeases::start() {
  if (is_on()) thread_ = start_thread("lease", [this](const std::stop_token& stop) { run(stop); });
}

void CompileLeases::stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  table_.notify_with([](Table& table) { table.stopping = true; });
  thread_.join();
  Answers answers;
  std::vector<remote::LeaseName> ours;
  table_.with([&](Table& table) {
    for (auto& [key, lease] : table.leases) {
      if (lease.is_ours && !lease.made) ours.push_back({key.second, key.first});
      answer_all(lease, End::kCompiles, answers);
    }
    table.leases.clear();
    for (const Question& question : table.questions) answers.push_back([done = question.done] { done(false); });
    table.questions.clear();
  });
  call_all(answers);
  give_up(ours);
}

bool CompileLeases::is_above_graphs(const layout::Name& name) const {
  // torch/_inductor/codecache.py: FxGraphCache._get_tmp_dir_for_key: fxgraph/<two characters of the key>/<key>
  const bool is_shard = name.path.size() == kGraphs.size() + 2 && name.path.starts_with(kGraphs);
  return is_on() && (is_shard || name.path + "/" == kGraphs) && tree_.lists_cluster(name);
}

std::optional<CompileLeases::Asked> CompileLeases::asked(const std::string& path, const layout::Name& name,
                                                         pid_t thread) const {
  if (!is_on() || !name.path.starts_with(kGraphs) || !tree_.lists_cluster(name)) return std::nullopt;
  const auto key = layout::key_asked_by(name.path);
  if (!key || key->family != layout::Family::kFxGraph || key->key != name.path) return std::nullopt;
  const auto scope = scopes_.scope_of(path, layout::Family::kFxGraph, {});
  const SetOwner process = set_owner_of(thread);
  if (scope.id.empty() || !process.is_known()) return std::nullopt;
  return Asked{{scope.id, name.path}, path, name, thread, process};
}

/// The caller holds no lock.
bool CompileLeases::has_artefact(const Asked& asked) const {
  if (catalog_.has_directory(asked.name)) return true;
  const auto names = tree_.list_in_view(asked.path);
  // torch writes into names that begin with a dot first (codecache.py: write_atomic).
  return names && std::ranges::any_of(*names, [](const auto& item) { return !item.name.starts_with('.'); });
}

void CompileLeases::take(const Asked& asked, std::function<void(bool)> done) {
  Answers answers;
  table_.notify_with([&](Table& table) {
    end_others_of(table, asked, answers);
    const auto known = table.leases.find(key_of(asked));
    if (known != table.leases.end()) {
      const bool by_another = !known->second.is_ours || known->second.process != asked.process;
      return answers.push_back([done, by_another] { done(by_another); });
    }
    if (table.stopping || table.questions.size() >= kMostQuestions || table.leases.size() >= kMostLeases) {
      return answers.push_back([done] { done(false); });
    }
    table.questions.push_back({asked, std::move(done)});
  });
  call_all(answers);
}

void CompileLeases::wait(const Asked& asked, std::function<void()> done) {
  if (has_artefact(asked)) return done();
  enum class Next { kAnswer, kTake, kWait };
  Answers answers;
  const Next next = table_.with([&](Table& table) {
    end_others_of(table, asked, answers);
    const auto known = table.leases.find(key_of(asked));
    if (table.stopping) return Next::kAnswer;
    if (known == table.leases.end()) return Next::kTake;
    Lease& lease = known->second;
    const bool own = lease.is_ours && lease.process == asked.process;
    if (own || lease.waiters.size() >= kMostWaiters) return Next::kAnswer;
    waits_.add();
    lease.waiters.push_back({asked, done, std::chrono::steady_clock::now()});
    return Next::kWait;
  });
  call_all(answers);
  switch (next) {
    case Next::kAnswer:
      return done();
    case Next::kWait:
      return serve(asked);  // it may have been made since the first look
    case Next::kTake:
      break;
  }
  take(asked, [this, asked, done](bool by_another) {
    if (!by_another) return done();
    wait(asked, done);
  });
}

void CompileLeases::serve(const Asked& asked) {
  if (!has_artefact(asked)) return;
  Answers answers;
  table_.with([&](Table& table) {
    const auto known = table.leases.find(key_of(asked));
    if (known == table.leases.end()) return;
    std::erase_if(known->second.waiters, [&](const Waiter& waiter) {
      if (waiter.asked.path != asked.path) return false;
      answer(waiter, End::kServed, answers);
      return true;
    });
  });
  call_all(answers);
}

std::vector<CompileLeases::Asked> CompileLeases::waiting(const std::string& canonical) const {
  return table_.with([&](const Table& table) {
    std::vector<Asked> all;
    auto at = table.leases.lower_bound({canonical, {}});
    for (; at != table.leases.end() && (canonical.empty() || at->first.first == canonical); ++at) {
      for (const Waiter& waiter : at->second.waiters) all.push_back(waiter.asked);
    }
    return all;
  });
}

void CompileLeases::made(const std::string& path) {
  if (!is_on()) return;
  const std::string canonical = layout::name_of(parent_path(path)).path;
  if (!canonical.starts_with(kGraphs)) return;
  table_.with([&](Table& table) {
    auto at = table.leases.lower_bound({canonical, {}});
    for (; at != table.leases.end() && at->first.first == canonical; ++at) {
      Lease& lease = at->second;
      if (!lease.is_ours || lease.made) continue;
      lease.made = true;
      lease.process = {};
      lease.since = std::chrono::steady_clock::now();
    }
  });
  for (const Asked& asked : waiting(canonical)) serve(asked);
}

void CompileLeases::changed(const std::vector<std::string>& paths) {
  if (!is_on()) return;
  for (const std::string& path : paths) {
    if (!path.starts_with(kGraphs)) continue;
    for (const Asked& asked : waiting(parent_path(path))) serve(asked);
  }
}

void CompileLeases::run(const std::stop_token& stop) {
  SteadyTime next = std::chrono::steady_clock::now() + kStep;
  while (!stop.stop_requested()) {
    const auto questions = table_.wait_until(
        next, [](const Table& table) { return table.stopping || !table.questions.empty(); },
        [](Table& table) { return std::exchange(table.questions, {}); });
    if (!questions.empty()) ask(questions);
    if (std::chrono::steady_clock::now() < next) continue;
    look_after();
    next = std::chrono::steady_clock::now() + kStep;
  }
}

void CompileLeases::ask(const std::vector<Question>& questions) {
  std::vector<remote::LeaseName> names;
  for (const Question& question : questions) names.push_back(question.asked.lease);
  const auto now = remote_.hold_leases(names, holder_, kLifetime, Deadline::after(options_.lookup_patience));
  Answers answers;
  table_.with([&](Table& table) {
    for (size_t i = 0; i < questions.size(); ++i) {
      const Asked& asked = questions[i].asked;
      const auto& done = questions[i].done;
      if (!now || (*now)[i].holder.empty()) {
        answers.push_back([&done] { done(false); });
        continue;
      }
      const auto [at, is_new] = table.leases.try_emplace(key_of(asked));
      Lease& lease = at->second;
      if (is_new) {
        const bool is_ours = (*now)[i].is_ours;
        lease = {is_ours, is_ours ? asked.process : SetOwner{}, asked.name, (*now)[i].holder,
                 std::chrono::steady_clock::now()};
        if (is_ours) taken_.add();
      }
      const bool by_another = !lease.is_ours || lease.process != asked.process;
      answers.push_back([&done, by_another] { done(by_another); });
    }
  });
  call_all(answers);
}

void CompileLeases::look_after() {
  for (const Asked& asked : waiting({})) serve(asked);
  Answers answers;
  std::vector<remote::LeaseName> names;
  std::vector<remote::LeaseName> given_up;
  table_.with([&](Table& table) {
    keep_those(table.leases, [&](const Key& key, Lease& lease) { return stays(table, key, lease, answers); });
    for (const auto& [key, lease] : table.leases) {
      if (lease.is_ours || !lease.waiters.empty()) names.push_back({key.second, key.first});
    }
    given_up = std::exchange(table.given_up, {});
  });
  call_all(answers);
  give_up(given_up);
  if (!names.empty()) {
    renewed(names, remote_.hold_leases(names, holder_, kLifetime, Deadline::after(kStep)));
  }
}

/// Also answers those who have waited for too long, or who are gone.
bool CompileLeases::stays(Table& table, const Key& key, Lease& lease, Answers& answers) {
  const SteadyTime now = std::chrono::steady_clock::now();
  std::erase_if(lease.waiters, [&](const Waiter& waiter) {
    const bool is_over = now - waiter.since > limit_;
    if (!is_over && !is_gone(waiter.asked.process)) return false;
    answer(waiter, is_over ? End::kTooLong : End::kCompiles, answers);
    return true;
  });
  if (!lease.is_ours) return !lease.waiters.empty() || now - lease.since < kRemembered;
  if (!lease.made) {
    return (now - lease.since <= limit_ && !is_gone(lease.process)) || pass_on(table, key, lease, answers);
  }
  if (!catalog_.has_directory(lease.name) && now - lease.since < kOnItsWay) return true;
  // It is in the cluster, or stays on this host. The lease is not given up: other mounts may see it in a moment only.
  answer_all(lease, End::kCompiles, answers);
  return false;
}

void CompileLeases::renewed(const std::vector<remote::LeaseName>& names,
                            const Result<std::vector<remote::Lease>>& now) {
  Answers answers;
  const remote::Lease unknown;
  table_.with([&](Table& table) {
    for (size_t i = 0; i < names.size(); ++i) renew(table, names[i], now ? (*now)[i] : unknown, answers);
  });
  call_all(answers);
}

void CompileLeases::renew(Table& table, const remote::LeaseName& name, const remote::Lease& now, Answers& answers) {
  const Key key(name.name, name.scope);
  const auto known = table.leases.find(key);
  if (known == table.leases.end()) return;
  Lease& lease = known->second;
  if (now.holder.empty()) {
    // The cluster is away: nobody waits for a process of which nothing is known.
    if (!lease.is_ours) answer_all(lease, End::kCompiles, answers);
    return;
  }
  if (lease.is_ours == now.is_ours) return;
  lease.is_ours = now.is_ours;
  lease.holder = now.holder;
  lease.process = {};
  lease.since = std::chrono::steady_clock::now();
  if (lease.is_ours && !pass_on(table, key, lease, answers)) table.leases.erase(known);
}

void CompileLeases::give_up(const std::vector<remote::LeaseName>& names) {
  if (names.empty()) return;
  // Should it fail, they end with their lifetime.
  (void)remote_.hold_leases(names, holder_, Milliseconds(0), Deadline::after(options_.lookup_patience));
}

void CompileLeases::end_others_of(Table& table, const Asked& asked, Answers& answers) {
  keep_those(table.leases, [&](const Key& key, Lease& lease) {
    const bool is_its = lease.is_ours && lease.process == asked.process && key != key_of(asked);
    return !is_its || pass_on(table, key, lease, answers);
  });
}

bool CompileLeases::pass_on(Table& table, const Key& key, Lease& lease, Answers& answers) {
  if (lease.waiters.empty()) {
    table.given_up.push_back({key.second, key.first});
    return false;
  }
  const Waiter next = lease.waiters.front();
  lease.waiters.erase(lease.waiters.begin());
  lease.process = next.asked.process;
  lease.name = next.asked.name;
  lease.since = std::chrono::steady_clock::now();
  taken_.add();
  answer(next, End::kCompiles, answers);
  return true;
}

void CompileLeases::answer(const Waiter& waiter, End end, Answers& answers) {
  const auto waited = std::chrono::steady_clock::now() - waiter.since;
  wait_times_.observe(static_cast<uint64_t>(std::chrono::nanoseconds(waited).count()));
  if (end == End::kServed) served_.add();
  if (end == End::kTooLong) {
    too_long_.add();
    log::write_limited(log::Level::kWarning, "view.lease_too_long",
                       {{"path", shown_path(waiter.asked.path)},
                        {"seconds", std::to_string(limit_.count() / 1000)},
                        {"remedy", "the process compiles by itself now; see --compile-once"}});
  }
  answers.push_back([this, asked = waiter.asked, done = waiter.done, waited, end] {
    if (options_.used) {
      UseNotice notice{end == End::kServed ? UseKind::kCluster : UseKind::kNothing,
                       asked.thread,
                       shown_path(asked.path),
                       asked.path,
                       std::string(environment_in(asked.path)),
                       {},
                       0,
                       {}};
      notice.waited = waited;
      options_.used(std::move(notice));
    }
    done();
  });
}

void CompileLeases::answer_all(Lease& lease, End end, Answers& answers) {
  for (const Waiter& waiter : std::exchange(lease.waiters, {})) answer(waiter, end, answers);
}

}  // namespace inductorfs::vfs
