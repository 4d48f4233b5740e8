// SPDX-License-Identifier: Apache-2.0
#include "jobs.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "facts.h"
#include "inductorfs/fingerprint/variables.h"
#include "named_files.h"

namespace inductorfs::fingerprint {
namespace {

/// As far as Sight looks for the process that started a compiler.
constexpr int kAncestorLimit = 16;
constexpr const char* kSource = "the process";

JobFacts unknown_job(std::string why) { return {JobFacts::Kind::kUnknown, {}, std::move(why)}; }

bool is_same_package(const Package& one, const Package& other) {
  return one.path == other.path && one.identity == other.identity && one.replaced == other.replaced;
}

/// Says whether two processes would be told the same, as far as their files go. Processes of one container have roots
/// with different names, and one mount namespace.
bool have_same_packages(const Process& one, const Process& other) {
  return is_same_package(one.torch, other.torch) && is_same_package(one.triton, other.triton) &&
         is_same_package(one.libc, other.libc) && one.soabi == other.soabi && one.space == other.space &&
         one.root.empty() == other.root.empty() && one.other_root == other.other_root;
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
  const std::string who = "process " + std::to_string(process.pid);
  if (!process.whole) return who + " has more mapped files than are examined";
  for (const Package* const package : {&process.torch, &process.triton}) {
    if (package->replaced) {
      return package->path + " was replaced after " + who + " had loaded it; start the job again";
    }
  }
  return {};
}

Fact compiler_of_container() {
  return unknown_fact(
      "the compiler of a container is not looked at, and C++ artefacts depend on it; to share them, mount in the "
      "container, or declare the environment of its jobs (--fingerprint)",
      kSource);
}

}  // namespace

std::optional<JobFacts> Jobs::recall(pid_t pid, const ProcessStat& stat) {
  const Answer answer = state_.with([&](State& state) -> Answer {
    const auto found = state.entries.find(pid);
    if (found == state.entries.end() || !(found->second.identity == stat.identity)) return nullptr;
    // Where an exec does not show, the files that are mapped have to be looked at again.
    if (found->second.process && !found->second.process->shows_exec) return nullptr;
    found->second.used = ++state.ticks;
    return found->second.answer;
  });
  return answer ? std::optional<JobFacts>(*answer) : std::nullopt;
}

JobFacts Jobs::learn(pid_t pid, const ProcessStat& stat, const std::shared_ptr<const Writer>& writer,
                     SteadyTime until) {
  if (!writer) {
    return *keep(
        pid, stat.identity,
        unknown_job("process " + std::to_string(pid) + " cannot be looked at: it is another user's, or ended"));
  }
  if (writer->look()) {
    // A worker of a job reads and writes what the job does.
    const auto ancestor = nearest_ancestor(pid);
    if (ancestor && ancestor->answer) return *keep(pid, stat.identity, *ancestor->answer);
    return *keep(pid, stat.identity,
                 unknown_job("process " + std::to_string(pid) +
                             " could not be looked at in time: its memory map is locked, or its file system is slow"));
  }
  const Process& process = writer->process();
  if (!process.has_package() && process.whole) return {JobFacts::Kind::kNeither, {}, {}};
  return *learn_observed(writer, until);
}

Jobs::Answer Jobs::keep(pid_t pid, const ProcessIdentity& identity, JobFacts facts) {
  make_room();
  auto fresh = std::make_shared<const JobFacts>(std::move(facts));
  return state_.notify_with([&](State& state) {
    Entry& entry = state.entries[pid];
    // The first answer counts. One that is being learned is left to the thread that learns it.
    if (entry.identity == identity && entry.answer) return entry.answer;
    if (!(entry.identity == identity && entry.process)) entry = {identity, nullptr, fresh, ++state.ticks};
    return fresh;
  });
}

Jobs::Answer Jobs::learn_observed(const std::shared_ptr<const Writer>& writer, SteadyTime until) {
  const Process& process = writer->process();
  make_room();
  bool begins = false;
  const auto is_mine = [&process](const Entry& entry) {
    return entry.identity == process.identity &&
           (process.shows_exec || !entry.process || have_same_packages(*entry.process, process));
  };
  Answer answer = state_.with([&](State& state) {
    Entry& entry = state.entries[process.pid];
    begins = !is_mine(entry) || (!entry.answer && !entry.process);
    if (begins) entry = {process.identity, std::make_shared<const Process>(process), nullptr, 0};
    entry.used = ++state.ticks;
    return entry.answer;
  });
  if (answer) return answer;
  std::shared_ptr<const JobFacts> fresh;
  if (begins) {
    // What was read up to a second ago may be older than what the process has set since.
    const auto now = observe_anew(process);
    const Writer& observed = now ? *now : *writer;
    fresh = inherited(observed, until);
    if (!fresh) fresh = std::make_shared<const JobFacts>(facts_of(observed, until));
  } else {
    const auto is_told = [&](const State& state) {
      const auto found = state.entries.find(process.pid);
      return found == state.entries.end() || !is_mine(found->second) || found->second.answer;
    };
    state_.wait_until(until, is_told, [](const State&) { return 0; });
    fresh = std::make_shared<const JobFacts>(unknown_job("its environment was not read in time"));
  }
  return state_.notify_with([&](State& state) {
    const auto found = state.entries.find(process.pid);
    if (found == state.entries.end() || !is_mine(found->second)) return fresh;
    if (!found->second.answer) found->second.answer = fresh;
    return found->second.answer;
  });
}

/// The nearest ancestor that was asked about and still lives.
std::optional<Jobs::Entry> Jobs::nearest_ancestor(pid_t of) {
  auto stat = sight_->reader().stat_of(of);
  for (int depth = 0; stat && stat->parent > 0 && depth < kAncestorLimit; ++depth) {
    const pid_t pid = stat->parent;
    stat = sight_->reader().stat_of(pid);
    if (!stat) break;
    auto entry = state_.with([&](const State& state) -> std::optional<Entry> {
      const auto found = state.entries.find(pid);
      if (found == state.entries.end() || !(found->second.identity == stat->identity)) return std::nullopt;
      return found->second;
    });
    if (entry && entry->process) return entry;
  }
  return std::nullopt;
}

/// A job that has changed its variables after its first request keeps its answer, and so have to the workers that it
/// starts afterwards: they read what the job has written. Their variables are those that the job has now.
Jobs::Answer Jobs::inherited(const Writer& writer, SteadyTime until) {
  const auto ancestor = nearest_ancestor(writer.process().pid);
  if (!ancestor || !have_same_packages(*ancestor->process, writer.process())) return nullptr;
  const auto now = observe_anew(*ancestor->process);
  if (!now) {
    const bool is_unknown = ancestor->answer && ancestor->answer->kind == JobFacts::Kind::kUnknown;
    return is_unknown ? ancestor->answer : nullptr;
  }
  if (!have_same_packages(now->process(), writer.process()) || values_of_writer(*now) != values_of_writer(writer)) {
    return nullptr;
  }
  if (ancestor->answer) return ancestor->answer;
  const pid_t pid = ancestor->process->pid;
  const auto answer_in = [&](const State& state) -> std::optional<Answer> {
    const auto found = state.entries.find(pid);
    if (found == state.entries.end() || !(found->second.identity == ancestor->identity)) return Answer();
    return found->second.answer ? std::optional<Answer>(found->second.answer) : std::nullopt;
  };
  return state_.wait_until(
      until, [&](const State& state) { return answer_in(state).has_value(); },
      [&](const State& state) { return answer_in(state).value_or(nullptr); });
}

/// Looks at this very process again, with its environment of now. nullptr when that is not possible in time.
std::shared_ptr<const Writer> Jobs::observe_anew(const Process& process) {
  const auto stat = sight_->reader().stat_of(process.pid);
  if (!stat || !(stat->identity == process.identity)) return nullptr;
  const auto look = sight_->look_at(process.pid, *stat, true);
  const auto found = look ? sight_->result_of(*look, stat->owner) : std::nullopt;
  if (!found || !*found || (*found)->process().pid != process.pid) return nullptr;
  return *found;
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
  return known_fact(lines.empty() ? std::string(kNone) : canonical(lines), kSource);
}

}  // namespace

