// SPDX-License-Identifier: Apache-2.0
// Options that a process's environment gives, and options that contradict each other.
#include "inductorfs/config/given.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "inductorfs/base/text.h"
#include "inductorfs/config/settings.h"
#include "inductorfs/fingerprint/variables.h"

namespace inductorfs::config {
namespace {

constexpr std::string_view kPrefix = "INDUCTORFS_";
/// The program's own, between its processes and for its tests, and those of CONTRIBUTING.md, without the prefix.
constexpr std::array<std::string_view, 46> kOthers{"BUILD",
                                                   "BUILD_DIR",
                                                   "CHAOS_SECONDS",
                                                   "CHAOS_SEED",
                                                   "CRASH_DRIVER",
                                                   "CROSS_RULE",
                                                   "CROSS_USER",
                                                   "DICTIONARY_FILE",
                                                   "END_ON_REFUSED_CALL",
                                                   "ENVIRONMENTS_SECONDS",
                                                   "FAIL_POINT",
                                                   "FAIL_POINT_ONCE",
                                                   "FAULTY_CALLS",
                                                   "FAULTY_STORE",
                                                   "FUZZ_SECONDS",
                                                   "GPU_PROBE",
                                                   "HEADER_CACHE",
                                                   "INSTALL_DEPS",
                                                   "MANY_ENTRIES",
                                                   "MATRIX",
                                                   "MATRIX_CELLS",
                                                   "MODEL_SEEDS",
                                                   "OTHER_PROGRAM",
                                                   "PACKAGE_JOBS",
                                                   "PACKAGE_REQUEST",
                                                   "POWER_CUTS",
                                                   "POWER_CUT_SEED",
                                                   "PROGRAM",
                                                   "READER_REQUEST",
                                                   "REMOUNTS",
                                                   "REWRITE_GOLDEN",
                                                   "SANITIZED",
                                                   "SANITIZER",
                                                   "SERVING_LONG",
                                                   "SOURCE_ROOT",
                                                   "STORM_ROUNDS",
                                                   "STRESS_SECONDS",
                                                   "STRESS_THREADS",
                                                   "TAKEN_OVER",
                                                   "TEST_BACKING",
                                                   "TEST_SANITIZED",
                                                   "TIDY_JOBS",
                                                   "TRIAL_ROUNDS",
                                                   "VENVS",
                                                   "VERSION",
                                                   "WIPE_STEPS"};

/// Kubernetes tells each pod of a service called "inductorfs" by variables of these forms.
bool is_of_service(std::string_view name) {
  return name == "PORT" || name.starts_with("PORT_") || name.ends_with("_SERVICE_HOST") || name == "SERVICE_HOST" ||
         name == "SERVICE_PORT" || name.starts_with("SERVICE_PORT_") ||
         name.find("_SERVICE_PORT") != std::string_view::npos || name.ends_with("_PORT") ||
         name.find("_PORT_") != std::string_view::npos;
}

/// Of each pair one alone can be in force.
struct Pair {
  std::string_view one;
  std::string_view other;
  std::string_view why;
};
constexpr std::array kExclusive{
    Pair{"also", "no-also", "contradict each other"},
    Pair{"python", "fingerprint", "exclude each other, as the file of --fingerprint has the facts of an interpreter"}};

bool asks_for(const RawValues& values, std::string_view option) {
  const auto found = values.find(option);
  return found != values.end() && !found->second.empty() && found->second.back() != "false";
}

std::string_view counterpart(std::string_view option) {
  for (const Pair& pair : kExclusive) {
    if (option == pair.one) return pair.other;
    if (option == pair.other) return pair.one;
  }
  return {};
}

/// The variable of an option that is nearest; else one that begins as the name does, or goes on: PASSWORD, REMOTE_URL.
std::string likely(const std::string& name, const std::vector<std::string>& known) {
  constexpr size_t kLeast = 4;
  if (std::string nearest = nearest_name(name, known); !nearest.empty()) return nearest;
  for (const std::string& one : known) {
    const bool goes_on = name.starts_with(one + "_") || one.starts_with(name + "_");
    if (goes_on && std::min(name.size(), one.size()) >= kPrefix.size() + kLeast) return one;
  }
  return {};
}

}  // namespace

Error refused_value(std::string_view name, const std::string& value, const std::string& where, const Error& why) {
  constexpr size_t kShown = 256;
  std::string text(name);
  const std::string shown = printable(value.substr(0, kShown)) + (value.size() > kShown ? "..." : "");
  text.append(" \"").append(shown).append("\": ").append(where).append(": ").append(why.what());
  return Error(ErrorCode::kInvalid, std::move(text));
}

std::vector<std::string> unknown_variables(const std::map<std::string, std::string>& variables) {
  constexpr size_t kMost = 10;
  constexpr size_t kShown = 128;
  std::vector<std::string> known;
  for (const Option& option : mount_options()) known.push_back(variable_of(option));
  std::vector<std::string> lines;
  for (const auto& [name, value] : variables) {
    if (!name.starts_with(kPrefix) || lines.size() == kMost) continue;
    const std::string_view rest = std::string_view(name).substr(kPrefix.size());
    if (std::ranges::find(known, name) != known.end() || is_of_service(rest)) continue;
    if (std::ranges::find(kOthers, rest) != kOthers.end()) continue;
    const std::string meant = likely(name, known);
    lines.push_back("no option has the variable " + printable(name.substr(0, kShown)) +
                    (meant.empty() ? "" : "; did you mean " + meant + "?") +
                    "; it is ignored: inductorfs config show lists all options");
  }
  return lines;
}

std::string variable_of(const Option& option) {
  std::string name = "INDUCTORFS_";
  for (const char c : option.name)
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

Result<std::vector<GivenValues>> given_by(const std::map<std::string, std::string>& variables,
                                          const std::string& base) {
  std::vector<GivenValues> given;
  RawValues all;
  for (const Option& option : mount_options()) {
    const std::string variable = variable_of(option);
    const auto found = variables.find(variable);
    if (found == variables.end()) continue;
    const std::string& text = found->second;
    std::vector<std::string> values{text};
    if (option.kind == Option::Kind::kList) {
      values.clear();
      for (const std::string_view item : parts_of(text, ',')) {
        if (!item.empty()) values.emplace_back(item);
      }
    }
    const bool is_switch = option.kind == Option::Kind::kSwitch || option.kind == Option::Kind::kToggle;
    if (is_switch && text != "true" && text != "false") {
      return fail(ErrorCode::kInvalid, std::string(option.name) + " \"" + printable(text) + "\": variable " + variable +
                                           ": give true or false, or unset the variable");
    }
    all.emplace(option.name, values);
    given.push_back({{{std::string(option.name), std::move(values)}}, "variable " + variable, base});
  }
  INDUCTORFS_TRY(check_contradictions(all, "variables INDUCTORFS_..."));
  return given;
}

std::vector<std::string> declared_by(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> declared;
  for (const auto& [name, value] : variables) {
    const fingerprint::Variable* const variable = fingerprint::find_variable(name);
    if (variable == nullptr || printable(value) != value) continue;
    if (!fingerprint::environment_values({{name, value}}).empty()) declared.push_back(name + "=" + value);
  }
  return declared;
}

Result<void> check_contradictions(const RawValues& values, const std::string& where) {
  for (const Pair& pair : kExclusive) {
    if (!asks_for(values, pair.one) || !asks_for(values, pair.other)) continue;
    return fail(ErrorCode::kInvalid, "--" + std::string(pair.one) + " and --" + std::string(pair.other) + " " +
                                         std::string(pair.why) + ": " + where + ": give one of them");
  }
  return {};
}

void overrule(const RawValues& values, Settings& settings) {
  if (asks_for(values, "also")) settings.no_also = false;  // complete() heeds no_also, whatever `also` has
  if (asks_for(values, "fingerprint")) settings.python.clear();
  if (asks_for(values, "python")) settings.fingerprint.clear();
}

std::string overruled_by(const std::vector<GivenValues>& given, std::string_view option) {
  const std::string_view other = counterpart(option);
  std::string by;
  bool is_given = false;
  for (const GivenValues& one : given) {
    const bool again = asks_for(one.values, option);
    is_given = is_given || again;
    if (again) by.clear();
    if (asks_for(one.values, other)) by = std::string(other) + " (" + one.where + ")";
  }
  return is_given ? by : "";
}

std::string why_nothing_is_published(const Settings& settings) {
  if (settings.remote.empty() || (!settings.read_only && !settings.no_publish)) return {};
  return std::string("this mount publishes nothing (") + (settings.read_only ? "--read-only)" : "--no-publish)");
}

}  // namespace inductorfs::config
