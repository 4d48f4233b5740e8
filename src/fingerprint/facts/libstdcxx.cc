// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/fingerprint/libstdcxx.h"

#include <algorithm>
#include <climits>

#include "inductorfs/base/text.h"

namespace inductorfs::fingerprint {
namespace {

bool is_newer(const std::string& one, const std::string& other) {
  return std::lexicographical_compare(other.begin(), other.end(), one.begin(), one.end());
}

/// A dotted version as text that compares as it counts: each number with its length before it.
std::string comparable(std::string_view version) {
  std::string text;
  while (!version.empty()) {
    const std::string_view number = take_part(version, '.');
    text.push_back(static_cast<char>(std::min<size_t>(number.size(), CHAR_MAX)));
    text.append(number);
  }
  return text;
}

}  // namespace

std::string newest_version(std::string_view bytes, std::string_view prefix) {
  std::string newest;
  for (size_t at = bytes.find(prefix); at != std::string_view::npos; at = bytes.find(prefix, at)) {
    at += prefix.size();
    size_t end = at;
    while (end < bytes.size() && ((bytes[end] >= '0' && bytes[end] <= '9') || bytes[end] == '.')) ++end;
    const std::string version(bytes.substr(at, end - at));
    if (!version.empty() && (newest.empty() || is_newer(comparable(version), comparable(newest)))) newest = version;
  }
  return newest;
}

}  // namespace inductorfs::fingerprint
