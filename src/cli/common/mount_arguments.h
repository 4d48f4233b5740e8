// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/common/words.h"
#include "inductorfs/base/result.h"
#include "inductorfs/config/settings.h"

namespace inductorfs::cli {

/// The arguments of a command line that set the options of a mount (config::mount_options()), with --config. They stay
/// text until settings are made from them, because the configuration file comes before them. It cannot be copied,
/// because words have addresses of its members. Needs external synchronisation.
class MountArguments {
 public:
  MountArguments() = default;
  MountArguments(const MountArguments&) = delete;
  MountArguments& operator=(const MountArguments&) = delete;
  ~MountArguments() = default;

  void add_to(Words& words, const std::string& config_help);
  /// Adds only the options that concern the facts of this host.
  void add_facts_to(Words& words, const std::string& config_help);
  /// Adds only the options that name a server and say how to reach it.
  void add_remote_to(Words& words, const std::string& config_help);
  /// Adds only the options with these names.
  void add_chosen_to(Words& words, const std::string& config_help, std::span<const std::string_view> names);
  /// kInvalid for a value that no mount can have, and for options that contradict each other.
  [[nodiscard]] Result<void> check() const;

  /// Returns the options as they were given, by name; an option that was not given is absent.
  [[nodiscard]] config::RawValues values() const;
  /// Returns the configuration file as it was named; empty when none was.
  [[nodiscard]] const std::string& file() const { return file_; }

  /// Makes settings from the defaults, then the file, then the command line.
  [[nodiscard]] Result<config::Settings> settings(const std::string& mountpoint, const config::User& user,
                                                  const config::Environment& environment) const;
  /// Makes settings as settings() does, without what only a mount needs.
  [[nodiscard]] Result<config::Settings> facts_settings() const;

 private:
  /// The place of the values of one option.
  struct Given {
    const config::Option* option = nullptr;
    std::string text;
    bool flag = false;
    std::vector<std::string> values;  ///< as they were given
  };
  void add(Words& words, const config::Option& option);
  [[nodiscard]] Result<void> check_toggles() const;
  void add_file(Words& words, const std::string& config_help);
  [[nodiscard]] Result<void> apply_to(config::Settings& settings) const;

  std::string file_;
  std::list<Given> given_;
};

}  // namespace inductorfs::cli
