// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

/// What a C++ library offers to the binaries that are loaded beside it. Pure, and safe for concurrent use.
namespace inductorfs::fingerprint {

/// Keys in the details of the libc facet: the newest versions that the libstdc++ of its processes offers.
inline constexpr std::string_view kGlibcxxKey = "glibcxx";
inline constexpr std::string_view kCxxabiKey = "cxxabi";
inline constexpr std::string_view kGlibcxxPrefix = "GLIBCXX_";
inline constexpr std::string_view kCxxabiPrefix = "CXXABI_";

/// Returns the newest version `prefix`N.N.N that the bytes name ("3.4.30" for "GLIBCXX_"); empty when there is none.
/// libstdc++ needs no such version itself, so it defines every one that it names.
[[nodiscard]] std::string newest_version(std::string_view bytes, std::string_view prefix);

}  // namespace inductorfs::fingerprint
