// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "inductorfs/base/result.h"
#include "key_memory.h"

namespace inductorfs::fingerprint {

/// These do what the functions of the contract header do, with a memory that the caller saves.
[[nodiscard]] Result<std::string> torch_key(const std::string& torch_directory,
                                            const std::vector<std::string>& suffixes, KeyMemory& memory);
[[nodiscard]] Result<std::string> triton_key(const std::string& triton_directory,
                                             const std::vector<std::string>& suffixes, KeyMemory& memory);

/// Returns `name` as a package's file assigns it, e.g. __version__ of torch/version.py.
[[nodiscard]] Result<std::string> assigned_in_file(const std::string& file, std::string_view name);

/// Returns the SHA-256 over the lines of the installed wheel's RECORD that name a file of torch/ with its sha256,
/// sorted. It identifies the libraries and headers, which torch_key does not cover. Byte code is left out (pip compiles
/// it at install), and so is everything that depends on where the wheel was installed. It says what was installed, not
/// what was changed since. kNotFound when torch was not installed from a wheel.
[[nodiscard]] Result<std::string> record_digest(const std::string& torch_directory);
[[nodiscard]] Result<std::string> record_digest(const std::string& torch_directory, KeyMemory& memory);

}  // namespace inductorfs::fingerprint
