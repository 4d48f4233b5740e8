// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/compile_leases.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "inductorfs/base/log.h"
#include "inductorfs/base/thread.h"
#include "vfs/tree/branch_paths.h"
#include "vfs/tree/paths.h"

namespace inductorfs::vfs {
namespace {

/// How long a lease outlives its last renewal (kStep).
constexpr Milliseconds kLifetime{10'000};
/// How often leases are renewed and those of others are looked at.
constexpr Milliseconds kStep{1'000};
/// An artefact that has not reached the cluster by then, perhaps because it is private, is nothing to wait for; nor are
/// the next ones, until one reaches it again.
constexpr Milliseconds kOnItsWay{20'000};
/// A lease of another mount for which nobody waits here is remembered for as long.
constexpr Milliseconds kRemembered{2'000};
/// Whoever compiles and does nothing for so long waits for another process, perhaps for one that waits for it.
constexpr Milliseconds kIdle{5'000};
/// A lease of this name beside that of the graph tells other mounts so.
constexpr std::string_view kIdleMark = "/idle";
constexpr size_t kMostLeases = 4096;
constexpr size_t kMostQuestions = 1024;
/// Of a mount, and of one user: each has a slot of those for requests that wait (takeover::RequestSlots::kDetached).
constexpr size_t kMostWaiters = 256;
constexpr size_t kMostWaitersOfOne = 128;
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

}  // namespace

CompileLeases::CompileLeases(const Context& context)
    : Context(context), holder_(holder_name(options_.origin)), work_(kIdle) {}

CompileLeases::~CompileLeases() { stop(); }

void CompileLeases::start() {
  if (is_on()) thread_ = start_thread("lease", [this](const std::stop_token& stop) { run(stop); });
}

template <typename Change>
void CompileLeases::change(const Change& make) {
  Answers answers;
  table_.notify_with([&](Table& table) { make(table, answers); });
  for (const auto& answer : answers) answer();
}

void CompileLeases::stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  table_.notify_with([](Table& table) { table.stopping = true; });
  thread_.join();
  std::vector<remote::LeaseName> ours;
  change([&](Table& table, Answers& answers) {
    for (auto& [key, lease] : table.leases) {
      if (lease.is_ours && !lease.made) ours.push_back({key.second, key.first});
      answer_all(table, lease, End::kCompiles, answers);
    }
    table.leases.clear();
    for (const Question& question : table.questions) answers.push_back([done = question.done] { done(false); });
    table.questions.clear();
  });
  give_up(ours);
}

bool CompileLeases::is_above_graphs(const layout::Name& name) const {
  // torch/_inductor/codecache.py: FxGraphCache._get_tmp_dir_for_key: fxgraph/<two characters of the key>/<key>
  constexpr std::string_view kOfKeys = "abcdefghijklmnopqrstuvwxyz234567";
  const bool is_shard = name.path.size() == kGraphs.size() + 2 && name.path.starts_with(kGraphs) &&
                        name.path.find_first_not_of(kOfKeys, kGraphs.size()) == std::string::npos;
  return is_on() && (is_shard || name.path + "/" == kGraphs) && known_roots_.lists_cluster(name);
}

std::optional<CompileLeases::Asked> CompileLeases::asked(const std::string& path, const layout::Name& name,
                                                         const Caller& caller) const {
  if (!is_on() || !name.path.starts_with(kGraphs) || !known_roots_.lists_cluster(name)) return std::nullopt;
  const auto key = layout::key_asked_by(name.path);
  if (!key || key->family != layout::Family::kFxGraph || key->key != name.path) return std::nullopt;
  // What a user who only reads here compiles reaches nobody who would wait for it.
  if (!scopes_.why_not_shared(path, Makers{{caller.uid}, {}, false}).empty()) return std::nullopt;
  const auto scope = scopes_.scope_of(path, layout::Family::kFxGraph, {});
  const SetOwner process = set_owner_of(caller.pid);
  if (scope.id.empty() || !process.is_known()) return std::nullopt;
  return Asked{{scope.id, name.path}, path, name, caller, process};
}

bool CompileLeases::has_artefact(const Asked& asked) const {
  if (catalog_.has_directory(asked.name)) return true;
  const auto names = tree_.list_in_view(asked.path);
  // torch writes into names that begin with a dot first (codecache.py: write_atomic).
  return names && std::ranges::any_of(*names, [](const auto& item) { return !item.name.starts_with('.'); });
}

void CompileLeases::take(const Asked& asked, std::function<void(bool)> done) {
  change([&](Table& table, Answers& answers) {
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
}

void CompileLeases::wait(const Asked& asked, std::function<void()> done) {
  const bool is_there = has_artefact(asked);
  enum class Next { kAnswer, kTake, kWait };
  Next next = Next::kAnswer;
  change([&](Table& table, Answers& answers) {
    end_others_of(table, asked, answers);
    const auto known = table.leases.find(key_of(asked));
    if (is_there || table.stopping) return;
    if (known == table.leases.end()) {
      next = Next::kTake;
      return;
    }
    Lease& lease = known->second;
    const bool own = lease.is_ours && lease.process == asked.process;
    const bool waits = !own && !lease.idle && add_waiter(table, lease, {asked, done, std::chrono::steady_clock::now()});
    if (waits) next = Next::kWait;
  });
  switch (next) {
    case Next::kAnswer:
      if (!is_there) tell(asked, UseKind::kNothing, {});
      return done();
    case Next::kWait:
      return serve(asked);  // it may have been made since the first look
    case Next::kTake:
      break;
  }
  take(asked, [this, asked, done](bool by_another) {
    if (by_another) return wait(asked, done);
    tell(asked, UseKind::kNothing, {});
    done();
  });
}

bool CompileLeases::add_waiter(Table& table, Lease& lease, const Waiter& waiter) {
  size_t& of_one = table.waits_of[waiter.asked.caller.uid];
  if (table.waits >= kMostWaiters || of_one >= kMostWaitersOfOne) return false;
  ++of_one;
  ++table.waits;
  waits_.add();
  lease.waiters.push_back(waiter);
  return true;
}

void CompileLeases::answer_if(Table& table, Lease& lease, End end, Answers& answers,
                              const std::function<bool(const Waiter&)>& holds) {
  std::erase_if(lease.waiters, [&](const Waiter& waiter) {
    if (!holds(waiter)) return false;
    --table.waits;
    const auto of_one = table.waits_of.find(waiter.asked.caller.uid);
    if (--of_one->second == 0) table.waits_of.erase(of_one);
    answer(waiter, end, answers);
    return true;
  });
}

void CompileLeases::serve(const Asked& asked) {
  if (!has_artefact(asked)) return;
  change([&](Table& table, Answers& answers) {
    const auto known = table.leases.find(key_of(asked));
    if (known == table.leases.end()) return;
    answer_if(table, known->second, End::kServed, answers,
              [&](const Waiter& waiter) { return waiter.asked.path == asked.path; });
  });
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
  const auto now = cluster_leases_.hold_leases(names, holder_, kLifetime, Deadline::after(options_.lookup_patience));
  change([&](Table& table, Answers& answers) {
    // What is asked for anew is not given up, should the server have left it to us.
    std::erase_if(table.given_up, [&](const auto& name) { return std::ranges::count(names, name) > 0; });
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
        lease.is_ours = is_ours;
        if (is_ours) lease.process = asked.process;
        lease.name = asked.name;
        lease.holder = (*now)[i].holder;
        lease.since = std::chrono::steady_clock::now();
        if (is_ours) taken_.add();
      }
      const bool by_another = !lease.is_ours || lease.process != asked.process;
      answers.push_back([&done, by_another] { done(by_another); });
    }
  });
}

void CompileLeases::look_after() {
  for (const Asked& asked : waiting({})) serve(asked);
  look_at_work();
  std::vector<remote::LeaseName> names;
  std::vector<remote::LeaseName> given_up;
  change([&](Table& table, Answers& answers) {
    keep_those(table.leases, [&](const Key& key, Lease& lease) { return stays(table, key, lease, answers); });
    for (const auto& [key, lease] : table.leases) {
      if (lease.is_ours || !lease.waiters.empty()) names.push_back({key.second, key.first});
    }
    given_up = std::exchange(table.given_up, {});
  });
  give_up(given_up);
  if (names.empty()) return;
  const auto now = cluster_leases_.hold_leases(names, holder_, kLifetime, Deadline::after(kStep));
  const remote::Lease unknown;
  change([&](Table& table, Answers& answers) {
    for (size_t i = 0; i < names.size(); ++i) renew(table, names[i], now ? (*now)[i] : unknown, answers);
  });
  tell_of_idle();
}

void CompileLeases::look_at_work() {
  const auto compiling = table_.with([](const Table& table) {
    std::vector<SetOwner> all;
    for (const auto& [key, lease] : table.leases) {
      if (lease.is_ours && lease.process.is_known()) all.push_back(lease.process);
    }
    return all;
  });
  const auto idle = work_.waiting_of(compiling);
  change([&](Table& table, Answers& answers) {
    for (auto& [key, lease] : table.leases) {
      if (!lease.is_ours || lease.idle || !idle.contains(lease.process)) continue;
      lease.idle = true;
      answer_all(table, lease, End::kIdle, answers);
    }
  });
}

void CompileLeases::tell_of_idle() {
  std::vector<remote::LeaseName> ours;
  std::vector<remote::LeaseName> others;
  table_.with([&](const Table& table) {
    for (const auto& [key, lease] : table.leases) {
      if (lease.is_ours && !lease.idle) continue;
      if (!lease.is_ours && lease.waiters.empty()) continue;
      (lease.is_ours ? ours : others).push_back({key.second, key.first + std::string(kIdleMark)});
    }
  });
  // Should it fail, it is told a moment later.
  if (!ours.empty()) (void)cluster_leases_.hold_leases(ours, holder_, kLifetime, Deadline::after(kStep));
  if (others.empty()) return;
  // To give up what one does not have is to ask who has it.
  const auto marks = cluster_leases_.hold_leases(others, holder_, Milliseconds(0), Deadline::after(kStep));
  change([&](Table& table, Answers& answers) {
    for (size_t i = 0; marks && i < others.size(); ++i) {
      const std::string graph = others[i].name.substr(0, others[i].name.size() - kIdleMark.size());
      const auto known = table.leases.find({graph, others[i].scope});
      if (known == table.leases.end() || known->second.is_ours || (*marks)[i].holder != known->second.holder) continue;
      known->second.idle = true;
      answer_all(table, known->second, End::kIdle, answers);
    }
  });
}

/// Also answers those who have waited for too long, or who are gone.
bool CompileLeases::stays(Table& table, const Key& key, Lease& lease, Answers& answers) {
  const SteadyTime now = std::chrono::steady_clock::now();
  answer_if(table, lease, End::kTooLong, answers, [&](const Waiter& waiter) { return now - waiter.since > limit_; });
  answer_if(table, lease, End::kCompiles, answers, [](const Waiter& waiter) { return is_gone(waiter.asked.process); });
  if (!lease.is_ours) return !lease.waiters.empty() || now - lease.since < kRemembered;
  if (!lease.made) {
    return (now - lease.since <= limit_ && !is_gone(lease.process)) || pass_on(table, key, lease, answers);
  }
  if (catalog_.has_directory(lease.name)) {
    // Other mounts may see it in a moment only: the lease ends with its lifetime.
    table.reaches_cluster = true;
  } else {
    if (table.reaches_cluster && now - lease.since < std::min(kOnItsWay, limit_)) return true;
    table.reaches_cluster = false;
    table.given_up.push_back({key.second, key.first});
  }
  answer_all(table, lease, End::kCompiles, answers);
  return false;
}

void CompileLeases::renew(Table& table, const remote::LeaseName& name, const remote::Lease& now, Answers& answers) {
  const Key key(name.name, name.scope);
  const auto known = table.leases.find(key);
  if (known == table.leases.end()) return;
  Lease& lease = known->second;
  if (now.holder.empty()) {
    // The cluster is away: nobody waits for a process of which nothing is known.
    if (!lease.is_ours) answer_all(table, lease, End::kCompiles, answers);
    return;
  }
  if (lease.holder == now.holder) return;
  lease.holder = now.holder;
  lease.idle = false;
  if (lease.is_ours == now.is_ours) return;
  lease.is_ours = now.is_ours;
  lease.made = false;
  lease.process = {};
  lease.since = std::chrono::steady_clock::now();
  if (lease.is_ours && !pass_on(table, key, lease, answers)) table.leases.erase(known);
}

void CompileLeases::give_up(const std::vector<remote::LeaseName>& names) {
  if (names.empty()) return;
  // Should it fail, they end with their lifetime.
  (void)cluster_leases_.hold_leases(names, holder_, Milliseconds(0), Deadline::after(options_.lookup_patience));
}

void CompileLeases::end_others_of(Table& table, const Asked& asked, Answers& answers) {
  keep_those(table.leases, [&](const Key& key, Lease& lease) {
    const bool is_its = lease.is_ours && lease.process == asked.process && key != key_of(asked);
    return !is_its || pass_on(table, key, lease, answers);
  });
}

/// All requests of a process go on: after a takeover the kernel may take the answer of one of two only.
bool CompileLeases::pass_on(Table& table, const Key& key, Lease& lease, Answers& answers) {
  if (lease.waiters.empty()) {
    if (table.given_up.size() < kMostLeases) table.given_up.push_back({key.second, key.first});
    return false;
  }
  const Asked next = lease.waiters.front().asked;
  lease.process = next.process;
  lease.name = next.name;
  lease.made = false;
  lease.since = std::chrono::steady_clock::now();
  taken_.add();
  answer_if(table, lease, End::kCompiles, answers,
            [&](const Waiter& waiter) { return waiter.asked.process == next.process; });
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
  if (end == End::kIdle) {
    idle_.add();
    log::write_limited(log::Level::kWarning, "view.lease_idle",
                       {{"path", shown_path(waiter.asked.path)},
                        {"remedy",
                         "both compile now; mount without --compile-once if ranks need each other while they "
                         "compile"}});
  }
  answers.push_back([this, asked = waiter.asked, done = waiter.done, waited, end] {
    tell(asked, end == End::kServed ? UseKind::kCluster : UseKind::kNothing, waited);
    done();
  });
}

void CompileLeases::tell(const Asked& asked, UseKind use, std::chrono::nanoseconds waited) const {
  if (!options_.used) return;
  UseNotice notice{
      use, asked.caller.pid, shown_path(asked.path), asked.path, std::string(environment_in(asked.path)), {}, 0, {}};
  notice.waited = waited;
  options_.used(std::move(notice));
}

void CompileLeases::answer_all(Table& table, Lease& lease, End end, Answers& answers) {
  answer_if(table, lease, end, answers, [](const Waiter&) { return true; });
}

}  // namespace inductorfs::vfs
