// SPDX-License-Identifier: Apache-2.0
#include "writers_judge.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "inductorfs/fingerprint/variables.h"
#include "writers_packages.h"

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

Judgement judge_environment(const Writer& writer, std::span<const Facet> facets, const MountFacts& mount) {
  const auto theirs = environment_values(writer.environment().values);
  std::map<std::string, std::string> names = theirs;
  names.insert(mount.environment().begin(), mount.environment().end());
  for (const auto& [name, value] : names) {
    const Variable* const variable = find_variable(name);
    const std::string ours = value_of(mount.environment(), name);
    const std::string its = value_of(theirs, name);
    if (variable == nullptr || ours == its || !matters(*variable, facets)) continue;
    const auto shown = [](const std::string& text) { return text.empty() ? "unset" : "\"" + text + "\""; };
    return differs(name + " is " + shown(its) + " in the writer and " + shown(ours) + " for this mount (" +
                   std::string(variable->effect) + "); declare it for the mount, or change it in the job");
  }
  return matches();
}

Judgement judge_facet(Facet facet, const Writer& writer, std::span<const Facet> facets, const MountFacts& mount,
                      const FactOf& fact_of) {
  const Fact& mine = mount.get(facet);
  if (!mine.known) return unknown("this mount does not know " + std::string(to_string(facet)) + ": " + mine.problem);
  switch (facet) {
    case Facet::kTorch:
    case Facet::kTriton:
    case Facet::kLibc:
      return judge_package(facet, writer.process(), mine, fact_of);
    case Facet::kPython:
      return judge_python(writer.process(), mine);
    case Facet::kEnvironment:
      return judge_environment(writer, facets, mount);
    case Facet::kCuda:
    case Facet::kGpu:
    case Facet::kGpuArch:
    case Facet::kCpu:
    case Facet::kCpuIsa:
    case Facet::kCompiler:
      break;  // the host's: a process on it has no other
  }
  return matches();
}

}  // namespace

MountFacts::MountFacts(const Fingerprint& facts)
    : facts_(facts), environment_(environment_from_text(facts.get(Facet::kEnvironment).value)) {}

Judgement judge_writer(const Writer* writer, std::span<const Facet> facets, const MountFacts& mount,
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
    const bool worse = one.match == Match::kUnknown ? result.match != Match::kUnknown : result.match == Match::kMatches;
    if (one.match != Match::kMatches && worse) result = std::move(one);
  }
  return result;
}

}  // namespace inductorfs::fingerprint
