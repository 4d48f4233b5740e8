// SPDX-License-Identifier: Apache-2.0
#include "mount_table.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdlib>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/handle.h"

namespace inductorfs::fuse {
namespace {

constexpr uint64_t kTableLimit = 64ULL << 20;

bool is_octal(char c) { return c >= '0' && c <= '7'; }

/// The kernel writes space, tab, newline and backslash as \ooo.
std::string unescaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && is_octal(text[i + 1]) && is_octal(text[i + 2]) &&
        is_octal(text[i + 3])) {
      out.push_back(static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0')));
      i += 3;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const size_t end = std::min(line.find(' '), line.size());
    if (end > 0) words.push_back(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return words;
}

/// "id parent major:minor root mountpoint options [optional...] - type source superoptions"
std::optional<MountEntry> parse_line(std::string_view line) {
  constexpr size_t kFixed = 6;
  const std::vector<std::string_view> words = words_of(line);
  if (words.size() < kFixed) return std::nullopt;
  const auto dash = std::find(words.begin() + kFixed, words.end(), "-");
  if (words.end() - dash < 2) return std::nullopt;
  MountEntry entry;
  entry.device = words[2];
  entry.mountpoint = unescaped(words[4]);
  entry.type = unescaped(dash[1]);
  if (words.end() - dash > 2) entry.source = unescaped(dash[2]);
  return entry;
}

}  // namespace

std::vector<MountEntry> parse_mount_table(std::string_view text) {
  std::vector<MountEntry> table;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (auto entry = parse_line(text.substr(0, end))) table.push_back(std::move(*entry));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return table;
}

std::vector<MountEntry> read_mount_table() {
  const auto text = read_file(AT_FDCWD, "/proc/self/mountinfo", kTableLimit);
  return text ? parse_mount_table(*text) : std::vector<MountEntry>();
}

std::optional<MountEntry> find_mount(const std::vector<MountEntry>& table, std::string_view mountpoint) {
  const auto found = std::find_if(table.rbegin(), table.rend(),
                                  [&](const MountEntry& entry) { return entry.mountpoint == mountpoint; });
  if (found == table.rend()) return std::nullopt;
  return *found;
}

bool is_within(std::string_view path, std::string_view directory) {
  if (directory == "/") return path.starts_with('/');
  return path.starts_with(directory) && (path.size() == directory.size() || path[directory.size()] == '/');
}

std::string resolved_mountpoint(const std::string& path) {
  std::string trimmed = path;
  // With a slash at its end realpath(3) asks the directory itself.
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  const Handle<char, std::free> real(::realpath(trimmed.c_str(), nullptr));
  return real ? std::string(real.get()) : trimmed;
}

}  // namespace inductorfs::fuse
