// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "fingerprint/packages/package_keys.h"
#include "inductorfs/codec/digest.h"

namespace inductorfs::fingerprint {
namespace {

/// torch 2.15 has 12,189 files and directories of depth 14, 1.1 GB; 2.9 has 1.7 GB; a debug build several times that. A
/// link to a directory such as /usr/lib is followed as far as this.
constexpr size_t kFileLimit = 100'000;
constexpr int kDepthLimit = 32;
constexpr uint64_t kFileBytesLimit = uint64_t{4} << 30;
constexpr uint64_t kBytesLimit = uint64_t{16} << 30;

/// One file of the package. Immutable value.
struct File {
  std::string name;  ///< below the package's directory
  struct stat status {};
};

/// Lists the files of a package. Needs external synchronisation.
class PackageFiles {
 public:
  PackageFiles(const InRoot& root, const Installed& package)
      : root_(root), directory_(package.directory), module_(package.module) {}

  Result<void> list() { return list("", 0); }
  [[nodiscard]] std::vector<File>& files() { return files_; }
  /// Names of links that lead nowhere, with what they say. A package of headers that is not installed leaves such
  /// links.
  [[nodiscard]] const std::map<std::string, std::string>& broken_links() const { return broken_links_; }
  /// Says whether there is byte code where Python would take it for a module (it is none of files()).
  [[nodiscard]] bool has_byte_code() const { return has_byte_code_; }

 private:
  Result<void> list(const std::string& name, int depth) {
    if (depth > kDepthLimit) return too_large("is deeper than " + std::to_string(kDepthLimit) + " directories");
    const std::string path = name.empty() ? directory_ : directory_ + "/" + name;
    INDUCTORFS_TRY_ASSIGN(const auto entries, root_.entries_in(path, kFileLimit, true));
    for (const DirectoryEntry& entry : entries) {
      const std::string& base = entry.name;
      // What Python writes at run time; what editors, version control and NFS (.nfs*) leave. No wheel has such files.
      has_byte_code_ = has_byte_code_ || base.ends_with(".pyc");
      if (base == "__pycache__" || base.ends_with(".pyc") || base.starts_with('.')) continue;
      INDUCTORFS_TRY(add(name.empty() ? base : name + "/" + base, entry, depth));
    }
    return {};
  }

  /// Distributions have links to libraries in /usr/lib, and to directories of headers in /usr/include.
  Result<void> add(const std::string& name, const DirectoryEntry& entry, int depth) {
    const DirectoryEntry::Kind kind = entry.kind;
    if (++seen_ > kFileLimit) return too_large("has more than " + std::to_string(kFileLimit) + " files");
    if (name.find_first_of("\n\r") != std::string::npos) {
      return fail(ErrorCode::kInvalid, directory_ + " has a file with a line break in its name");
    }
    if (kind == DirectoryEntry::Kind::kDirectory) return list(name, depth + 1);
    if (kind == DirectoryEntry::Kind::kFile && S_ISREG(entry.status.st_mode)) return add_file({name, entry.status});
    if (kind == DirectoryEntry::Kind::kOther) return {};
    const std::string path = directory_ + "/" + name;
    const auto found = root_.open_at_path(path, O_PATH);
    if (!found && kind == DirectoryEntry::Kind::kLink && found.error().code() == ErrorCode::kNotFound) {
      INDUCTORFS_TRY_ASSIGN(auto target, root_.read_link(path));
      broken_links_.emplace(name, std::move(target));
      return {};
    }
    struct stat status {};
    if (!found) return fail(found.error());
    if (fstat(found->get(), &status) != 0) return fail_errno("stat", path);
    if (S_ISDIR(status.st_mode)) return list(name, depth + 1);
    return S_ISREG(status.st_mode) ? add_file({name, status}) : Result<void>();
  }

  Result<void> add_file(File file) {
    bytes_ += static_cast<uint64_t>(file.status.st_size);
    if (bytes_ > kBytesLimit) return too_large("has more than " + std::to_string(kBytesLimit) + " bytes");
    files_.push_back(std::move(file));
    return {};
  }

  [[nodiscard]] Result<void> too_large(const std::string& what) const {
    return fail(ErrorCode::kTooLarge, directory_ + " " + what + ", more than a " + std::string(module_) + " can have");
  }

