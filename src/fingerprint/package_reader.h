// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "inductorfs/base/clock.h"
#include "inductorfs/fingerprint/fingerprint.h"
#include "writers_process.h"

namespace inductorfs::fingerprint {

/// Reads the torch, triton or libc facet of a process's environment in a child process, which is killed at the
/// deadline: a package may lie on a file system that does not answer. Blocks until then.
struct PackageRequest {
  Facet facet = Facet::kTorch;
  Process process;  ///< root, owner, packages and soabi count
  /// Where the packages are read when the process has another root; none: through its root, as long as it lives.
  std::shared_ptr<const Held> held;
  std::string cache_file;  ///< as ProbeOptions
  std::string program;     ///< as WritersOptions::package_reader
  Milliseconds deadline{30'000};
  std::string owner{};  ///< in the child, of a process with another root: its user
};
[[nodiscard]] Fact read_package(const PackageRequest& request);

/// What is said of a package that could not be read before the deadline.
[[nodiscard]] Fact package_not_in_time(const std::string& path, Milliseconds deadline);

/// As read_package(), in this process and without a deadline.
[[nodiscard]] Fact read_package_here(const PackageRequest& request);

/// The environment variable in which the child finds what to read. A process that has it starts no such child.
inline constexpr const char* kPackageRequest = "INDUCTORFS_PACKAGE_REQUEST";

}  // namespace inductorfs::fingerprint
