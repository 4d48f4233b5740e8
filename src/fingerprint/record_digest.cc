// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "inductorfs/codec/digest.h"
#include "package_keys.h"

namespace inductorfs::fingerprint {
namespace {

/// torch 2.15: 15 thousand lines, 1.6 MB.
constexpr uint64_t kRecordLimit = uint64_t{64} << 20;
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

void collect(std::string_view text, std::string_view folder, std::vector<std::string_view>& lines) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (is_content_line(line, folder)) lines.push_back(line);
  }
}

bool is_of(const Installed& package, std::string_view name) {
  constexpr std::string_view kDistInfo = ".dist-info";
  if (!name.ends_with(kDistInfo)) return false;
  const std::string_view distribution = name.substr(0, name.find('-'));  // a name has no '-' of its own there (PEP 427)
  return std::find(package.distributions.begin(), package.distributions.end(), distribution) !=
         package.distributions.end();
}

/// NAME-VERSION.dist-info beside the package. More than one is what an interrupted upgrade leaves: none is believed.
Result<std::string> record_file(const InRoot& root, const Installed& package, const std::string& site) {
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

}  // namespace

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
  const std::string site = std::filesystem::path(package.directory).parent_path().string();
  INDUCTORFS_TRY_ASSIGN(const auto file, record_file(root, package, site));
  INDUCTORFS_TRY_ASSIGN(const auto manifest, manifest_of(root, {file}, memory));
  const std::string name = "record " + package.directory;
  if (auto known = memory.find(name, manifest.digest)) return *known;
  INDUCTORFS_TRY_ASSIGN(const auto text, root.read_regular(file, kRecordLimit));
  std::vector<std::string_view> lines;
  collect(text, std::string(package.module) + "/", lines);
  if (lines.empty()) {
    return fail(ErrorCode::kInvalid, file + " names no file of " + std::string(package.module) + " with its sha256");
  }
  std::string digest = digest_of_lines(std::move(lines));
  if (!manifest.too_fresh) memory.keep(name, manifest.digest, digest);
  return digest;
}

}  // namespace inductorfs::fingerprint
