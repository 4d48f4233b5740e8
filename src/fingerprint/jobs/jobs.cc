// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/jobs/jobs.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "fingerprint/facts/compiler_files.h"
#include "fingerprint/facts/facts.h"
#include "fingerprint/facts/named_files.h"
#include "inductorfs/fingerprint/variables.h"

namespace inductorfs::fingerprint {
namespace {

constexpr const char* kSource = "the process";

constexpr const char* kNotInTime = "its packages were not read in time; programs that start later find them read";
constexpr const char* kNextJob = " of the process was not read in time; the next job will find it read";

/// A C library that says no version matters to compiled libraries only, and so does the compiler; an engine matters to
/// what engines make.
bool is_needed_by_all(Facet facet) {
  return facet != Facet::kLibc && facet != Facet::kCompiler && facet != Facet::kEngine;
}

/// After this time requests wait again for what has not come.
constexpr Milliseconds kWaitAgain{60'000};

JobFacts unknown_job(std::string why) { return {JobFacts::Kind::kUnknown, {}, std::move(why)}; }
JobFacts later(std::string why) { return {JobFacts::Kind::kLater, {}, std::move(why)}; }

bool is_same_package(const Package& one, const Package& other) {
  return one.path == other.path && one.identity == other.identity && one.replaced == other.replaced;
}

/// Says whether two processes would be told the same, as far as their files go. Processes of one container have roots
/// with different names, and one mount namespace.
bool have_same_packages(const Process& one, const Process& other) {
  return is_same_package(one.torch, other.torch) && is_same_package(one.triton, other.triton) &&
         std::ranges::equal(one.engines, other.engines, is_same_package) && is_same_package(one.libc, other.libc) &&
         one.soabi == other.soabi && one.space == other.space && one.root.empty() == other.root.empty() &&
         one.other_root == other.other_root;
}

/// A name for what has to be read of a process.
std::string packages_key(const Process& process) {
  std::string key = process.space + process.mounts + "\n" + process.soabi;
  for (const Package* const package : {&process.torch, &process.triton, &process.libc}) {
    key.append("\n").append(package->path).append("\n").append(package->identity);
  }
  for (const Package& engine : process.engines)
    key.append("\n").append(engine.path).append("\n").append(engine.identity);
  for (const NamedFile& file : process.files) key.append("\n").append(file.path).append("\n").append(file.identity);
  return key;
}

using Values = std::map<std::string, std::string>;

/// The variables that matter, canonical, without the file that torch names itself in every job. A file is there by its
/// path.
Values values_of_writer(const Writer& writer) {
  Values values = environment_values(writer.environment().values);
  std::set<std::string_view> named;
  for (const NamedFile& file : writer.process().files) named.insert(file.variable);
  std::erase_if(values, [&named](const auto& one) {
    const Variable* const variable = find_variable(one.first);
    return variable != nullptr && variable->file != nullptr && !named.contains(one.first);
  });
  return values;
}

/// What probe() says of an interpreter, as far as the name of an extension module shows it: "cpython-311-x86_64-..." is
/// implementation cpython, version 3.11; a letter behind the number tells builds of one version apart.
Fact python_of(const std::string& soabi) {
  const size_t name = soabi.find_first_of("-0123456789");
  const size_t digits = soabi.find_first_of("0123456789");
  const size_t end = std::min(soabi.find_first_not_of("0123456789", std::min(digits, soabi.size())), soabi.size());
  if (soabi.empty()) return unknown_fact("the process has no extension module of Python loaded", kSource);
  if (name == 0 || digits == std::string::npos || end - digits < 2) {
    return unknown_fact("the version of Python cannot be told from " + soabi, kSource);
  }
  const std::string version = soabi.substr(digits, 1) + "." + soabi.substr(digits + 1, end - digits - 1);
  return known_fact(canonical({{"implementation", soabi.substr(0, name)}, {"soabi", soabi}, {"version", version}}),
                    kSource);
}

/// Why nothing can be said of this process's packages; empty when they can be read.
std::string why_not_readable(const Process& process) {
  if (!process.whole)
    return "the process has more mapped files than are examined; mount another directory for it, with its --python";
  for (const Package* const package : {&process.torch, &process.triton}) {
    if (package->replaced) {
      return package->path + " was replaced after the process had loaded it; start the job again";
    }
  }
  return {};
}

}  // namespace

Jobs::Jobs(std::shared_ptr<Sight> sight, const WritersOptions& options)
    : sight_(std::move(sight)),
      limit_(options.process_limit),
      environments_(options.environments),
      records_(options.environments == nullptr ? std::string() : options.jobs_file, options.proc, limit_) {
  for (const JobRecord& record : records_.earlier()) restore(record);
}

/// A process whose environment is not kept any more is asked again.
void Jobs::restore(const JobRecord& record) {
  JobFacts job = unknown_job("its environment was not known when it first made something");
  if (!record.environment.empty()) {
    auto facts = environments_->find(record.environment);
    if (!facts) return;
    job = {JobFacts::Kind::kKnown, std::move(*facts), {}};
  }
  const auto stat = sight_->reader().stat_of(record.pid);
  Entry entry{record.identity, stat ? stat->owner : 0};
  job.user = entry.owner;
  entry.answer = std::make_shared<const JobFacts>(std::move(job));
  entry.environment = record.environment;
  entry.is_restored = true;
  state_.with([&](State& state) {
    entry.used = ++state.ticks;
    state.entries[record.pid] = std::move(entry);
  });
}

bool Jobs::Entry::lacks_torch() const {
  return answer && answer->kind == JobFacts::Kind::kKnown && answer->facts.has(Facet::kTorch) &&
         !answer->facts.get(Facet::kTorch).known;
}

std::optional<JobFacts> Jobs::recall(pid_t pid, const ProcessStat& stat) {
  const Answer answer = state_.with([&](State& state) -> Answer {
    const auto found = state.entries.find(pid);
    if (found == state.entries.end() || !(found->second.identity == stat.identity)) return nullptr;
    // Where an exec does not show, the files that are mapped have to be looked at again.
    if (found->second.process && !found->second.process->shows_exec) return nullptr;
    if (found->second.lacks_torch()) return nullptr;
    // It may be another program by now.
    const bool is_known = found->second.answer && found->second.answer->kind == JobFacts::Kind::kKnown;
    if (is_known && !stat.identity.shows_program()) return nullptr;
    found->second.used = ++state.ticks;
    return found->second.answer;
  });
  return answer ? std::optional<JobFacts>(*answer) : std::nullopt;
}

SteadyTime Jobs::deadline_of(const std::string& key, const JobQuestion& question) {
  const SteadyTime now = system_clock().now();
  return state_.with([&](State& state) {
    // Whoever is forgotten here waits once more.
    if (state.waiting.size() >= limit_ && !state.waiting.contains(key)) state.waiting.clear();
    Waiting& waiting = state.waiting[key];
    SteadyTime& until = question.makes ? waiting.make : waiting.look;
    if (now >= until + kWaitAgain) until = now + question.patience;
    return until;
  });
}

void Jobs::has_come(const std::string& key) {
  state_.with([&](State& state) { state.waiting.erase(key); });
}

JobFacts Jobs::learn(pid_t pid, const ProcessStat& stat, const std::shared_ptr<const Writer>& writer,
                     const JobQuestion& question, bool waits) {
  const Asked asked{pid, stat.identity, stat.owner};
  if (!writer) {
    return without_answer(asked,
                          "it cannot be looked at: it is another user's, or has ended; a mount of root's sees all",
                          question.makes);
  }
  if (writer->look()) {
    // A worker of a job reads and writes what the job does.
    const auto ancestor = nearest_ancestor(pid);
    if (ancestor && ancestor->second.answer) return *settle(asked, *ancestor->second.answer);
    return without_answer(
        asked,
        "it could not be looked at in time: its memory map is locked, or its file system is slow; start it again",
        question.makes);
  }
  const Process& process = writer->process();
  if (!process.has_package() && process.whole) return {JobFacts::Kind::kNeither, {}, {}};
  const std::string key = packages_key(process);
  JobFacts job = learn_observed(writer, {waits ? deadline_of(key, question) : system_clock().now(), question});
  if (job.kind == JobFacts::Kind::kKnown) has_come(key);
  return job;
}

/// Gives a process its answer. The first one counts, unless torch was missing from it.
Jobs::Answer Jobs::settle(const Asked& asked, JobFacts facts) {
  std::string name;
  facts.user = asked.owner;
  if (facts.kind == JobFacts::Kind::kKnown && environments_ != nullptr) {
    name = environments_->take(facts.facts, asked.owner, [this] { return in_use(); });
    if (name.empty()) {
      facts = unknown_job(
          "too many environments are in use on this host at once; start the job again when others have ended, or mount "
          "another directory for it");
    }
  }
  make_room();
  auto fresh = std::make_shared<const JobFacts>(std::move(facts));
  bool is_kept = false;
  auto answer = state_.notify_with([&](State& state) {
    Entry& entry = entry_of(state, asked);
    entry.used = ++state.ticks;
    entry.is_learning = false;
    const bool brings_torch =
        entry.lacks_torch() && fresh->facts.has(Facet::kTorch) && fresh->facts.get(Facet::kTorch).known;
    if (entry.answer && !brings_torch) return entry.answer;
    entry.answer = fresh;
    entry.environment = name;
    entry.is_restored = false;
    // A later program of a process whose exec does not show would get the answer of the earlier one.
    is_kept = !entry.process || entry.process->shows_exec;
    return fresh;
  });
  if (is_kept) records_.add({asked.pid, asked.identity, name});
  return answer;
}

JobFacts Jobs::without_answer(const Asked& asked, std::string why, bool makes) {
  if (makes) return *settle(asked, unknown_job(std::move(why)));
  make_room();
  return state_.notify_with([&](State& state) {
    Entry& entry = entry_of(state, asked);
    if (entry.answer) return *entry.answer;
    entry.used = ++state.ticks;
    entry.why = why;
    return later(std::move(why));
  });
}

/// An entry that does not show its program becomes one of the program that was seen then: if it has something of its
/// own it keeps to its answer, and what another process has given it may have been another program's.
Jobs::Entry& Jobs::entry_of(State& state, const Asked& asked) {
  Entry& entry = state.entries[asked.pid];
  const bool is_told = !entry.answer || entry.answer->kind == JobFacts::Kind::kUnknown;
  if (!entry.identity.shows_program() && is_told && entry.identity.may_be(asked.identity)) {
    entry.identity = asked.identity;
  }
  if (!asked.identity.may_be(entry.identity)) entry = {asked.identity, asked.owner};
  return entry;
}

/// Whether an entry is of this process, and of the program that it runs now.
bool Jobs::Entry::is_of(const Process& one) const {
  return identity == one.identity && (one.shows_exec || !process || have_same_packages(*process, one));
}

/// Returns the answer of a process, or makes this thread the one that looks for it.
Jobs::Turn Jobs::take_turn(const Process& process) {
  return state_.with([&](State& state) -> Turn {
    Entry& entry = entry_of(state, {process.pid, process.identity, process.owner});
    if (!entry.is_of(process)) entry = {process.identity, process.owner};
    entry.used = ++state.ticks;
    const bool gets_another = entry.lacks_torch() && !process.torch.path.empty();
    if (entry.answer && (!gets_another || entry.is_learning)) return {entry.answer, false};
    if (!entry.process || gets_another) {
      auto kept = std::make_shared<Process>(process);
      kept->memory.reset();  // a descriptor is remembered in one place
      entry.process = std::move(kept);
    }
    return {entry.answer, !std::exchange(entry.is_learning, true)};
  });
}

JobFacts Jobs::learn_observed(const std::shared_ptr<const Writer>& writer, const JobWait& wait) {
  const Process& process = writer->process();
  const Asked asked{process.pid, process.identity, process.owner};
  make_room();
  Turn turn;
  JobFacts found;
  do {
    turn = take_turn(process);
    if (turn.answer && !turn.learns) return *turn.answer;
    found = turn.learns ? find_out(*writer, wait) : await_other(asked, wait);
    // The other thread may have had less time than this one.
  } while (!turn.learns && found.kind == JobFacts::Kind::kLater && system_clock().now() < wait.until);
  if (found.kind != JobFacts::Kind::kLater) return *settle(asked, std::move(found));
  if (turn.learns) {
    state_.notify_with([&](State& state) {
      const auto entry = state.entries.find(process.pid);
      if (entry != state.entries.end() && entry->second.is_of(process)) entry->second.is_learning = false;
    });
  }
  // Until torch is known, the answer without it counts.
  if (turn.answer) return *turn.answer;
  if (wait.question.makes) {
    // What the process makes and what a process makes that it was started by have to be in the same place.
    const auto ancestor = nearest_ancestor(process.pid);
    if (ancestor && !ancestor->second.answer) {
      const Entry& entry = ancestor->second;
      (void)settle({ancestor->first, entry.identity, entry.owner}, unknown_job(found.why));
    }
  }
  return without_answer(asked, std::move(found.why), wait.question.makes);
}

JobFacts Jobs::find_out(const Writer& writer, const JobWait& wait) {
  // What was read up to a second ago may be older than what the process has set since.
  const auto now = observe_anew(writer.process().pid, writer.process().identity);
  const Writer& observed = now ? *now : writer;
  const Answer answer = inherited(observed, wait);
  return answer ? *answer : facts_of(observed, wait);
}

/// Waits for the thread that looks for an answer for the same process.
JobFacts Jobs::await_other(const Asked& asked, const JobWait& wait) {
  const auto answer_in = [&](const State& state) -> std::optional<Answer> {
    const auto found = state.entries.find(asked.pid);
    if (found == state.entries.end() || !(found->second.identity == asked.identity)) return Answer();
    if (found->second.is_learning && !found->second.answer) return std::nullopt;
    return found->second.answer;
  };
  const auto answer = wait.in_steps([&](SteadyTime step) {
    return state_.wait_until(
        step, [&](const State& state) { return answer_in(state).has_value(); },
        [&](const State& state) { return answer_in(state); });
  });
  return answer && *answer ? **answer : later(kNotInTime);
}

/// The nearest ancestor that was asked about and still lives.
std::optional<std::pair<pid_t, Jobs::Entry>> Jobs::nearest_ancestor(pid_t of) {
  auto stat = sight_->stat_of(of);
  for (int depth = 0; stat && stat->parent > 0 && depth < kAncestorLimit; ++depth) {
    const pid_t pid = stat->parent;
    stat = sight_->stat_of(pid);
    if (!stat) break;
    const bool is_asked_about = state_.with([pid](const State& state) { return state.entries.contains(pid); });
    if (is_asked_about) sight_->find_out(pid, *stat);
    auto entry = state_.with([&](const State& state) -> std::optional<Entry> {
      const auto found = state.entries.find(pid);
      if (found == state.entries.end() || !stat->identity.may_be(found->second.identity)) {
        return std::nullopt;
      }
      return found->second;
    });
    if (entry && (entry->process || entry->is_restored)) return std::pair(pid, std::move(*entry));
  }
  return std::nullopt;
}

/// A job that has changed its variables after its first request keeps its answer, and so have to the workers that it
/// starts afterwards: they read what the job has written. Their variables are those that the job has now.
Jobs::Answer Jobs::inherited(const Writer& writer, const JobWait& wait) {
  const auto found = nearest_ancestor(writer.process().pid);
  if (!found) return nullptr;
  const auto& [pid, ancestor] = *found;
  if (ancestor.process && !have_same_packages(*ancestor.process, writer.process())) return nullptr;
  const auto now = observe_anew(pid, ancestor.identity);
  if (!now) {
    const bool is_unknown = ancestor.answer && ancestor.answer->kind == JobFacts::Kind::kUnknown;
    return is_unknown ? ancestor.answer : nullptr;
  }
  if (!have_same_packages(now->process(), writer.process()) || values_of_writer(*now) != values_of_writer(writer) ||
      now->process().compiler != writer.process().compiler) {
    return nullptr;
  }
  if (ancestor.answer) return ancestor.answer;
  const JobFacts answer = await_other({pid, ancestor.identity, ancestor.owner}, wait);
  return answer.kind == JobFacts::Kind::kLater ? nullptr : std::make_shared<const JobFacts>(answer);
}

/// Looks at this very process again, with its environment of now. nullptr when that is not possible in time.
std::shared_ptr<const Writer> Jobs::observe_anew(pid_t pid, const ProcessIdentity& identity) {
  const auto stat = sight_->stat_of(pid);
  if (!stat || !stat->identity.may_be(identity)) return nullptr;
  const auto look = sight_->look_at(pid, *stat, true);
  const auto found = look ? sight_->result_of(*look, stat->owner) : std::nullopt;
  if (!found || !*found) return nullptr;
  const Process& seen = (*found)->process();
  return seen.pid == pid && seen.identity == identity ? *found : nullptr;
}

namespace {

/// The environment facet as environment_fact() would state it for these variables. `meaning` says what the files are
/// that they name.
Fact environment_of(const Writer& writer, const Fact& meaning) {
  Values values = values_of_writer(writer);
  for (const NamedFile& file : writer.process().files) {
    std::string value = named_value(meaning, file.variable);
    if (value.empty()) {
      values.erase(file.variable);
    } else {
      values[file.variable] = std::move(value);
    }
  }
  // The values are canonical, but those of files are no paths any more.
  Lines lines(values.begin(), values.end());
  Fact fact = known_fact(lines.empty() ? std::string(kNone) : canonical(lines), kSource);
  if (writer.environment().live) return fact;
  // The value stays: programs that were started under other variables have other files on this host.
  fact.known = false;
  fact.problem = kMemoryNotRead;
  return fact;
}

}  // namespace

JobFacts Jobs::facts_of(const Writer& writer, const JobWait& wait) {
  const Process& process = writer.process();
  if (std::string why = why_not_readable(process); !why.empty()) return later(std::move(why));
  Packages& packages = sight_->packages();
  std::vector<Facet> wanted;
  for (const Facet facet :
       {Facet::kTriton, Facet::kEngine, Facet::kTorch, Facet::kLibc, Facet::kEnvironment, Facet::kCompiler}) {
    const bool replaced = (facet == Facet::kLibc && process.libc.replaced) ||
                          (facet == Facet::kEngine && std::ranges::any_of(process.engines, &Package::replaced));
    if (path_for(facet, process).empty() || replaced) continue;
    wanted.push_back(facet);
    (void)packages.ask(facet, process);  // all are read at once, and waited for below
  }
  JobFacts job{JobFacts::Kind::kKnown, {}, {}};
  job.facts.set(Facet::kTorch, unknown_fact("the process has Triton loaded, and no torch", kSource));
  job.facts.set(Facet::kTriton, known_fact(std::string(kNone), kSource));
  job.facts.set(Facet::kLibc, unknown_fact("the process's C library was replaced after it was loaded, or is none that "
                                           "is known; start the job again",
                                           kSource));
  job.facts.set(Facet::kEngine, unknown_fact("the process's serving engine was replaced after it was loaded, or there "
                                             "is no torch that it would lie beside; start the job again",
                                             kSource));
  Fact meaning;
  for (const Facet facet : wanted) {
    auto fact = wait.in_steps([&](SteadyTime step) { return packages.await(facet, process, step); });
    if (!fact && facet == Facet::kCompiler) fact = unknown_fact(std::string("the C++ compiler") + kNextJob, kSource);
    if (!fact && facet == Facet::kEngine) fact = unknown_fact(std::string("the serving engine") + kNextJob, kSource);
    if (!fact) return later(kNotInTime);
    if (facet == Facet::kEnvironment) {
      meaning = std::move(*fact);
      continue;
    }
    if (facet == Facet::kCompiler && fact->known && fact->value == kHostCompiler) continue;
    if (!fact->known && is_needed_by_all(facet)) return later(std::move(fact->problem));
    job.facts.set(facet, std::move(*fact));
  }
  job.facts.set(Facet::kPython, python_of(process.soabi));
  job.facts.set(Facet::kEnvironment, environment_of(writer, meaning));
  return job;
}

}  // namespace inductorfs::fingerprint