JobFacts Jobs::facts_of(const Writer& writer, SteadyTime until) {
  const Process& process = writer.process();
  if (std::string why = why_not_readable(process); !why.empty()) return unknown_job(std::move(why));
  Packages& packages = sight_->packages();
  std::vector<Facet> wanted;
  for (const Facet facet : {Facet::kTorch, Facet::kTriton, Facet::kLibc, Facet::kEnvironment}) {
    const bool replaced = facet == Facet::kLibc && process.libc.replaced;
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
  Fact meaning;
  for (const Facet facet : wanted) {
    auto fact = packages.await(facet, process, until);
    if (!fact) return unknown_job(path_for(facet, process) + " was not read in time; the next job will find it read");
    if (facet == Facet::kEnvironment) {
      meaning = std::move(*fact);
      continue;
    }
    // A C library that says no version matters to compiled libraries only.
    if (!fact->known && facet != Facet::kLibc) return unknown_job(std::move(fact->problem));
    job.facts.set(facet, std::move(*fact));
  }
  job.facts.set(Facet::kPython, python_of(process.soabi));
  job.facts.set(Facet::kEnvironment, environment_of(writer, meaning));
  if (process.other_root) job.facts.set(Facet::kCompiler, compiler_of_container());
  return job;
}

size_t Jobs::remembered() const {
  return state_.with([](const State& state) { return state.entries.size(); });
}

/// Leaves room for one more.
void Jobs::make_room() {
  std::vector<std::pair<pid_t, ProcessIdentity>> all;
  state_.with([&](const State& state) {
    if (state.entries.size() < limit_) return;
    for (const auto& [pid, entry] : state.entries) all.emplace_back(pid, entry.identity);
  });
  if (all.empty()) return;
  std::erase_if(all, [this](const auto& one) {
    const auto stat = sight_->reader().stat_of(one.first);
    return stat && stat->identity == one.second;
  });
  state_.notify_with([&](State& state) {
    for (const auto& [pid, identity] : all) {
      const auto found = state.entries.find(pid);
      if (found != state.entries.end() && found->second.identity == identity) state.entries.erase(found);
    }
    while (state.entries.size() >= limit_ && !state.entries.empty()) {
      state.entries.erase(std::min_element(state.entries.begin(), state.entries.end(),
                                           [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
    }
  });
}

}  // namespace inductorfs::fingerprint
