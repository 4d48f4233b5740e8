// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fingerprint/common/in_root.h"
#include "inductorfs/base/result.h"

/// Which C++ compiler torch would run in a process. Nothing of the process's is run to find that out.
namespace inductorfs::fingerprint {

/// What the environment of a process says about it. Immutable value.
struct CompilerCall {
  std::string command;  ///< CXX, or g++
  std::string search;   ///< PATH
  /// The variables that are set and choose a compiler or its parts in a way that is not followed here; mostly none.
  std::vector<std::string> unfollowed{};
  bool operator==(const CompilerCall&) const = default;
};
/// Says whether compiler_call() needs a variable.
[[nodiscard]] bool names_compiler(std::string_view variable);
[[nodiscard]] CompilerCall compiler_call(const std::map<std::string, std::string>& environment);
/// Returns the call of this process. Its environment must not change meanwhile.
[[nodiscard]] CompilerCall own_compiler_call();

/// A compiler that was found. Immutable value.
struct CompilerPlace {
  std::string driver;                ///< the program that the call leads to, without symbolic links
  std::vector<std::string> options;  ///< further words of the command
};
/// Finds the program that a call means, through ccache to the compiler behind. kNotFound when there is none, kInvalid
/// when it cannot be told.
[[nodiscard]] Result<CompilerPlace> find_compiler(const InRoot& root, const CompilerCall& call);

/// Returns an error if a variable is set whose name begins so.
[[nodiscard]] Result<void> check_followed(const CompilerCall& call, std::string_view prefix);

/// Returns the first program of this name in the directories of a PATH; empty when there is none. Directories that are
/// not absolute are passed over: they are others for each working directory.
[[nodiscard]] std::string program_in(const InRoot& root, const std::string& search, const std::string& name);

}  // namespace inductorfs::fingerprint
