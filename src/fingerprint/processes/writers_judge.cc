// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/processes/writers_judge.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "fingerprint/processes/writers_packages.h"
#include "inductorfs/fingerprint/variables.h"

namespace inductorfs::fingerprint {
namespace {

constexpr std::string_view kNothing = "nothing";
constexpr std::string_view kOwnMount = "; give that environment a mount of its own (--python)";

Judgement matches() { return {Match::kMatches, {}}; }
Judgement unknown(std::string why) { return {Match::kUnknown, std::move(why)}; }
Judgement differs(std::string why) { return {Match::kDiffers, std::move(why)}; }

/// The first line that the two texts do not share, of each.
std::pair<std::string, std::string> first_difference(std::string_view ours, std::string_view theirs) {
  const auto lines_only_in = [](std::string_view text, std::string_view other) {
    for (const std::string_view line : lines_of(text)) {
      const auto parts = split_line(line);
      if (!parts || value_of(other, parts->first).value_or("") != parts->second) return std::string(line);
    }
    return std::string(kNothing);
  };
  return {lines_only_in(ours, theirs), lines_only_in(theirs, ours)};
}

/// torch, triton and libc: the writer's fact as the probe would state it.
Judgement judge_package(Facet facet, const Process& process, const Fact& mine, const FactOf& fact_of) {
  const std::string name(to_string(facet));
  const Package& package = package_for(facet, process);
  if (package.path.empty()) {
    // A job with torch and without Triton is an environment too; one that has only Triton says nothing of torch.
    if (facet != Facet::kTriton) return unknown("the writer has no " + name + " loaded");
    if (mine.is_none()) return matches();
    return differs("the writer's torch has no triton beside it, this mount's has" + std::string(kOwnMount));
  }
  if (package.replaced) {
    return unknown("the writer's " + name + " (" + package.path +
                   ") was replaced after it was loaded; start the job again");
  }
  if (mine.is_none()) {
    return differs("the writer has " + package.path + ", this mount knows no " + name + std::string(kOwnMount));
  }
  const auto theirs = fact_of(facet, process);
  if (!theirs) return {Match::kLater, package.path + " has to be read first"};
  if (!theirs->known) return unknown("the writer's " + name + ": " + theirs->problem);
  const auto [here, there] = first_difference(mine.value, theirs->value);
  // A mount may know more of its C library than that one's file says.
  if (mine.value == theirs->value || (facet == Facet::kLibc && there == kNothing)) return matches();
  return differs("the writer's " + name + " (" + package.path + ") has " + there + ", this mount's has " + here +
                 std::string(kOwnMount));
}

/// The packages that the writer has mapped, or that lie beside its torch.
Judgement judge_engine(const Process& process, const Fact& mine, const FactOf& fact_of) {
  if (process.torch.path.empty()) return unknown("the writer has no torch loaded, beside which its engine would lie");
  for (const Package& engine : process.engines) {
    if (engine.replaced) {
      return unknown("the writer's " + engine.path + " was replaced after it was loaded; start the engine again");
    }
  }
  const auto theirs = fact_of(Facet::kEngine, process);
  if (!theirs) return {Match::kLater, "the serving engines in " + process.site.path + " have to be read first"};
  if (!theirs->known) return unknown("the writer's serving engine: " + theirs->problem);
  if (mine.value == theirs->value) return matches();
  const auto [here, there] = first_difference(mine.value, theirs->value);
  return differs("the writer's serving engines (" + theirs->source + ") have " + there + ", this mount's have " + here +
                 std::string(kOwnMount));
}

Judgement judge_python(const Process& process, const Fact& mine) {
  if (process.soabi.empty()) return unknown("the writer has no extension module of Python loaded");
  const std::string ours = value_of(mine.value, "soabi").value_or("");
  if (ours == process.soabi) return matches();
  return differs("the writer's interpreter is " + process.soabi + ", this mount's is " + ours + std::string(kOwnMount));
}

/// The value a mapping has for a name; empty for unset, which no canonical value is.
std::string value_of(const std::map<std::string, std::string>& values, const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? std::string() : found->second;
}

/// A variable in the writer's environment and in the mount's. Immutable value.
struct Compared {
  const Variable& variable;
  std::string name;
  std::string ours;  ///< canonical; empty when it means the same as unset
  std::string its;
  std::string path;  ///< of a variable that names a file: the writer's value
};

Judgement judge_variable(const Compared& one) {
  if (const auto why = why_not_known(one.ours); one.variable.file != nullptr && !why.empty()) {
    return unknown("this mount does not know what its " + one.name + " names: " + std::string(why));
  }
  if (const auto why = why_not_known(one.its); one.variable.file != nullptr && !why.empty()) {
    return unknown("the writer's " + one.name + " names a file that is not known: " + std::string(why));
  }
  if (one.ours == one.its) return matches();
  const auto quoted = [](const std::string& text) { return "\"" + text + "\""; };
  const auto shown = [&](const std::string& text) { return text.empty() ? "unset" : quoted(text); };
  std::string theirs = shown(one.its);
  if (!one.path.empty()) {
    theirs = quoted(one.path) + (one.its.empty() ? " (what is used without it)" : " (" + one.its + ")");
  }
  return differs(one.name + " is " + theirs + " in the writer and " + shown(one.ours) + " for this mount (" +
                 std::string(one.variable.effect) + "); declare it for the mount, or change it in the job");
}

/// Says whether `one` decides before `other`: a difference does before what is unknown, and that before what has to be
/// read first.
bool decides(const Judgement& one, const Judgement& other) {
  constexpr auto kRank = [](Match match) {
    if (match == Match::kDiffers) return 0;
    if (match == Match::kUnknown) return 1;
    return match == Match::kLater ? 2 : 3;
  };
  return kRank(one.match) < kRank(other.match);
}

/// Returns the canonical value of a writer's variable that names a file; empty when the file has to be read first.
std::optional<std::string> file_value(const std::string& name, const Process& process, const FactOf& fact_of) {
  const bool named = std::any_of(process.files.begin(), process.files.end(),
                                 [&name](const NamedFile& file) { return file.variable == name; });
  if (!named) return std::string();  // the file that torch names in every job
  const auto fact = fact_of(Facet::kEnvironment, process);
  if (!fact) return std::nullopt;
  return named_value(*fact, name);
}

Judgement judge_environment(const Writer& writer, std::span<const Facet> facets, const ExpectedFacts& mount,
                            const FactOf& fact_of) {
  const auto theirs = environment_values(writer.environment().values);
  std::map<std::string, std::string> names = theirs;
  names.insert(mount.environment().begin(), mount.environment().end());
  Judgement result = matches();
  for (const auto& [name, value] : names) {
    const Variable* const variable = find_variable(name);
    if (variable == nullptr || !matters(*variable, facets)) continue;
    Compared one{*variable, name, value_of(mount.environment(), name), value_of(theirs, name), {}};
    bool later = false;
    if (variable->file != nullptr && !one.its.empty()) {
      const auto meaning = file_value(name, writer.process(), fact_of);
      one.path = std::exchange(one.its, meaning.value_or(""));
      later = !meaning;
    }
    Judgement judgement = later
                              ? Judgement{Match::kLater, one.path + ", which " + name + " names, has to be read first"}
                              : judge_variable(one);
    if (decides(judgement, result)) result = std::move(judgement);
  }
  if (Judgement later = unknown(kMemoryNotRead); !writer.environment().live && decides(later, result)) return later;
  return result;
}

Judgement judge_facet(Facet facet, const Writer& writer, std::span<const Facet> facets, const ExpectedFacts& mount,
                      const FactOf& fact_of) {
  const Fact& mine = mount.get(facet);
  if (!mine.known) return unknown("this mount does not know " + std::string(to_string(facet)) + ": " + mine.problem);
  switch (facet) {
    case Facet::kTorch:
    case Facet::kTriton:
    case Facet::kLibc:
      return judge_package(facet, writer.process(), mine, fact_of);
    case Facet::kEngine:
      return judge_engine(writer.process(), mine, fact_of);
    case Facet::kPython:
      return judge_python(writer.process(), mine);
    case Facet::kEnvironment:
      return judge_environment(writer, facets, mount, fact_of);
    case Facet::kCuda:
    case Facet::kGpu:
    case Facet::kGpuArch:
    case Facet::kCpu:
    case Facet::kCpuIsa:
    case Facet::kCompiler:
    case Facet::kTrust:
      break;  // the host's: a process on it has no other
  }
  return matches();
}

}  // namespace

ExpectedFacts::ExpectedFacts(const Fingerprint& facts)
    : facts_(facts), environment_(environment_from_text(facts.get(Facet::kEnvironment).value)) {}

Judgement judge_writer(const Writer* writer, std::span<const Facet> facets, const ExpectedFacts& mount,
                       const FactOf& fact_of) {
  if (writer == nullptr) {
    return unknown("the writer cannot be looked at: it is of another pid namespace or another user, or has ended");
  }
  if (!writer->process().has_package()) {
    return unknown("process " + std::to_string(writer->process().pid) +
                   " has neither torch nor Triton loaded, nor has one that started it");
  }
  Judgement result = matches();
  for (const Facet facet : facets) {
    Judgement one = judge_facet(facet, *writer, facets, mount, fact_of);
    if (one.match == Match::kDiffers) return one;
    if (decides(one, result)) result = std::move(one);
  }
  return result;
}

}  // namespace inductorfs::fingerprint
