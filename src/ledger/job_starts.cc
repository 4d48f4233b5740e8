// SPDX-License-Identifier: Apache-2.0
#include "job_starts.h"

#include <algorithm>
#include <optional>

#include "inductorfs/layout/layout.h"

namespace inductorfs::ledger {
namespace {

using vfs::UseKind;

bool is_had(UseKind use) {
  return use == UseKind::kLocal || use == UseKind::kCluster || use == UseKind::kFetched || use == UseKind::kMade;
}

/// Says whether a name of the family tells one job from others. Sources, probes and timings are asked for by all.
bool names_a_job(layout::Family family) {
  using enum layout::Family;
  return layout::rule_of(family).holds_graphs || family == kAotAutograd || family == kAotAutogradEntry ||
         family == kTritonKernel;
}

struct Asked {
  layout::Family family;
  std::string key;
};

/// The key that a request is for, also where the request is for a file that was opened after its key was found.
std::optional<Asked> key_of(const std::string& place) {
  if (auto asked = layout::key_asked_by(place)) return Asked{asked->family, std::move(asked->key)};
  auto classified = layout::classify(place);
  if (!layout::rule_of(classified.family).shared || classified.key_directory.empty()) return std::nullopt;
  return Asked{classified.family, std::move(classified.key_directory)};
}

}  // namespace

void JobStarts::enter(const vfs::UseNotice& notice, const FoundJob& job) {
  if (job.name.kind == "hidden") return;  // of many jobs, perhaps
  const auto asked = key_of(notice.place);
  if (!asked) return;
  const Id id{job.name, layout::name_of(notice.place).root};
  const auto known = starts_.find(id);
  if (known == starts_.end() && starts_.size() >= kMostStarts) return;
  Start& start = known == starts_.end() ? starts_[id] : known->second;
  start.last_use = clock_.now();
  start.ended = {};
  note_key(start, asked->key, job.process, names_a_job(asked->family));
  if (const auto key = start.got.find(asked->key); key != start.got.end() && is_had(notice.use)) key->second = true;
}

void JobStarts::note_key(Start& start, const std::string& key, const ProcessId& process, bool is_graph) {
  if (start.got.contains(key)) return;
  const size_t bytes = 2 * key.size();
  if (bytes_ + bytes > kMostBytes) return;
  start.got.emplace(key, false);
  start.order.push_back(key);
  start.bytes += bytes;
  bytes_ += bytes;
  if (!is_graph || (!start.asked.contains(process) && start.asked.size() >= kMostProcesses)) return;
  size_t& count = start.asked[process];
  if (count == kFirstOfProcess) return;
  ++count;
  start.first.push_back(key);
}

void JobStarts::end(const JobName& job) {
  for (auto& [id, start] : starts_) {
    if (id.first == job && start.ended == SteadyTime{}) start.ended = clock_.now();
  }
}

void JobStarts::tell_ended() {
  const SteadyTime now = clock_.now();
  for (auto at = starts_.begin(); at != starts_.end();) {
    Start& start = at->second;
    if (start.ended == SteadyTime{} && now - start.last_use >= kQuiet) start.ended = now;
    const bool is_over = start.ended != SteadyTime{};
    if (!is_over || (!told_(report(at->first.second, start)) && now - start.ended < kTellFor)) {
      ++at;
      continue;
    }
    bytes_ -= start.bytes;
    at = starts_.erase(at);
  }
}

vfs::JobStart JobStarts::report(const std::string& root, const Start& start) {
  vfs::JobStart report{root, {}, start.first};
  std::ranges::copy_if(start.order, std::back_inserter(report.keys),
                       [&](const std::string& key) { return start.got.at(key); });
  return report;
}

}  // namespace inductorfs::ledger
