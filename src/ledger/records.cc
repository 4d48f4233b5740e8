// SPDX-License-Identifier: Apache-2.0
#include "records.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "inductorfs/config/json.h"
#include "report.h"

namespace inductorfs::ledger {

using config::Json;
using std::chrono::nanoseconds;

namespace {

constexpr int kVersion = 1;
constexpr const char* kVersionName = "inductorfs-ledger";

/// What is of no known name counts all the same.
layout::Family family_named(std::string_view name) {
  for (int i = 0; i < static_cast<int>(layout::Family::kOther); ++i) {
    const auto family = static_cast<layout::Family>(i);
    if (layout::rule_of(family).name == name) return family;
  }
  return layout::Family::kOther;
}

Json record_of(const FamilyTally& tally) {
  Json missed = Json::object();
  for (const auto& [why, count] : tally.missed) missed[std::string(word_of(why))] = count;
  for (const auto& [word, count] : tally.missed_otherwise) missed[word] = count;
  return {{"local", tally.local}, {"cluster", tally.cluster},     {"missed", std::move(missed)},
          {"made", tally.made},   {"published", tally.published}, {"fetched", tally.fetched},
          {"bytes", tally.bytes}, {"refused", tally.refused}};
}

FamilyTally family_tally_from(const Json& record) {
  FamilyTally tally;
  record.at("local").get_to(tally.local);
  record.at("cluster").get_to(tally.cluster);
  record.at("made").get_to(tally.made);
  record.at("published").get_to(tally.published);
  record.at("fetched").get_to(tally.fetched);
  record.at("bytes").get_to(tally.bytes);
  record.at("refused").get_to(tally.refused);
  for (const auto& [word, count] : record.at("missed").items()) {
    if (const auto why = use_named(word)) {
      tally.missed[*why] = count.get<uint64_t>();
    } else {
      tally.missed_otherwise[word] = count.get<uint64_t>();
    }
  }
  return tally;
}

Json record_of(const Tally& tally) {
  Json families = Json::object();
  for (const auto& [family, one] : tally.families) {
    families[std::string(layout::rule_of(family).name)] = record_of(one);
  }
  return {{"waited_ns", tally.waited.count()}, {"families", std::move(families)}};
}

Tally tally_from(const Json& record) {
  Tally tally;
  tally.waited = nanoseconds(record.at("waited_ns").get<int64_t>());
  for (const auto& [name, one] : record.at("families").items()) {
    tally.families[family_named(name)].add(family_tally_from(one));
  }
  return tally;
}

Json record_of(const std::map<uid_t, std::map<std::string, ProgramTally>>& programs) {
  Json records = Json::array();
  for (const auto& [user, of_user] : programs) {
    for (const auto& [program, tally] : of_user) {
      records.push_back({{"user", user},
                         {"program", program},
                         {"saved_ns", tally.saved.count()},
                         {"last_use", tally.last_use},
                         {"keys", record_of(tally.keys)}});
    }
  }
  return records;
}

Miss miss_from(const Json& record) {
  Miss miss;
  record.at("at").get_to(miss.at);
  miss.family = family_named(record.at("family").get<std::string>());
  record.at("path").get_to(miss.path);
  record.at("place").get_to(miss.place);
  record.at("explained").get_to(miss.explained);
  const auto word = record.at("why").get<std::string>();
  const auto why = use_named(word);
  miss.why = why.value_or(vfs::UseKind::kNothing);
  if (!why) miss.word = word;
  return miss;
}

Json record_of(const Miss& miss) {
  return {{"at", miss.at},
          {"family", layout::rule_of(miss.family).name},
          {"path", miss.path},
          {"place", miss.place},
          {"explained", miss.explained},
          {"why", miss.word.empty() ? std::string(word_of(miss.why)) : miss.word}};
}

Json record_of(uint64_t hash, const JobAccount::Key& key) {
  return Json::array({hash, key.found, key.missed, key.made, key.published, key.saved.count()});
}

JobAccount::Key key_from(const Json& record) {
  return {record.at(1).get<bool>(), record.at(2).get<bool>(), record.at(3).get<bool>(), record.at(4).get<bool>(),
          nanoseconds(record.at(5).get<int64_t>())};
}

/// Empty for what is no record of this version.
Json parsed(std::string_view text) {
  Json record = config::from_text(text);
  return record.is_object() && record.at(kVersionName) == kVersion ? record : Json();
}

Json record_of(const std::map<JobAccount::Alike, std::map<std::string, JobAccount::Found>>& all) {
  Json records = Json::array();
  for (const auto& [alike, reasons] : all) {
    for (const auto& [reason, found] : reasons) {
      records.push_back(Json::array(
          {layout::rule_of(alike.first).name, word_of(alike.second), reason, found.count, found.explained}));
    }
  }
  return records;
}

void read_found(const Json& records, JobAccount& job) {
  for (const Json& one : records) {
    const auto why = use_named(one.at(1).get<std::string>());
    if (!why) continue;
    job.found_out[{family_named(one.at(0).get<std::string>()), *why}][one.at(2).get<std::string>()] = {
        one.at(3).get<uint64_t>(), one.at(4).get<std::string>()};
  }
}

void read_figures(const Json& record, JobAccount& job) {
  job.saved = nanoseconds(record.at("saved_ns").get<int64_t>());
  job.slowest = {record.at("slowest").at("path").get<std::string>(),
                 nanoseconds(record.at("slowest").at("waited_ns").get<int64_t>())};
  job.tally = tally_from(record.at("tally"));
  for (const Json& one : record.at("misses")) job.misses.push_back(miss_from(one));
  read_found(record.at("found_out"), job);
  record.at("environments").get_to(job.environments);
  record.at("variables").get_to(job.variables);
  for (const Json& one : record.at("living")) job.living.insert({one.at(0).get<pid_t>(), one.at(1).get<uint64_t>()});
  for (const Json& one : record.at("keys")) job.keys[one.at(0).get<uint64_t>()] = key_from(one);
}

Json record_without_misses(const JobAccount& job) {
  Json living = Json::array();
  for (const ProcessId& one : job.living) living.push_back(Json::array({one.pid, one.start}));
  Json keys = Json::array();
  for (const auto& [hash, key] : job.keys) keys.push_back(record_of(hash, key));
  return {{kVersionName, kVersion},
          {"number", job.number},
          {"user", job.name.user},
          {"kind", job.name.kind},
          {"id", job.name.id},
          {"command", job.command},
          {"script", job.script},
          {"started", job.started},
          {"last_use", job.last_use},
          {"ended", job.ended},
          {"processes", job.processes},
          {"pids", job.pids},
          {"cpus", job.cpus},
          {"not_counted", job.not_counted},
          {"saved_ns", job.saved.count()},
          {"slowest", {{"path", job.slowest.path}, {"waited_ns", job.slowest.waited.count()}}},
          {"tally", record_of(job.tally)},
          {"found_out", record_of(job.found_out)},
          {"environments", job.environments},
          {"variables", job.variables},
          {"living", std::move(living)},
          {"keys", std::move(keys)}};
}

}  // namespace

std::string to_record(const KeptTotals& kept) {
  const Totals& totals = kept.totals;
  Json slices = Json::array();
  for (const Slice& slice : totals.slices)
    slices.push_back({{"number", slice.number}, {"tally", record_of(slice.tally)}});
  return config::to_line({{kVersionName, kVersion},
                          {"boot", kept.boot},
                          {"since", totals.since},
                          {"last_number", totals.last_number},
                          {"saved_ns", totals.saved.count()},
                          {"saved_ever_ns", totals.saved_ever.count()},
                          {"tally", record_of(totals.tally)},
                          {"slices", std::move(slices)},
                          {"programs", record_of(totals.programs)}});
}

std::optional<KeptTotals> totals_from(std::string_view text) {
  try {
    const Json record = parsed(text);
    KeptTotals kept;
    record.at("boot").get_to(kept.boot);
    Totals& totals = kept.totals;
    record.at("since").get_to(totals.since);
    record.at("last_number").get_to(totals.last_number);
    totals.saved = nanoseconds(record.at("saved_ns").get<int64_t>());
    totals.saved_ever = nanoseconds(record.at("saved_ever_ns").get<int64_t>());
    totals.tally = tally_from(record.at("tally"));
    for (size_t i = 0; i < Totals::kSlices; ++i) {
      const Json& slice = record.at("slices").at(i);
      totals.slices[i] = {slice.at("number").get<int64_t>(), tally_from(slice.at("tally"))};
    }
    for (const Json& one : record.at("programs")) {
      totals.programs[one.at("user").get<uid_t>()][one.at("program").get<std::string>()] = {
          family_tally_from(one.at("keys")), nanoseconds(one.at("saved_ns").get<int64_t>()),
          one.at("last_use").get<std::time_t>()};
    }
    return kept;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::string to_record(const JobAccount& job) {
  Json record = record_without_misses(job);
  size_t size = config::to_line(record).size();
  Json kept = Json::array();
  for (auto miss = job.misses.rbegin(); miss != job.misses.rend(); ++miss) {
    Json one = record_of(*miss);
    size += config::to_line(one).size() + 1;
    if (size > kRecordLimit) break;
    kept.push_back(std::move(one));
  }
  std::reverse(kept.begin(), kept.end());
  record["misses"] = std::move(kept);
  return config::to_line(record);
}

std::optional<JobAccount> job_from(std::string_view text) {
  try {
    const Json record = parsed(text);
    JobAccount job;
    record.at("number").get_to(job.number);
    record.at("user").get_to(job.name.user);
    record.at("kind").get_to(job.name.kind);
    record.at("id").get_to(job.name.id);
    record.at("command").get_to(job.command);
    record.at("script").get_to(job.script);
    record.at("started").get_to(job.started);
    record.at("last_use").get_to(job.last_use);
    record.at("ended").get_to(job.ended);
    record.at("processes").get_to(job.processes);
    record.at("pids").get_to(job.pids);
    record.at("cpus").get_to(job.cpus);
    job.not_counted = record.value("not_counted", uint64_t{0});
    read_figures(record, job);
    return job;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace inductorfs::ledger
