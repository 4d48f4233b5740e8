// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "inductorfs/base/regular_file.h"
#include "inductorfs/codec/digest.h"
#include "package_keys.h"

namespace inductorfs::fingerprint {
namespace {

namespace fs = std::filesystem;

/// torch 2.15: 15 thousand lines, 1.6 MB.
constexpr uint64_t kRecordLimit = uint64_t{64} << 20;

bool is_content_line(std::string_view line) {
  // A path with a comma is quoted (RECORD is CSV).
  if (line.starts_with('"')) line.remove_prefix(1);
  const size_t hash = line.rfind(",sha256=");
  if (!line.starts_with("torch/") || hash == std::string_view::npos) return false;
  std::string_view path = line.substr(0, hash);
  if (path.ends_with('"')) path.remove_suffix(1);
  return !path.ends_with(".pyc");
}

void collect(std::string_view text, std::vector<std::string_view>& lines) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (is_content_line(line)) lines.push_back(line);
  }
}

/// torch-VERSION.dist-info beside the package. More than one is what an interrupted upgrade leaves: none is believed.
Result<std::string> record_file(const fs::path& site) {
  std::error_code error;
  std::vector<std::string> found;
  for (fs::directory_iterator at(site, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with("torch-") && name.ends_with(".dist-info")) found.push_back(at->path().string() + "/RECORD");
  }
  if (error) return fail(error_from_errno(error.value(), "list", site.string()));
  if (found.size() > 1) return fail(ErrorCode::kInvalid, site.string() + " holds more than one torch-*.dist-info");
  if (found.empty() || !fs::exists(found.front(), error)) {
    return fail(ErrorCode::kNotFound, site.string() + " has no RECORD of torch: install torch from a wheel");
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

Result<std::string> record_digest(const std::string& torch_directory, KeyMemory& memory) {
  INDUCTORFS_TRY_ASSIGN(const auto file, record_file(fs::path(torch_directory).parent_path()));
  INDUCTORFS_TRY_ASSIGN(const auto manifest, manifest_of({file}, memory));
  const std::string name = "record " + memory.name_of(torch_directory);
  if (auto known = memory.find(name, manifest.digest)) return *known;
  INDUCTORFS_TRY_ASSIGN(const auto text, read_regular(file, kRecordLimit));
  std::vector<std::string_view> lines;
  collect(text, lines);
  if (lines.empty()) return fail(ErrorCode::kInvalid, file + " names no file of torch with its sha256");
  std::string digest = digest_of_lines(std::move(lines));
  if (!manifest.too_fresh) memory.keep(name, manifest.digest, digest);
  return digest;
}

Result<std::string> record_digest(const std::string& torch_directory) {
  KeyMemory nothing("");
  return record_digest(torch_directory, nothing);
}

}  // namespace inductorfs::fingerprint
