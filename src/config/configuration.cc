// SPDX-License-Identifier: Apache-2.0
#include <toml++/toml.h>

#include <filesystem>
#include <system_error>

#include "inductorfs/base/text.h"
#include "inductorfs/base/trusted_file.h"
#include "inductorfs/config/settings.h"
#include "inductorfs/config/text.h"

namespace inductorfs::config {
namespace {

constexpr uint64_t kFileLimit = 1ULL << 20;
constexpr std::string_view kExpected[] = {"a string or a number", "a list of strings", "true or false",
                                          "true or false"};

std::string position(const std::string& path, const toml::source_region& region) {
  return path + ":" + std::to_string(region.begin.line);
}

/// A scalar as the command line would spell it.
std::optional<std::string> scalar(const toml::node& node, Option::Kind kind) {
  const bool boolean = kind == Option::Kind::kSwitch || kind == Option::Kind::kToggle;
  if (const auto* flag = node.as_boolean(); flag != nullptr && boolean) return flag->get() ? "true" : "false";
  if (boolean) return std::nullopt;
  if (const auto* text = node.as_string(); text != nullptr) return text->get();
  if (const auto* number = node.as_integer(); number != nullptr && kind == Option::Kind::kText) {
    return std::to_string(number->get());
  }
  return std::nullopt;
}

std::optional<std::vector<std::string>> to_values(const toml::node& node, Option::Kind kind) {
  const auto* list = node.as_array();
  if (list == nullptr || kind != Option::Kind::kList) {
    std::optional<std::string> one = scalar(node, kind);
    if (!one) return std::nullopt;
    return std::vector<std::string>{std::move(*one)};
  }
  std::vector<std::string> values;
  for (const toml::node& item : *list) {
    std::optional<std::string> one = scalar(item, kind);
    if (!one) return std::nullopt;
    values.push_back(std::move(*one));
  }
  return values;
}

/// Words that others use for it, which have nothing of its spelling.
std::string meant_by(const std::string& key, const std::vector<std::string>& known) {
  const std::string name = key.substr(key.rfind('.') + 1);
  if (name != key) return suggestion(name, known);  // of a family
  if (name == "password") return "; did you mean password-file?";
  const bool is_server = name == "redis" || name == "server" || name == "host" || name.find("url") != std::string::npos;
  return is_server ? "; did you mean remote?" : suggestion(name, known);
}

tl::unexpected<Error> unknown_key(const std::string& name, const std::string& where,
                                  const std::vector<std::string>& known) {
  return fail(ErrorCode::kInvalid, "unknown key \"" + printable(name) + "\"" + meant_by(name, known) + ": " + where +
                                       ": inductorfs.conf(5) lists all keys");
}

tl::unexpected<Error> wrong_type(const std::string& name, const std::string& where, const std::string& expected) {
  return fail(ErrorCode::kInvalid, "wrong type for \"" + printable(name) + "\": " + where + ": give " + expected);
}

/// A table of NAME = value, as the option would be given for each.
Result<std::vector<std::string>> to_assignments(const toml::table& table, const std::string& path) {
  std::vector<std::string> values;
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const std::optional<std::string> value = scalar(node, Option::Kind::kText);
    if (!value) return wrong_type(name, position(path, node.source()), "a string or a number");
    values.push_back(name + "=" + *value);
  }
  return values;
}

Result<std::vector<fingerprint::Facet>> to_facets(const toml::node& node, const std::string& where) {
  const std::optional<std::vector<std::string>> names = to_values(node, Option::Kind::kList);
  if (!names) return wrong_type("facets", where, "a list of strings");
  std::vector<fingerprint::Facet> facets;
  for (const std::string& name : *names) {
    const Result<fingerprint::Facet> facet = fingerprint::facet_from_string(name);
    if (!facet) {
      std::string known;
      for (const fingerprint::Facet each : fingerprint::kAllFacets) {
        known.append(known.empty() ? "" : ", ").append(fingerprint::to_string(each));
      }
      return fail(ErrorCode::kInvalid,
                  "no such facet: \"" + printable(name) + "\": " + where + ": give some of " + known);
    }
    facets.push_back(*facet);
  }
  return facets;
}

Result<layout::RuleChange> to_change(const std::string& family, const toml::table& table, const std::string& path) {
  layout::RuleChange change;
  change.family = family;
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const std::string where = position(path, node.source());
    if (name == "shared") {
      if (!node.is_boolean()) return wrong_type(name, where, "true or false");
      change.shared = node.as_boolean()->get();
    } else if (name == "pattern") {
      if (!node.is_string()) return wrong_type(name, where, "a string");
      change.pattern = node.as_string()->get();
    } else if (name == "facets") {
      INDUCTORFS_TRY_ASSIGN(auto facets, to_facets(node, where));
      change.facets = std::move(facets);
    } else {
      return unknown_key("families." + family + "." + name, where, {"shared", "pattern", "facets"});
    }
  }
  return change;
}

