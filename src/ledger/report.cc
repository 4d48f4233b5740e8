// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <algorithm>
#include <cmath>

#include "inductorfs/base/number.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/text.h"

namespace inductorfs::ledger {

using config::Json;

namespace {

/// All that have a word.
std::vector<vfs::UseKind> uses() {
  constexpr int kMost = 64;
  std::vector<vfs::UseKind> all;
  for (int i = 0; i < kMost; ++i) {
    if (!word_of(static_cast<vfs::UseKind>(i)).empty()) all.push_back(static_cast<vfs::UseKind>(i));
  }
  return all;
}

double seconds_of(std::chrono::nanoseconds span) { return std::chrono::duration<double>(span).count(); }

/// With one decimal; null of nothing.
Json percent(uint64_t part, uint64_t all) {
  return all == 0 ? Json() : Json(std::round(1000.0 * static_cast<double>(part) / static_cast<double>(all)) / 10);
}

Json family_report(const FamilyTally& tally) {
  Json missed = Json::object();
  for (const auto& [why, count] : tally.missed) missed[std::string(word_of(why))] = count;
  for (const auto& [word, count] : tally.missed_otherwise) missed[word] = count;
  const uint64_t asked = tally.local + tally.cluster + tally.misses();
  return Json::object({{"asked", asked},
                       {"hit_percent", percent(tally.local + tally.cluster - tally.refused, asked)},
                       {"local", tally.local},
                       {"cluster", tally.cluster},
                       {"missed", tally.misses()},
                       {"why_missed", std::move(missed)},
                       {"refused", tally.refused},
                       {"made", tally.made},
                       {"published", tally.published},
                       {"fetched", tally.fetched},
                       {"fetched_bytes", tally.bytes}});
}

Json tally_report(const Tally& tally) {
  Json families = Json::object();
  for (const auto& [family, one] : tally.families) {
    families[std::string(layout::rule_of(family).name)] = family_report(one);
  }
  Json report = family_report(sum_of(tally));
  report["waited_s"] = seconds_of(tally.waited);
  report["families"] = std::move(families);
  return report;
}

std::string values_text(const std::set<std::string>& values) {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : ", ") + value;
  return text;
}

uint64_t missed_for(const JobAccount& job, vfs::UseKind why) {
  const FamilyTally sum = sum_of(job.tally);
  const auto found = sum.missed.find(why);
  return found == sum.missed.end() ? 0 : found->second;
}

/// A number of threads as torch finds it: the variable's, else as many as the job has CPUs, or cores of two CPUs each.
struct Threads {
  std::string text;
  uint64_t least = 0;  ///< 0: not known
  uint64_t most = 0;
};

Threads threads_of(const JobAccount& job, const std::string& variable) {
  const auto values = job.variables.find(variable);
  if (values == job.variables.end() || values->second.empty()) {
    return {"not set (" + std::to_string(job.cpus) + " CPUs)", job.cpus - job.cpus / 2, job.cpus};
  }
  const std::string text = values_text(values->second);
  const uint64_t number = values->second.size() > 1 ? 0 : number_in<uint64_t>(text).value_or(0);
  return {text, number, number};
}

bool surely_differ(const Threads& one, const Threads& other) {
  return one.least > 0 && other.least > 0 && (one.most < other.least || other.most < one.least);
}

/// Jobs that run the same script of one user, in the same environment.
bool are_alike(const JobAccount& job, const JobAccount& other) {
  return &other != &job && !job.script.empty() && job.script != "-c" && program_of(other) == program_of(job) &&
         other.name.user == job.name.user && other.environments == job.environments;
}

/// vLLM gives its workers, which compile, another number of threads than its other processes.
bool runs_vllm(const JobAccount& job) {
  return std::ranges::any_of(job.tally.families,
                             [](const auto& one) { return layout::rule_of(one.first).name.starts_with("vllm_"); });
}

/// torch's key has the number of threads: torch/_inductor/codecache.py (FxGraphHashDetails) takes what
/// torch.get_num_threads() says, which these variables set.
void add_thread_hints(const JobAccount& job, const std::vector<const JobAccount*>& others, Json& hints) {
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}) {
    const auto own = job.variables.find(name);
    const std::set<std::string> values = own == job.variables.end() ? std::set<std::string>{} : own->second;
    if (values.size() > 1) {
      if (runs_vllm(job)) continue;
      hints.push_back(std::string(name) + " is not the same for all processes of this job (" + values_text(values) +
                      "): torch's key has the number of threads, so give all ranks the same");
      continue;
    }
    const Threads here = threads_of(job, name);
    for (const JobAccount* other : others) {
      const Threads there = threads_of(*other, name);
      if (!are_alike(job, *other) || !surely_differ(here, there)) continue;
      hints.push_back(std::string(name) + " is " + here.text + " here and " + there.text + " in job " +
                      std::to_string(other->number) +
                      ": torch's key has the number of threads, so neither finds what the other compiled");
      break;
    }
  }
}

Json hints_for(const JobAccount& job, const std::vector<const JobAccount*>& others) {
  Json hints = Json::array();
  if (missed_for(job, vfs::UseKind::kPrivate) > 0) {
    hints.push_back(
        "nothing of the cluster is shown where it looked: `inductorfs status` says whose environment is not known, and "
        "which directories share with nobody");
  }
  if (missed_for(job, vfs::UseKind::kLate) + missed_for(job, vfs::UseKind::kAway) > 0) {
    hints.push_back("the cluster was away or too slow: see \"remote\" in `inductorfs status`");
  }
  if (missed_for(job, vfs::UseKind::kLost) > 0) {
    hints.push_back("the server had lost bytes that it named: it may be short of memory, see `inductorfs status`");
  }
  if (missed_for(job, vfs::UseKind::kNothing) > 0) add_thread_hints(job, others, hints);
  return hints;
}

}  // namespace

