// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/layout/glob.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "inductorfs/codec/entry.h"

namespace inductorfs::layout {
namespace {

constexpr std::string_view kAnyDepth = "**";

std::vector<std::string_view> components(std::string_view path) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// Whether `pattern` takes all of `text`, where `is_star(p)` takes any number of elements and `fits(p, t)` one. Only
/// the last star seen is ever tried again: a longer match of an earlier one finds nothing that this one would not. That
/// holds it to pattern times text, whatever both are.
template <typename Pattern, typename Text, typename IsStar, typename Fits>
bool matches(const Pattern& pattern, const Text& text, const IsStar& is_star, const Fits& fits) {
  size_t at = 0;
  size_t p = 0;
  bool starred = false;
  size_t behind_star = 0;
  size_t star_at = 0;
  while (at < text.size()) {
    if (p < pattern.size() && is_star(pattern[p])) {
      starred = true;
      behind_star = ++p;
      star_at = at;
    } else if (p < pattern.size() && fits(pattern[p], text[at])) {
      ++p;
      ++at;
    } else if (starred) {
      p = behind_star;
      at = ++star_at;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && is_star(pattern[p])) ++p;
  return p == pattern.size();
}

bool component_matches(std::string_view pattern, std::string_view text) {
  return matches(
      pattern, text, [](char p) { return p == '*'; }, [](char p, char t) { return p == '?' || p == t; });
}

}  // namespace

bool glob_matches(std::string_view pattern, std::string_view path) {
  auto parts = components(pattern);
  const auto names = components(path);
  if (parts.back() == kAnyDepth) parts.emplace_back("*");  // `a/**` is what lies below `a`, not `a` itself
  return matches(
      parts, names, [](std::string_view part) { return part == kAnyDepth; }, component_matches);
}

std::string glob_problem(std::string_view pattern) {
  if (pattern.empty() || pattern.size() > codec::kPathLimit) return "a pattern has 1 to 1024 characters";
  if (pattern.find('\0') != std::string_view::npos) return "a pattern has no NUL";
  for (const std::string_view part : components(pattern)) {
    if (part.empty() || part == "." || part == "..")
      return "a pattern is a path relative to the mount, without . and ..";
    if (part != kAnyDepth && part.find(kAnyDepth) != std::string_view::npos) return "`**` is a component of its own";
  }
  return {};
}

}  // namespace inductorfs::layout
