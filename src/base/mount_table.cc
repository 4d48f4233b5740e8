// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/mount_table.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/base/number.h"
#include "inductorfs/base/text.h"

namespace inductorfs {
namespace {

constexpr uint64_t kTableLimit = 64ULL << 20;
/// Of two paths of PATH_MAX, each byte of which may be written as four. Nobody reaches a mount by a longer one, and any
/// user makes such lines: by a directory above a mount of his that he moves far down.
constexpr size_t kLineLimit = 40ULL << 10;
constexpr uint64_t kFdInfoLimit = 64ULL << 10;
constexpr size_t kFieldsBeforeOptional = 6;

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

/// "id parent major:minor root mountpoint options [optional...] - type source super_options"
std::optional<MountEntry> parse_line(std::string_view line) {
  const std::vector<std::string_view> fields = parts_of(line, ' ');  // a source may be empty
  size_t dash = kFieldsBeforeOptional;
  while (dash < fields.size() && fields[dash] != "-") ++dash;
  const auto field = [&](size_t at) { return at < fields.size() ? unescape(fields[at]) : std::string(); };
  if (dash + 1 >= fields.size()) return std::nullopt;
  const auto number = [&](size_t at) { return leading_number<uint64_t>(fields[at]); };  // the kernel writes numbers
  return MountEntry{field(2),        field(3),        field(4),  field(dash + 1),
                    field(dash + 2), field(dash + 3), number(0), number(1)};
}

/// Guarded: where two read one open list by turns, and a mount goes meanwhile, the kernel leaves lines out.
Guarded<Fd>& given_table() {
  static auto* const table = new Guarded<Fd>;  // until this process ends
  return *table;
}

/// The lines that are not too long, of all of them: who hides one hides no other.
std::string read_from_start(const Fd& file) {
  std::string text;
  std::string line;
  bool is_long = false;
  off_t at = 0;
  std::array<char, 65536> piece{};
  while (text.size() < kTableLimit) {
    const ssize_t got = ::pread(file.get(), piece.data(), piece.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    at += got;
    std::string_view rest(piece.data(), static_cast<size_t>(got));
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      const std::string_view part = rest.substr(0, end);
      is_long = is_long || line.size() + part.size() > kLineLimit;
      if (!is_long) line.append(part);
      if (end == std::string_view::npos) break;
      if (!is_long) text.append(line).push_back('\n');
      line.clear();
      is_long = false;
      rest.remove_prefix(end + 1);
    }
  }
  return text;
}

}  // namespace

std::vector<MountEntry> parse_mount_table(std::string_view text) {
  std::vector<MountEntry> table;
  for (const std::string_view line : parts_of(text, '\n')) {
    if (std::optional<MountEntry> entry = parse_line(line)) table.push_back(std::move(*entry));
  }
  return table;
}

void use_mount_table(Fd table) {
  given_table().with([&](Fd& given) { given = std::move(table); });
}

Result<Fd> open_mount_table() {
  return given_table().with([](const Fd& given) -> Result<Fd> {
    if (!given) return open_at(AT_FDCWD, "/proc/self/mountinfo", O_RDONLY);
    Fd table(::fcntl(given.get(), F_DUPFD_CLOEXEC, 0));
    return table ? Result<Fd>(std::move(table)) : fail_errno("fcntl", "the list of mounts");
  });
}

std::vector<MountEntry> read_mount_table() {
  const auto text =
      given_table().with([](const Fd& given) { return given ? std::optional(read_from_start(given)) : std::nullopt; });
  if (text) return parse_mount_table(*text);
  const auto own = open_at(AT_FDCWD, "/proc/self/mountinfo", O_RDONLY);
  return own ? parse_mount_table(read_from_start(*own)) : std::vector<MountEntry>();
}

Result<std::vector<MountEntry>> read_mounts_of(const std::string& proc, const std::string& process, uint64_t limit) {
  INDUCTORFS_TRY_ASSIGN(const auto text, read_file(AT_FDCWD, proc + "/" + process + "/mountinfo", limit));
  return parse_mount_table(text);
}

const MountEntry* find_mount_at(const std::vector<MountEntry>& table, std::string_view path) {
  // A mount that was put beneath another one has the later line; who is whose parent tells which of them shows.
  const auto shows = [&](const MountEntry& entry) {
    return entry.mount_point == path && std::none_of(table.begin(), table.end(), [&](const MountEntry& other) {
             return other.mount_point == path && other.parent == entry.id && other.id != entry.id;
           });
  };
  const auto found = std::find_if(table.rbegin(), table.rend(), shows);
  return found == table.rend() ? nullptr : &*found;
}

const MountEntry* find_mount_by_id(const std::vector<MountEntry>& table, uint64_t id) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const MountEntry& entry) { return entry.id == id; });
  return found == table.end() ? nullptr : &*found;
}

Result<uint64_t> mount_id_of(const Fd& fd) {
  const std::string path = "/proc/self/fdinfo/" + std::to_string(fd.get());
  INDUCTORFS_TRY_ASSIGN(const auto text, read_file(AT_FDCWD, path, kFdInfoLimit));
  constexpr std::string_view kKey = "mnt_id:\t";
  const size_t at = text.find(kKey);
  uint64_t id = 0;
  if (at == std::string::npos ||
      std::from_chars(text.data() + at + kKey.size(), text.data() + text.size(), id).ec != std::errc()) {
    return fail(ErrorCode::kNotSupported, path + " does not name the mount");
  }
  return id;
}

std::optional<uid_t> fuse_user_of(const MountEntry& entry) {
  constexpr std::string_view kKey = "user_id=";
  const size_t at = entry.type.starts_with("fuse") ? entry.super_options.find(kKey) : std::string::npos;
  if (at == std::string::npos) return std::nullopt;
  return static_cast<uid_t>(std::strtoul(entry.super_options.c_str() + at + kKey.size(), nullptr, 10));
}

}  // namespace inductorfs
