// SPDX-License-Identifier: Apache-2.0
// Options that a process's environment gives, and options that contradict each other.
#include <algorithm>
#include <cctype>
#include <utility>

#include "inductorfs/config/settings.h"
#include "inductorfs/fingerprint/variables.h"

namespace inductorfs::config {

std::string variable_of(const Option& option) {
  std::string name = "INDUCTORFS_";
  for (const char c : option.name)
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

Result<std::vector<GivenValues>> given_by(const std::map<std::string, std::string>& variables,
                                          const std::string& base) {
  std::vector<GivenValues> given;
  for (const Option& option : mount_options()) {
    const std::string variable = variable_of(option);
    const auto found = variables.find(variable);
    if (found == variables.end()) continue;
    const std::string& text = found->second;
    std::vector<std::string> values{text};
    if (option.kind == Option::Kind::kList) {
      values.clear();
      for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find(',', at), text.size());
        if (end > at) values.push_back(text.substr(at, end - at));
        at = end + 1;
      }
    }
    const bool is_switch = option.kind == Option::Kind::kSwitch || option.kind == Option::Kind::kToggle;
    if (is_switch && text != "true" && text != "false") {
      return fail(ErrorCode::kInvalid, std::string(option.name) + " \"" + printable(text) + "\": variable " + variable +
                                           ": give true or false, or unset the variable");
    }
    given.push_back({{{std::string(option.name), std::move(values)}}, "variable " + variable, base});
  }
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
  const std::vector<std::string> on{"true"};
  for (const auto& [name, given] : values) {
    const auto negation = values.find("no-" + name);
    if (negation == values.end() || negation->second != on || given.empty()) continue;
    return fail(ErrorCode::kInvalid,
                "--" + name + " and --no-" + name + " contradict each other: " + where + ": give one of them");
  }
  return {};
}

std::string why_nothing_is_published(const Settings& settings) {
  if (settings.remote.empty() || (!settings.read_only && !settings.no_publish)) return {};
  return std::string("this mount publishes nothing (") + (settings.read_only ? "--read-only)" : "--no-publish)");
}

}  // namespace inductorfs::config
