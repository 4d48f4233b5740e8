// SPDX-License-Identifier: Apache-2.0
#include "mount_table.h"

#include <fcntl.h>

#include <optional>

#include "inductorfs/base/fd.h"
#include "paths.h"

namespace inductorfs::daemon {
namespace {

constexpr uint64_t kTableLimit = 64ULL << 20;
constexpr size_t kFieldsBeforeOptional = 6;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

bool is_octal(char c) { return c >= '0' && c <= '7'; }

/// The kernel writes space, tab, newline and backslash as \NNN (fs/proc_namespace.c: mangle).
std::string unescape(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && is_octal(text[i + 1]) && is_octal(text[i + 2]) &&
        is_octal(text[i + 3])) {
      plain.push_back(static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0')));
      i += 3;
    } else {
      plain.push_back(text[i]);
    }
  }
  return plain;
}

std::optional<MountEntry> parse_line(std::string_view line) {
  const std::vector<std::string_view> fields = split(line, ' ');
  size_t dash = kFieldsBeforeOptional;
  while (dash < fields.size() && fields[dash] != "-") ++dash;
  if (dash + 3 >= fields.size()) return std::nullopt;
  MountEntry entry;
  entry.device = fields[2];
  entry.root = unescape(fields[3]);
  entry.mount_point = unescape(fields[4]);
  entry.type = unescape(fields[dash + 1]);
  entry.source = unescape(fields[dash + 2]);
  entry.super_options = unescape(fields[dash + 3]);
  return entry;
}

}  // namespace

std::vector<MountEntry> parse_mount_table(std::string_view text) {
  std::vector<MountEntry> table;
  for (const std::string_view line : split(text, '\n')) {
    if (std::optional<MountEntry> entry = parse_line(line)) table.push_back(std::move(*entry));
  }
  return table;
}

std::vector<MountEntry> read_mount_table() {
  const Result<std::string> text = read_file(AT_FDCWD, "/proc/self/mountinfo", kTableLimit);
  return text ? parse_mount_table(*text) : std::vector<MountEntry>();
}

const MountEntry* find_mount_at(const std::vector<MountEntry>& table, std::string_view path) {
  const MountEntry* found = nullptr;
  for (const MountEntry& entry : table) {
    if (entry.mount_point == path) found = &entry;
  }
  return found;
}

const MountEntry* find_mount_of(const std::vector<MountEntry>& table, std::string_view path) {
  const MountEntry* found = nullptr;
  for (const MountEntry& entry : table) {
    if (!is_at_or_below(path, entry.mount_point)) continue;
    if (found == nullptr || entry.mount_point.size() >= found->mount_point.size()) found = &entry;
  }
  return found;
}

const MountEntry* find_main_mount(const std::vector<MountEntry>& table, const MountEntry& bind) {
  for (const MountEntry& entry : table) {
    if (entry.is_ours() && entry.device == bind.device && entry.root == "/") return &entry;
  }
  return nullptr;
}

}  // namespace inductorfs::daemon
