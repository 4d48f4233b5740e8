// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <toml++/toml.h>

#include <algorithm>

#include "inductorfs/base/fd.h"
#include "settings.h"

namespace inductorfs::daemon {
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

Result<RawValues> to_raw(const toml::table& table, const std::string& path) {
  RawValues values;
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const std::span<const Option> options = mount_options();
    const auto option =
        std::find_if(options.begin(), options.end(), [&](const Option& known) { return known.name == name; });
    if (option == options.end()) {
      return fail(ErrorCode::kInvalid, "unknown key \"" + printable(name) + "\": " + position(path, node.source()) +
                                           ": see inductorfs.conf(5) for the keys there are");
    }
    std::optional<std::vector<std::string>> given = to_values(node, option->kind);
    if (!given) {
      return fail(ErrorCode::kInvalid, "wrong type of \"" + name + "\": " + position(path, node.source()) + ": give " +
                                           std::string(kExpected[static_cast<size_t>(option->kind)]));
    }
    values.emplace(name, std::move(*given));
  }
  return values;
}

}  // namespace

Result<RawValues> read_configuration(const std::string& path) {
  const Result<std::string> text = read_file(AT_FDCWD, path, kFileLimit);
  if (!text) {
    const std::string why = text.error().what().empty() ? "it does not exist" : text.error().what();
    return fail(text.error().code(), "configuration cannot be read: " + path + ": " + why);
  }
  try {
    return to_raw(toml::parse(*text, path), path);
  } catch (const toml::parse_error& error) {
    return fail(ErrorCode::kInvalid, "configuration is no TOML: " + position(path, error.source()) + ": " +
                                         printable(std::string(error.description())));
  }
}

}  // namespace inductorfs::daemon
