// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "fingerprint/processes/writers_process.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/fingerprint/fingerprint.h"

namespace inductorfs::fingerprint {

/// A request to read the torch, triton, engine, libc or compiler facet of a process's environment, or the files that
/// its variables name (the environment facet). A child process reads it and is killed at the deadline, because a
/// package may lie on a file system that does not answer.
struct PackageRequest {
  Facet facet = Facet::kTorch;
  Process process;  ///< its root, its user, and what was told of it; else its packages, files, compiler and soabi
  /// The files of a process with another root; nullptr: they are read through Process::root.
  std::shared_ptr<const Held> held;
  Milliseconds deadline{30'000};
  // Of have_package_read():
  std::string cache_file{};  ///< as ProbeOptions::cache_file
  std::string program{};     ///< as ExaminerOptions::package_reader
  std::string path{};        ///< what is read, for people
};
/// Has it read with the rights of the process's user; no symbolic link is followed out of the process's root. Returns a
/// line that fact_from() reads, which nobody has looked at: it is the reader's, who may be in the hands of what he
/// read. Blocks until the deadline.
[[nodiscard]] std::string have_package_read(const PackageRequest& request);

/// Returns the fact for a package that could not be read before the deadline.
[[nodiscard]] Fact package_not_in_time(const std::string& path, Milliseconds deadline);

/// The environment variable in which the child finds the request. A process that has it starts no such child.
inline constexpr const char* kPackageRequest = "INDUCTORFS_PACKAGE_REQUEST";

}  // namespace inductorfs::fingerprint
