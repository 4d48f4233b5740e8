// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace inductorfs::cli {

/// What a command takes on its command line: an option, a flag (a bool), or an argument, whose name has no dashes.
struct KnownWord {
  std::string name;
  /// Gets the value, and may not move. An int64_t is seconds, a day at most; a uint64_t numbers something, from 1 on.
  std::variant<bool*, std::string*, std::vector<std::string>*, int64_t*, uint64_t*> place;
  std::string help;
  std::string value;  ///< what --help calls the value
  bool required = false;
  bool is_path = false;                       ///< what no file can have is refused
  bool one_each = false;                      ///< of a list: each value follows its own name
  std::vector<std::string> among = {};        ///< the only values, if any are here
  std::vector<std::string> excludes = {};     ///< words that were added before
  std::vector<std::string>* given = nullptr;  ///< gets each value as it was given
};

/// The words of a command, in the order of --help.
struct Words {
  KnownWord& add(std::string name, decltype(KnownWord::place) place, std::string help, std::string value = {}) {
    return all.emplace_back(KnownWord{std::move(name), place, std::move(help), std::move(value)});
  }
  /// Adds a path, which is stored as it was given. An empty one, of a script whose variable is not set, is refused:
  /// absolute() would take it for the current directory.
  KnownWord& add_path(std::string name, std::string& path, std::string help, std::string value = {}) {
    KnownWord& word = add(std::move(name), &path, std::move(help), std::move(value));
    word.is_path = true;
    return word;
  }
  void add_mountpoint(std::string& path) { add_path("MOUNTPOINT", path, "directory of the mount").required = true; }
  void add_json(bool& json) { add("--json", &json, "answer in JSON"); }

  std::vector<KnownWord> all;
};

}  // namespace inductorfs::cli
