// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fingerprint/common/in_root.h"
#include "fingerprint/common/key_memory.h"
#include "inductorfs/base/result.h"

namespace inductorfs::fingerprint {

/// Computes torch._inductor.codecache.torch_key() of an installed package, 64 hex digits, without importing it.
/// `suffixes` are the interpreter's importlib.machinery EXTENSION_SUFFIXES, in order. The caller saves the memory.
/// Paths are those of a process with the root directory `root`.
[[nodiscard]] Result<std::string> torch_key(const InRoot& root, const std::string& torch_directory,
                                            const std::vector<std::string>& suffixes, KeyMemory& memory);
/// Computes triton's triton_key() in the same way.
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
/// compiles it at install), and so is everything that depends on where the wheel was installed. A file that is not the
/// one that was installed, as its size and time show, and one that RECORD does not name, is read: its line is the one
/// of its content. kNotFound when the package was not installed from a wheel; kInvalid when its RECORD says nothing.
[[nodiscard]] Result<std::string> record_digest(const InRoot& root, const Installed& package, KeyMemory& memory);
/// Returns the RECORD in NAME-VERSION.dist-info beside the package; errors are those of record_digest().
[[nodiscard]] Result<std::string> record_file(const InRoot& root, const Installed& package);
/// Returns the manifest of all files of the package, and of its RECORD. What has only been read of them is the same as
/// long as it is.
[[nodiscard]] Result<Manifest> package_manifest(const InRoot& root, const Installed& package, const KeyMemory& memory);
/// Lines of a RECORD by the names in them, as they stand there.
using RecordLines = std::map<std::string, std::string, std::less<>>;
/// Returns the lines of a RECORD that count; kInvalid when there are none.
[[nodiscard]] Result<RecordLines> record_lines(const InRoot& root, const Installed& package, const std::string& file);
/// Returns the SHA-256 over these lines, sorted.
[[nodiscard]] std::string digest_of_lines(std::vector<std::string_view> lines);

/// Returns the digest of a package that has no RECORD: what record_digest() would return of a wheel with these files.
/// It reads every file but byte code and what begins with a dot, 1 to 2 GB the first time. What it learns of large
/// files it saves at once in `memory`, so that a reader that is killed at its deadline has not read them in vain.
///
/// kNotFound when Installed::library is not there, kTooLarge when there is more than such a package can have. With
/// `record_file` it is what record_digest() returns of the package with that RECORD.
[[nodiscard]] Result<std::string> files_digest(const InRoot& root, const Installed& package, KeyMemory& memory,
                                               const std::string& record_file = {});

/// Returns record_digest() or, for a package without a RECORD that says what it is, files_digest(); `by_files` says
/// which of them.
[[nodiscard]] Result<std::string> contents_digest(const InRoot& root, const Installed& package, KeyMemory& memory,
                                                  bool& by_files);

}  // namespace inductorfs::fingerprint