  const InRoot& root_;
  const std::string& directory_;
  const std::string_view module_;
  std::vector<File> files_;
  std::map<std::string, std::string> broken_links_;
  size_t seen_ = 0;
  bool has_byte_code_ = false;
  uint64_t bytes_ = 0;
};

/// The form in which a RECORD has digests: the URL's alphabet, no padding (PEP 376, PEP 427).
std::string base64(std::string_view bytes) {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  std::string text;
  uint32_t bits = 0;
  int count = 0;
  for (const char byte : bytes) {
    bits = (bits << 8) | static_cast<uint8_t>(byte);
    for (count += 8; count >= 6; count -= 6) text += kAlphabet[(bits >> (count - 6)) & 63];
  }
  if (count > 0) text += kAlphabet[(bits << (6 - count)) & 63];
  return text;
}

/// A line of RECORD without its digest and size: a field of CSV, as Python's csv.writer quotes it.
std::string record_name(std::string_view module, const std::string& name) {
  std::string path(module);
  path.append("/").append(name);
  if (path.find_first_of(",\"") == std::string::npos) return path;
  std::string quoted = "\"";
  for (const char c : path) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + "\"";
}

Result<std::string> line_of(const InRoot& root, const Installed& package, const File& file, KeyMemory& memory) {
  const std::string path = package.directory + "/" + file.name;
  INDUCTORFS_TRY_ASSIGN(const auto open, root.open_regular(path, kFileBytesLimit));
  INDUCTORFS_TRY_ASSIGN(const auto digest, remembered_digest(open.get(), path, memory));
  (void)memory.save();  // an unwritable memory costs time at the next start, nothing else
  return record_name(package.module, file.name) + ",sha256=" + base64(digest.raw()) + "," +
         std::to_string(file.status.st_size);
}

using Status = struct stat;

/// The RECORD of a package. Immutable value.
struct Record {
  std::string path;  ///< empty: there is none
  Status status{};
};

bool is_later(const timespec& one, const timespec& other) {
  return std::pair(one.tv_sec, one.tv_nsec) > std::pair(other.tv_sec, other.tv_nsec);
}

/// Says whether the file is the one that was installed. An installer writes RECORD last. Python's source is read once
/// all the same: it is what people change, and a copy keeps the time of what was copied. That of torch is in its key.
bool is_as_recorded(const Installed& package, const Record& record, const File& file, std::string_view line) {
  const bool is_source = file.name.ends_with(".py") && package.module != "torch";
  return !is_source && !is_later(file.status.st_mtim, record.status.st_mtim) &&
         line.substr(line.rfind(',') + 1) == std::to_string(file.status.st_size);
}

Manifest manifest_of_package(PackageFiles& package, const Record& record, const KeyMemory& memory) {
  std::vector<File>& files = package.files();
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.name < b.name; });
  ManifestMaker maker;
  if (!record.path.empty()) maker.add(record.path, record.status, memory);
  for (const File& file : files) maker.add(file.name, file.status, memory);
  for (const auto& [name, target] : package.broken_links()) {
    const struct stat none {};
    maker.add(name + " -> " + target, none, memory);
  }
  return maker.finish();
}

}  // namespace

Result<Manifest> package_manifest(const InRoot& root, const Installed& package, const KeyMemory& memory) {
  PackageFiles listed(root, package);
  INDUCTORFS_TRY(listed.list());
  Record record{record_file(root, package).value_or(""), {}};
  record.status = root.status(record.path).value_or(Status{});
  Manifest manifest = manifest_of_package(listed, record, memory);
  manifest.too_fresh = manifest.too_fresh || listed.has_byte_code();
  return manifest;
}

Result<std::string> files_digest(const InRoot& root, const Installed& package, KeyMemory& memory,
                                 const std::string& record_file) {
  PackageFiles listed(root, package);
  INDUCTORFS_TRY(listed.list());
  const Record record{record_file, root.status(record_file).value_or(Status{})};
  const Manifest manifest = manifest_of_package(listed, record, memory);
  std::vector<File>& files = listed.files();
  const auto is_library = [&package](const File& file) { return file.name == package.library; };
  const std::string module(package.module);
  if (record_file.empty() && !package.library.empty() && std::none_of(files.begin(), files.end(), is_library)) {
    return fail(ErrorCode::kNotFound, package.directory + " has no " + std::string(package.library) +
                                          ", so its libraries cannot be found; install " + module + " from a wheel");
  }
  const std::string name = (record_file.empty() ? "files " : "files and record ") + package.directory;
  if (auto known = memory.find(name, manifest.digest)) return *known;
  RecordLines recorded;
  if (!record_file.empty()) {
    INDUCTORFS_TRY_ASSIGN(recorded, record_lines(root, package, record_file));
  }
  // What is remembered of large files stays if there is no time for the small ones.
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.status.st_size > b.status.st_size; });
  std::vector<std::string> lines;
  for (const File& file : files) {
    const auto found = recorded.find(record_name(package.module, file.name));
    if (found != recorded.end() && is_as_recorded(package, record, file, found->second)) {
      lines.push_back(found->second);
      continue;
    }
    INDUCTORFS_TRY_ASSIGN(auto line, line_of(root, package, file, memory));
    lines.push_back(std::move(line));
  }
  for (const auto& [link, target] : listed.broken_links()) {
    lines.push_back(record_name(package.module, link) + ",link=" + target);
  }
  std::string digest = digest_of_lines({lines.begin(), lines.end()});
  if (!manifest.too_fresh) memory.keep(name, manifest.digest, digest);
  return digest;
}

}  // namespace inductorfs::fingerprint
