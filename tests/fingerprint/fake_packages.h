// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace inductorfs::fingerprint::testing {

/// The extension suffixes of CPython 3.11 on x86-64 Linux, for which the recorded keys were made.
inline const std::vector<std::string> kSuffixes311 = {".cpython-311-x86_64-linux-gnu.so", ".abi3.so", ".so"};

using Files = std::vector<std::pair<std::string, std::string>>;
/// Writes the files below `folder`. They are too fresh for their digests to be remembered.
void write_tree(const std::string& folder, const Files& files);
void write_text(const std::string& path, const std::string& text);
[[nodiscard]] std::string read_text(const std::string& path);
/// A program for /bin/sh.
void write_script(const std::string& path, const std::string& body);

/// An installation of CPython 3.11 without packages: bin/python3.11 and the files that say what it is.
void write_python(const std::string& prefix);
/// An installation of gcc 12: bin/g++ with its parts.
void write_gcc(const std::string& prefix);

/// The packages of the recorded vectors, and their keys (made with Python's own pkgutil).
[[nodiscard]] Files torch_tree();
[[nodiscard]] Files triton_tree();
inline constexpr const char* kTorchTreeKey = "ee1f8c2765cc98e901177433c383f47027bd66d0ec035cf11fe3357066931d91";
inline constexpr const char* kTritonTreeKeyDigest = "88c52f3a0112f5ee9f96ec554c03326fd31aba927693c5fcd56df39b62df6abf";

}  // namespace inductorfs::fingerprint::testing
