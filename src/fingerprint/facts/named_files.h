// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fingerprint/common/key_memory.h"
#include "inductorfs/fingerprint/fingerprint.h"

/// The files that environment variables name, such as TRITON_PTXAS_PATH, compared by content (Reading::kFile).
namespace inductorfs::fingerprint {

/// Immutable value.
struct NamedFile {
  std::string variable;
  std::string path;      ///< the variable's value
  std::string identity;  ///< identity_of() the file when it was looked at; empty if it was not, or is not there
};

/// Returns the files that these variables name. A file that torch itself names in every job, in its own directory
/// `torch`, is not among them. Does not touch the files.
[[nodiscard]] std::vector<NamedFile> named_files(const std::map<std::string, std::string>& environment,
                                                 const std::string& torch);

/// Where the packages lie. Immutable value.
struct PackagePlaces {
  std::string torch;   ///< the package's directory; empty when there is none
  std::string triton;  ///< as torch
};
/// What named_files_fact() says of a file that is, byte for byte, the one that is used when the variable is unset.
inline constexpr std::string_view kUsualFile = "usual";
/// Returns a line for each of these files: NAME=kUsualFile, NAME=content_value() for a file of other content, and
/// NAME=not_known_value() for one that cannot be read; "none" when there are no files. It reads the files, never runs
/// one, and blocks as long as their file system does.
[[nodiscard]] Fact named_files_fact(const std::vector<NamedFile>& files, const InRoot& root,
                                    const PackagePlaces& packages, KeyMemory& memory);

/// Returns the canonical value of `variable` in the text of named_files_fact(); empty when it means the same as unset.
[[nodiscard]] std::string named_value(const Fact& fact, const std::string& variable);

}  // namespace inductorfs::fingerprint
