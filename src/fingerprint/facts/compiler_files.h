// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fingerprint/common/compiler_call.h"
#include "fingerprint/common/in_root.h"
#include "fingerprint/common/key_memory.h"
#include "inductorfs/fingerprint/fingerprint.h"

namespace inductorfs::fingerprint {

/// What is read of a compiler: the files that decide what it makes. Immutable value.
struct CompilerFiles {
  struct Part {
    std::string name;  ///< what it is to the compiler, such as cc1plus: equal for equal installations
    std::string path;  ///< the file, without symbolic links
  };
  std::string kind;     ///< gcc or clang
  std::string version;  ///< the name of the directory with its parts, such as 12 or 12.2.0
  std::string target;   ///< of gcc, such as x86_64-linux-gnu
  std::string libstdcxx;
  std::vector<Part> parts;
};
/// Finds the parts of a compiler by the rules of gcc and clang, and runs nothing. `search` is the PATH of the process.
/// kInvalid, with the file and a remedy, when they cannot be told.
[[nodiscard]] Result<CompilerFiles> find_compiler_files(const InRoot& root, const std::string& driver,
                                                        const CompilerCall& call);

/// A question for the compiler that torch would run. Immutable value; what it refers to outlives it.
struct CompilerRequest {
  CompilerCall call;
  const InRoot& root;  ///< of the process
  /// What the host's own compiler facet is about; none: this is the question for it.
  std::optional<CompilerCall> host{};
};
/// The value of compiler_fact() for a compiler that is the host's own.
inline constexpr std::string_view kHostCompiler = "the host's";
/// Returns the compiler facet, identified by content alone: equal for the same files on every host with such a CPU
/// (`cpu`: the cpu facet). kHostCompiler when it is the very file that the host's own facet is about; for a
/// process with another root its parts have to be the host's, too. Reads some 40 MB that `memory` does not have.
[[nodiscard]] Fact compiler_fact(const CompilerRequest& request, const Fact& cpu, KeyMemory& memory);

}  // namespace inductorfs::fingerprint
