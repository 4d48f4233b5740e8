// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "inductorfs/fingerprint/fingerprint.h"

namespace inductorfs::fingerprint {

/// A part of the facts whose files may be another user's.
enum class HostPart {
  kPackages,  ///< python, torch, triton; cuda without the driver: cuda_of_torch()
  kCompiler,
  kEngine,       ///< apart from kPackages: what cannot be read in time takes nothing else with it
  kEnvironment,  ///< what the files mean that the declared variables name (named_files_fact())
};

/// Reads a part as the options say: by a child process, or in this one. If a part was not read in time its facts are
/// unknown, with the reason.
[[nodiscard]] Fingerprint read_host(const ProbeOptions& options, HostPart part);
/// Reads HostPart::kEnvironment; `torch` and `triton` are the packages' directories, empty when there is none.
[[nodiscard]] Fact read_declared(const ProbeOptions& options, const std::string& torch, const std::string& triton);
/// Reads HostPart::kEngine, from the folders in which the interpreter looks for modules.
[[nodiscard]] Fact read_engine(const ProbeOptions& options, const std::vector<std::string>& sites);

}  // namespace inductorfs::fingerprint
