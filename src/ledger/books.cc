// SPDX-License-Identifier: Apache-2.0
#include "books.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "inductorfs/ledger/ledger.h"
#include "report.h"

namespace inductorfs::ledger {
namespace {

using std::chrono::nanoseconds;
using vfs::UseKind;

constexpr int64_t kSecond = 1'000'000'000;

uint64_t hash_of(const std::string& key) { return std::hash<std::string>{}(key); }

/// Whoever finds it and makes it again did not take what it had found. Others are written at each start.
bool is_made_once(layout::Family family) {
  using enum layout::Family;
  return family == kFxGraph || family == kAotAutograd || family == kAotAutogradEntry || family == kVllmModel;
}

/// A batch system starts one process after the other, and a launcher starts ranks again.
Milliseconds grace_of(const JobName& name) {
  const bool is_process = name.kind == "process" || name.kind == "container";
  return is_process ? Milliseconds{2'000} : Milliseconds{30'000};
}

}  // namespace

uint64_t FamilyTally::misses() const {
  uint64_t sum = 0;
  for (const auto& [why, count] : missed) sum += count;
  for (const auto& [word, count] : missed_otherwise) sum += count;
  return sum;
}

void FamilyTally::add(const FamilyTally& other) {
  local += other.local;
  cluster += other.cluster;
  for (const auto& [why, count] : other.missed) missed[why] += count;
  refused += other.refused;
  for (const auto& [word, count] : other.missed_otherwise) missed_otherwise[word] += count;
  made += other.made;
  published += other.published;
  fetched += other.fetched;
  bytes += other.bytes;
}

void Tally::add(const Tally& other) {
  for (const auto& [family, tally] : other.families) families[family].add(tally);
  waited += other.waited;
}

void ProgramTally::add(const ProgramTally& other) {
  keys.add(other.keys);
  saved += other.saved;
  last_use = std::max(last_use, other.last_use);
}

std::string program_of(const JobAccount& job) { return job.command + (job.script.empty() ? "" : " " + job.script); }

Books::Books(const Clock& clock) : clock_(clock) { totals_.since = clock.wall_now() / kSecond; }

Slice& Books::slice_of_now() {
  const int64_t number = clock_.wall_now() / kSecond / kSlice.count();
  Slice& slice = totals_.slices[static_cast<size_t>(number) % Totals::kSlices];
  if (slice.number != number) slice = {number, {}};
  return slice;
}

Tally Books::last_hour() const {
  const int64_t now = clock_.wall_now() / kSecond / kSlice.count();
  Tally sum;
  for (const Slice& slice : totals_.slices) {
    if (slice.number > now - static_cast<int64_t>(Totals::kSlices) && slice.number <= now) sum.add(slice.tally);
  }
  return sum;
}

std::vector<const JobAccount*> Books::jobs() const {
  std::vector<const JobAccount*> list;
  for (auto at = jobs_.rbegin(); at != jobs_.rend(); ++at) list.push_back(&at->second);
  return list;
}

/// Removes the job that was used last the longest ago, of those that have ended if there are any: one of this user if
/// he has his share, else of any.
void Books::make_room(uid_t user) {
  const auto of_user = [user](const auto& one) { return one.second.name.user == user; };
  const bool has_share =
      static_cast<size_t>(std::count_if(jobs_.begin(), jobs_.end(), of_user)) >= Ledger::kMostJobsOfOne;
  if (!has_share && jobs_.size() < Ledger::kMostJobs) return;
  auto victim = jobs_.end();
  for (auto at = jobs_.begin(); at != jobs_.end(); ++at) {
    if (has_share && !of_user(*at)) continue;
    const auto age = [](const JobAccount& job) { return std::make_pair(job.ended == 0, job.last_use); };
    if (victim == jobs_.end() || age(at->second) < age(victim->second)) victim = at;
  }
  if (victim->second.ended == 0) open_.erase(victim->second.name);
  jobs_.erase(victim);
}

JobAccount& Books::account_of(const FoundJob& found) {
  if (const auto known = open_.find(found.name); known != open_.end()) return jobs_[known->second];
  make_room(found.name.user);
  JobAccount job;
  job.number = ++totals_.last_number;
  job.name = found.name;
  job.command = found.command;
  job.script = found.script;
  job.cpus = found.cpus;
  job.started = clock_.wall_now() / kSecond;
  open_[found.name] = job.number;
  return jobs_.emplace(job.number, std::move(job)).first->second;
}

void Books::note_process(JobAccount& job, const FoundJob& found) const {
  if (found.process.pid > 0 && !job.living.contains(found.process) && job.living.size() < kMostProcesses) {
    job.living.insert(found.process);
    ++job.processes;
    if (job.pids.size() < kMostPids) job.pids.insert(found.process.pid);
  }
  for (const auto& [name, value] : found.variables) {
    std::set<std::string>& values = job.variables[name];
    if (values.size() < kMostValues) values.insert(value.substr(0, kValueLimit));
  }
}

void Books::count(JobAccount& job, layout::Family family, const std::function<void(FamilyTally&)>& change) {
  change(job.tally.families[family]);
  change(totals_.tally.families[family]);
  change(slice_of_now().tally.families[family]);
  change(program_tally_of(job).keys);
}

ProgramTally& Books::program_tally_of(const JobAccount& job) {
  const bool is_known =
      job.name.kind != "hidden" && (totals_.programs.contains(job.name.user) || totals_.programs.size() < kMostUsers);
  auto& programs = totals_.programs[is_known ? job.name.user : vfs::kAnyUser];
  std::string name = is_known ? program_of(job) : std::string();
  if (!programs.contains(name) && programs.size() >= kProgramsOfUser) {
    const auto oldest = std::ranges::min_element(
        programs, {}, [](const auto& one) { return std::make_pair(one.first.empty(), one.second.last_use); });
    programs[""].add(oldest->second);
    programs.erase(oldest);
  }
  ProgramTally& tally = programs[name];
  tally.last_use = clock_.wall_now() / kSecond;
  return tally;
}

void Books::enter(const vfs::UseNotice& notice, const FoundJob& found, std::optional<nanoseconds> compiled_in) {
  JobAccount& job = account_of(found);
  job.last_use = clock_.wall_now() / kSecond;
  job.dead_since = {};
  job.is_changed = true;
  note_process(job, found);
  if (!notice.environment.empty() && job.environments.size() < kMostValues) {
    job.environments.insert(notice.environment);
  }
  const auto classified = layout::classify(notice.path);
  auto asked = layout::key_asked_by(notice.path);
  // A candidate's key is that of the directory which was asked for.
  if (!asked && notice.use == UseKind::kMade && !classified.key_directory.empty()) {
    asked = layout::AskedKey{classified.family, classified.key_directory};
  }
  if (asked) enter_key(job, *asked, notice);
  const auto family = asked ? asked->family : classified.family;
  if (notice.use == UseKind::kFetched) enter_fetch(job, family, notice);
  if (compiled_in) enter_saving(job, asked ? asked->key : classified.key_directory, *compiled_in);
}

void Books::enter_key(JobAccount& job, const layout::AskedKey& asked, const vfs::UseNotice& notice) {
  const uint64_t hash = hash_of(asked.key);
  if (!job.keys.contains(hash) && job.keys.size() >= kMostKeys) {
    // Nobody knows whether it is the first use of its key.
    ++job.not_counted;
    ++totals_.not_counted;
    return;
  }
  JobAccount::Key& key = job.keys[hash];
  if (notice.use == UseKind::kMade) {
    if (std::exchange(key.made, true)) return;
    set_saving(job, key, {});
    if (key.found && !key.missed && is_made_once(asked.family)) {
      count(job, asked.family, [](FamilyTally& tally) { ++tally.refused; });
      enter_miss(job, {job.last_use, asked.family, notice.path, notice.place, UseKind::kRefused});
    }
    return count(job, asked.family, [](FamilyTally& tally) { ++tally.made; });
  }
  if (is_hit(notice.use)) {
    if (key.made || key.missed || std::exchange(key.found, true)) return;
    const bool is_local = notice.use == UseKind::kLocal;
    return count(job, asked.family, [is_local](FamilyTally& tally) { ++(is_local ? tally.local : tally.cluster); });
  }
  if (key.made || std::exchange(key.missed, true)) return;
  count(job, asked.family, [why = notice.use](FamilyTally& tally) { ++tally.missed[why]; });
  enter_miss(job, {job.last_use, asked.family, notice.path, notice.place, notice.use});
}

void Books::enter_miss(JobAccount& job, Miss miss) {
  const bool by_settings = miss.family == layout::Family::kVllmModel || miss.family == layout::Family::kVllmIndex;
  const uint64_t count = ++job.missed[{miss.family, miss.why}];
  const bool is_power = std::has_single_bit(count) && std::countr_zero(count) % 2 == 0;
  const bool is_asked = count <= (by_settings ? kAskedOfSettings : kAskedAlike) || is_power;
  if (miss.why != UseKind::kRefused && is_asked) {
    questions_.push_back({job.number, miss.path, miss.place, miss.family, miss.why});
  }
  if (job.misses.size() >= Ledger::kMissesOfJob) job.misses.pop_front();
  job.misses.push_back(std::move(miss));
}

void Books::ask_again(uint64_t number) {
  const auto job = jobs_.find(number);
  if (job == jobs_.end()) return;
  std::set<JobAccount::Alike> asked;
  for (const Miss& miss : job->second.misses) {
    const JobAccount::Alike alike{miss.family, miss.why};
    if (!miss.word.empty() || miss.why == UseKind::kRefused || job->second.found_out.contains(alike)) continue;
    if (asked.insert(alike).second) questions_.push_back({number, miss.path, miss.place, miss.family, miss.why});
  }
}

Miss* JobAccount::miss_at(const std::string& path) {
  const auto found = std::ranges::find(misses.rbegin(), misses.rend(), path, &Miss::path);
  return found == misses.rend() ? nullptr : &*found;
}

void Books::note_explained(const MissQuestion& question, const std::string& reason, std::string explained) {
  const auto job = jobs_.find(question.job);
  if (job == jobs_.end()) return;
  job->second.is_changed = true;
  if (Miss* const miss = job->second.miss_at(question.path)) miss->explained = explained;
  size_t known = 0;
  for (const auto& [alike, reasons] : job->second.found_out) known += reasons.size();
  auto& reasons = job->second.found_out[{question.family, question.why}];
  if (!reasons.contains(reason) && known >= kMostReasons) return;
  JobAccount::Found& found = reasons[reason];
  ++found.count;
  found.explained = std::move(explained);
}

void Books::enter_fetch(JobAccount& job, layout::Family family, const vfs::UseNotice& notice) {
  count(job, family, [bytes = notice.bytes](FamilyTally& tally) {
    ++tally.fetched;
    tally.bytes += bytes;
  });
  job.tally.waited += notice.waited;
  totals_.tally.waited += notice.waited;
  slice_of_now().tally.waited += notice.waited;
  if (notice.waited > job.slowest.waited) job.slowest = {notice.path, notice.waited};
}

/// Of several candidates for one key that were opened, torch took one at most: the least is never too much. Whoever
/// made one of the key itself was saved nothing.
void Books::enter_saving(JobAccount& job, const std::string& asked_key, nanoseconds compiled_in) {
  const uint64_t hash = hash_of(asked_key);
  if (!job.keys.contains(hash) && job.keys.size() >= kMostKeys) return;
  JobAccount::Key& key = job.keys[hash];
  if (key.made) return;
  set_saving(job, key, key.saved.count() == 0 ? compiled_in : std::min(key.saved, compiled_in));
}

void Books::set_saving(JobAccount& job, JobAccount::Key& key, nanoseconds saving) {
  job.saved += saving - key.saved;
  program_tally_of(job).saved += saving - key.saved;
  totals_.saved += saving - key.saved;
  totals_.saved_ever = std::max(totals_.saved_ever, totals_.saved);
  key.saved = saving;
}

void Books::enter_published(const std::string& canonical) {
  const auto asked = layout::key_asked_by(canonical);
  const std::string key = asked ? asked->key : layout::classify(canonical).key_directory;
  if (key.empty()) return;
  for (auto& [number, job] : jobs_) {
    const auto known = job.keys.find(hash_of(key));
    if (known == job.keys.end() || !known->second.made || std::exchange(known->second.published, true)) continue;
    const auto family = asked ? asked->family : layout::classify(canonical).family;
    job.is_changed = true;
    return count(job, family, [](FamilyTally& tally) { ++tally.published; });
  }
}

std::vector<const JobAccount*> Books::close_ended(const std::function<bool(const ProcessId&)>& lives) {
  std::vector<const JobAccount*> ended;
  const SteadyTime now = clock_.now();
  for (auto& [number, job] : jobs_) {
    if (job.ended != 0 && now - job.dead_since > kKeysKept) job.keys = {};
  }
  for (auto at = open_.begin(); at != open_.end();) {
    JobAccount& job = jobs_[at->second];
    std::erase_if(job.living, [&lives](const ProcessId& process) { return !lives(process); });
    const bool is_over = job.living.empty() && job.name.kind != "hidden";
    if (!is_over) {
      job.dead_since = {};
    } else if (job.dead_since == SteadyTime{}) {
      job.dead_since = now;
    }
    if (!is_over || now - job.dead_since < grace_of(job.name)) {
      ++at;
      continue;
    }
    job.ended = std::max(job.last_use, job.started);
    job.is_changed = true;
    ended.push_back(&job);
    at = open_.erase(at);
  }
  return ended;
}

void Books::restore(JobAccount job) {
  use_no_number_to(job.number);
  make_room(job.name.user);
  if (job.ended == 0) open_[job.name] = job.number;
  jobs_.insert_or_assign(job.number, std::move(job));
}

std::vector<JobAccount> Books::take_changed() {
  const std::time_t oldest = clock_.wall_now() / kSecond - std::chrono::seconds(kKept).count();
  std::erase_if(jobs_, [oldest](const auto& one) { return one.second.ended != 0 && one.second.last_use < oldest; });
  std::vector<JobAccount> changed;
  for (auto& [number, job] : jobs_) {
    if (std::exchange(job.is_changed, false)) changed.push_back(job);
  }
  return changed;
}

void Books::change_all() {
  for (auto& [number, job] : jobs_) job.is_changed = true;
}

}  // namespace inductorfs::ledger