Result<std::vector<layout::RuleChange>> to_changes(const toml::node& node, const std::string& path) {
  const toml::table* const families = node.as_table();
  if (families == nullptr) return wrong_type("families", position(path, node.source()), "tables [families.NAME]");
  std::vector<layout::RuleChange> changes;
  for (const auto& [key, one] : *families) {
    const std::string name(key.str());
    const toml::table* const table = one.as_table();
    if (table == nullptr) return wrong_type("families." + name, position(path, one.source()), "a table");
    INDUCTORFS_TRY_ASSIGN(auto change, to_change(name, *table, path));
    changes.push_back(std::move(change));
  }
  return changes;
}

Result<std::vector<std::string>> to_option(const Option& option, const toml::node& node, const std::string& path) {
  // Of the lists, those of NAME=VALUE can be tables.
  const bool assignments = option.kind == Option::Kind::kList && option.value_name == "NAME=VALUE";
  if (const auto* table = node.as_table(); table != nullptr && assignments) return to_assignments(*table, path);
  std::optional<std::vector<std::string>> given = to_values(node, option.kind);
  if (given) return std::move(*given);
  return wrong_type(std::string(option.name), position(path, node.source()),
                    std::string(kExpected[static_cast<size_t>(option.kind)]));
}

Result<Configuration> to_configuration(const toml::table& table, const std::string& path) {
  Configuration configuration;
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    if (name == "families") {
      INDUCTORFS_TRY_ASSIGN(auto changes, to_changes(node, path));
      configuration.families = std::move(changes);
      continue;
    }
    const Option* const option = find_option(name);
    if (option == nullptr) {
      std::vector<std::string> known{"families"};
      for (const Option& one : mount_options()) known.emplace_back(one.name);
      return unknown_key(name, position(path, node.source()), known);
    }
    INDUCTORFS_TRY_ASSIGN(auto given, to_option(*option, node, path));
    configuration.values.emplace(name, std::move(given));
  }
  return configuration;
}

/// Of a unit it is the name that systemd-escape(1) makes of the mountpoint, and easily another one.
tl::unexpected<Error> not_there(const std::string& path) {
  constexpr size_t kMostLooked = 1'000;
  const std::string directory = directory_of(path);
  std::vector<std::string> names;
  std::error_code failed;
  for (auto at = std::filesystem::directory_iterator(directory, failed);
       !failed && at != std::filesystem::directory_iterator() && names.size() < kMostLooked; at.increment(failed)) {
    if (at->path().extension() == ".toml") names.push_back(printable(at->path().filename().string()));
  }
  return fail(ErrorCode::kNotFound, "cannot read the configuration: " + path + ": it does not exist" +
                                        suggestion(path.substr(directory.size() + 1), names) +
                                        " (for a local cache write remote = \"none\" into it)");
}

}  // namespace

Result<Configuration> read_configuration(const std::string& path) {
  const Result<std::string> text = read_trusted_file(path, kFileLimit);
  if (!text && text.error().code() == ErrorCode::kNotFound) return not_there(path);
  if (!text) {
    const std::string why = text.error().what().empty() ? "it does not exist" : text.error().what();
    return fail(text.error().code(), "cannot read the configuration: " + path + ": " + why);
  }
  try {
    return to_configuration(toml::parse(*text, path), path);
  } catch (const toml::parse_error& error) {
    std::string why = printable(std::string(error.description()));
    if (why.ends_with("could not determine value type"))
      why += ": write text in quotes, as in remote = \"redis://HOST\"";
    return fail(ErrorCode::kInvalid,
                "the configuration is not valid TOML: " + position(path, error.source()) + ": " + why);
  }
}

Result<void> change_families(const Settings& settings, const std::string& file) {
  if (settings.families.empty()) return {};
  Result<void> changed = layout::change_rules(settings.families);
  if (!changed) return fail(std::move(changed).error().with_context(file + ": families"));
  return {};
}

}  // namespace inductorfs::config
