// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "inductorfs/fingerprint/fingerprint.h"

namespace inductorfs::fingerprint {

/// A part of the facts whose files may be another user's.
enum class HostPart {
  kPackages,  ///< python, torch, triton; cuda without the driver: cuda_of_torch()
  kCompiler,
};

/// Reads a part as the options say: by a child process, or in this one. If a part was not read in time its facts are
/// unknown, with the reason.
[[nodiscard]] Fingerprint read_host(const ProbeOptions& options, HostPart part);

}  // namespace inductorfs::fingerprint