std::string text_of(const JobName& name) {
  if (name.kind == "hidden") return "processes that ended at once, or that this daemon cannot see";
  return name.kind + " " + name.id;
}

std::string_view word_of(vfs::UseKind use) {
  switch (use) {
    case vfs::UseKind::kLocal:
      return "local";
    case vfs::UseKind::kCluster:
      return "cluster";
    case vfs::UseKind::kFetched:
      return "fetched";
    case vfs::UseKind::kNothing:
      return "nothing";
    case vfs::UseKind::kRemoved:
      return "removed";
    case vfs::UseKind::kPrivate:
      return "private";
    case vfs::UseKind::kFrozen:
      return "frozen";
    case vfs::UseKind::kDeleted:
      return "deleted";
    case vfs::UseKind::kLost:
      return "lost";
    case vfs::UseKind::kLate:
      return "late";
    case vfs::UseKind::kAway:
      return "away";
    case vfs::UseKind::kUnread:
      return "unread";
    case vfs::UseKind::kNoRoom:
      return "no_room";
    case vfs::UseKind::kUnfit:
      return "unfit";
    case vfs::UseKind::kRefused:
      return "refused";
    case vfs::UseKind::kMade:
      return "made";
    case vfs::UseKind::kAwaited:
      return "awaited";
  }
  return "";
}

bool is_hit(vfs::UseKind use) {
  return use == vfs::UseKind::kLocal || use == vfs::UseKind::kCluster || use == vfs::UseKind::kFetched;
}

std::optional<vfs::UseKind> use_named(std::string_view word) {
  const std::vector<vfs::UseKind> all = uses();
  const auto found = std::ranges::find(all, word, word_of);
  return found == all.end() ? std::nullopt : std::optional(*found);
}

std::vector<vfs::UseKind> misses() {
  std::vector<vfs::UseKind> some = uses();
  std::erase_if(some, [](vfs::UseKind use) {
    return is_hit(use) || use == vfs::UseKind::kMade || use == vfs::UseKind::kAwaited ||
           use == vfs::UseKind::kRefused;  // it was found
  });
  return some;
}

FamilyTally sum_of(const Tally& tally) {
  FamilyTally sum;
  for (const auto& [family, one] : tally.families) sum.add(one);
  return sum;
}

namespace {

/// The figures of some programs of one user, together.
Json program_report(const ProgramTally& tally) {
  Json report = family_report(tally.keys);
  report["saved_s"] = seconds_of(tally.saved);
  return report;
}

Json users_report(const Books& books, std::optional<uid_t> seen_by) {
  Json users = Json::array();
  for (const auto& [user, programs] : books.totals().programs) {
    if (seen_by && user != *seen_by) continue;
    ProgramTally sum;
    std::vector<Json> reports;
    for (const auto& [program, tally] : programs) {
      sum.add(tally);
      Json report = program_report(tally);
      report["program"] = program;
      reports.push_back(std::move(report));
    }
    std::ranges::stable_sort(reports, std::greater<>(),
                             [](const Json& one) { return one.at("asked").get<uint64_t>(); });
    Json report = program_report(sum);
    report["user"] = user == vfs::kAnyUser ? Json() : Json(user);
    report["programs"] = Json(reports);
    users.push_back(std::move(report));
  }
  return users;
}

}  // namespace

Json stats_report(const Books& books, std::optional<uid_t> seen_by) {
  return Json::object({{"since", config::utc(books.totals().since)},
                       {"all", tally_report(books.totals().tally)},
                       {"hour", tally_report(books.last_hour())},
                       {"saved_s", seconds_of(books.totals().saved)},
                       {"users", users_report(books, seen_by)}});
}

Json job_report(const JobAccount& job, const std::vector<const JobAccount*>& others,
                const EnvironmentText& environment_text) {
  Json report = tally_report(job.tally);
  report["number"] = job.number;
  report["job"] = text_of(job.name);
  report["user"] = job.name.user;
  report["command"] = job.command;
  report["script"] = job.script;
  report["started"] = config::utc(job.started);
  report["ended"] = config::utc(job.ended);
  report["seconds"] = static_cast<uint64_t>(std::max<std::time_t>(job.last_use - job.started, 0));
  report["processes"] = job.processes;
  report["not_counted"] = job.not_counted;
  report["pids"] = job.pids;
  report["saved_s"] = seconds_of(job.saved);
  report["slowest"] = Json::object({{"path", job.slowest.path}, {"waited_s", seconds_of(job.slowest.waited)}});
  Json environments = Json::array();
  for (const std::string& one : job.environments) {
    const std::string text = environment_text ? environment_text(one) : std::string();
    environments.push_back(text.empty() ? one : text);
  }
  report["environments"] = std::move(environments);
  Json variables = Json::object();
  for (const auto& [name, values] : job.variables) variables[name] = values_text(values);
  report["variables"] = std::move(variables);
  report["hints"] = hints_for(job, others);
  return report;
}

}  // namespace inductorfs::ledger
