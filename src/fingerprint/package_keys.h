// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "in_root.h"
#include "inductorfs/base/result.h"
#include "key_memory.h"

namespace inductorfs::fingerprint {

/// These do what the functions of the contract header do, with a memory that the caller saves. Paths are those of a
/// process with the root directory `root`.
[[nodiscard]] Result<std::string> torch_key(const InRoot& root, const std::string& torch_directory,
                                            const std::vector<std::string>& suffixes, KeyMemory& memory);
[[nodiscard]] Result<std::string> triton_key(const InRoot& root, const std::string& triton_directory,
                                             const std::vector<std::string>& suffixes, KeyMemory& memory);

/// Returns `name` as a package's file assigns it, e.g. __version__ of torch/version.py.
[[nodiscard]] Result<std::string> assigned_in_file(const InRoot& root, const std::string& file, std::string_view name);

/// A package as it is installed. Immutable value.
struct Installed {
  std::string directory;    ///< its files
  std::string_view module;  ///< the name by which programs import it
  /// The distributions that may have installed it, as they are spelled in the names of .dist-info directories.
  std::vector<std::string_view> distributions;
  /// A file below the directory without which the package is not known by its files; empty: there is none.
  std::string_view library;
};
[[nodiscard]] Installed torch_in(const std::string& directory);

/// Returns the SHA-256 over the lines of the installed wheel's RECORD that name a file of the package with its sha256,
/// sorted. Of torch it identifies the libraries and headers, which torch_key does not cover. Byte code is left out (pip
/// compiles it at install), and so is everything that depends on where the wheel was installed. It says what was
/// installed, not what was changed since. kNotFound when the package was not installed from a wheel; kInvalid when its
/// RECORD says nothing.
[[nodiscard]] Result<std::string> record_digest(const InRoot& root, const Installed& package, KeyMemory& memory);
/// Returns the SHA-256 over these lines, sorted.
[[nodiscard]] std::string digest_of_lines(std::vector<std::string_view> lines);

/// Returns the digest of a package that has no RECORD: what record_digest() would return of a wheel with these files.
/// It reads every file but byte code and what begins with a dot, 1 to 2 GB the first time. What it learns of large
/// files it saves at once in `memory`, so that a reader that is killed at its deadline has not read them in vain.
///
/// kNotFound when Installed::library is not there, kTooLarge when there is more than such a package can have.
[[nodiscard]] Result<std::string> files_digest(const InRoot& root, const Installed& package, KeyMemory& memory);

/// Returns record_digest() or, for a package without a RECORD that says what it is, files_digest(); `by_files` says
/// which of them.
[[nodiscard]] Result<std::string> contents_digest(const InRoot& root, const Installed& package, KeyMemory& memory,
                                                  bool& by_files);

}  // namespace inductorfs::fingerprint
