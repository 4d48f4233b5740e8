// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/config/json.h"

/// What `doctor` finds: a line for each thing that it has looked at. These functions look at no daemon and at no mount.
namespace inductorfs::cli {

struct Diagnosis {
  enum class Kind {
    kGood,
    kNote,     ///< nothing is wrong, but it may surprise
    kWarning,  ///< something is not shared, or slower than it could be
    kBad,      ///< it does not work
  };
  Kind kind = Kind::kGood;
  std::string what;
  std::string remedy;  ///< empty for kGood
  bool operator==(const Diagnosis&) const = default;
};
[[nodiscard]] std::string_view to_string(Diagnosis::Kind kind);

/// Returns two lines for each finding that has a remedy, one for each other, and how many are bad.
[[nodiscard]] std::string findings_text(const std::vector<Diagnosis>& findings);

/// Findings about one mount, of its answer to `status`; `error` of it says why there is none.
[[nodiscard]] std::vector<Diagnosis> findings_of_mount(const config::Json& status);

/// A variable of this process; empty when it is not set.
using GetVariable = std::function<std::optional<std::string>(const char* name)>;
/// Returns the mountpoint of the inductorfs mount that a path lies in; empty when it lies in none.
using MountOf = std::function<std::string(const std::string& path)>;
/// Findings about the variables that torch and Triton read. `mountpoint` is one that the remedies name.
[[nodiscard]] std::vector<Diagnosis> findings_of_variables(const GetVariable& variable, const MountOf& mount_of,
                                                           const std::string& mountpoint);

/// Findings about the device /dev/fuse at this path, and the program that mounts for ordinary users.
[[nodiscard]] Diagnosis finding_of_device(const std::string& path);
[[nodiscard]] Diagnosis finding_of_helper(const std::string& search);
/// `type` is that of the file system which the store lies on, as the table of mounts has it.
[[nodiscard]] Diagnosis finding_of_store(const std::string& directory, std::string_view type);

}  // namespace inductorfs::cli
