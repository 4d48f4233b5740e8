// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <string_view>

#include "fingerprint/packages/package_keys.h"
#include "inductorfs/base/text.h"
#include "inductorfs/codec/digest.h"

namespace inductorfs::fingerprint {
namespace {

/// torch 2.15: 15 thousand lines, 1.6 MB.
constexpr uint64_t kRecordLimit = uint64_t{8} << 20;
/// What a directory of packages may hold.
constexpr size_t kPackageLimit = 100'000;

bool is_content_line(std::string_view line, std::string_view folder) {
  // A path with a comma is quoted (RECORD is CSV).
  if (line.starts_with('"')) line.remove_prefix(1);
  const size_t hash = line.rfind(",sha256=");
  if (!line.starts_with(folder) || hash == std::string_view::npos) return false;
  std::string_view path = line.substr(0, hash);
  if (path.ends_with('"')) path.remove_suffix(1);
  return !path.ends_with(".pyc");
}

void collect(std::string_view text, std::string_view folder, RecordLines& lines) {
  while (!text.empty()) {
    std::string_view line = take_part(text, '\n');
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (is_content_line(line, folder)) lines.emplace(line.substr(0, line.rfind(",sha256=")), line);
  }
}

bool is_of(const Installed& package, std::string_view name) {
  constexpr std::string_view kDistInfo = ".dist-info";
  if (!name.ends_with(kDistInfo)) return false;
  const std::string_view distribution = name.substr(0, name.find('-'));  // a name has no '-' of its own there (PEP 427)
  return std::find(package.distributions.begin(), package.distributions.end(), distribution) !=
         package.distributions.end();
}

}  // namespace

/// More than one is what an interrupted upgrade leaves: none is believed.
Result<std::string> record_file(const InRoot& root, const Installed& package) {
  const std::string site = std::filesystem::path(package.directory).parent_path().string();
  INDUCTORFS_TRY_ASSIGN(const auto entries, root.entries_in(site, kPackageLimit));
  const std::string module(package.module);
  std::vector<std::string> found;
  for (const DirectoryEntry& entry : entries) {
    if (is_of(package, entry.name)) found.push_back((site + "/").append(entry.name).append("/RECORD"));
  }
  if (found.size() > 1) return fail(ErrorCode::kInvalid, site + " holds more than one " + module + "-*.dist-info");
  if (found.empty() || !root.status(found.front())) {
    return fail(ErrorCode::kNotFound, site + " has no RECORD of " + module + ": install " + module + " from a wheel");
  }
  return found.front();
}

std::string digest_of_lines(std::vector<std::string_view> lines) {
  std::sort(lines.begin(), lines.end());
  codec::Hasher hasher;
  for (std::string_view line : lines) {
    hasher.update(line);
    hasher.update("\n");
  }
  return hasher.finish().to_hex();
}

Result<std::string> record_digest(const InRoot& root, const Installed& package, KeyMemory& memory) {
  INDUCTORFS_TRY_ASSIGN(const auto file, record_file(root, package));
  return files_digest(root, package, memory, file);
}

Result<RecordLines> record_lines(const InRoot& root, const Installed& package, const std::string& file) {
  INDUCTORFS_TRY_ASSIGN(const auto text, root.read_regular(file, kRecordLimit));
  RecordLines lines;
  collect(text, std::string(package.module) + "/", lines);
  if (lines.empty()) {
    return fail(ErrorCode::kInvalid, file + " names no file of " + std::string(package.module) + " with its sha256");
  }
  return lines;
}

}  // namespace inductorfs::fingerprint
