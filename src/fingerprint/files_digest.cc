// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/regular_file.h"
#include "inductorfs/codec/digest.h"
#include "package_keys.h"

namespace inductorfs::fingerprint {
namespace {

namespace fs = std::filesystem;

/// torch 2.15 has 12,189 files and directories of depth 14, 1.1 GB; 2.9 has 1.7 GB; a debug build several times that. A
/// link to a directory such as /usr/lib is followed as far as this.
constexpr size_t kFileLimit = 100'000;
constexpr int kDepthLimit = 32;
constexpr uint64_t kFileBytesLimit = uint64_t{4} << 30;
constexpr uint64_t kBytesLimit = uint64_t{16} << 30;
/// The library with torch's operators, which all builds for Linux have under this name.
constexpr std::string_view kLibrary = "lib/libtorch_cpu.so";

/// One file of the package. Immutable value.
struct File {
  std::string name;     ///< below the package's directory
  bool linked = false;  ///< a symbolic link leads to it, which is to be followed in the root of the package's users
  struct stat status {};
};

/// Lists the files of a package. Needs external synchronisation.
class PackageFiles {
 public:
  PackageFiles(const PackagePlace& place, const Fd& root) : place_(place), root_(root) {}

  Result<void> list() { return list(place_.directory, "", false, 0); }
  [[nodiscard]] std::vector<File>& files() { return files_; }
  /// Names of links that lead nowhere, with what they say. A package of headers that is not installed leaves such
  /// links.
  [[nodiscard]] const std::map<std::string, std::string>& broken_links() const { return broken_links_; }

  [[nodiscard]] Result<Fd> open(const File& file) const {
    if (file.linked) return open_regular_in_root(root_.get(), place_.path + "/" + file.name, kFileBytesLimit);
    return open_regular(place_.directory + "/" + file.name, kFileBytesLimit);
  }

 private:
  /// Lists the directory that is called `name` in the package and that `reach` leads to.
  Result<void> list(const std::string& reach, const std::string& name, bool linked, int depth) {
    if (depth > kDepthLimit) return too_large("is deeper than " + std::to_string(kDepthLimit) + " directories");
    std::error_code error;
    for (fs::directory_iterator at(reach, error), end; !error && at != end; at.increment(error)) {
      const std::string base = at->path().filename().string();
      // What Python writes at run time; what editors, version control and NFS (.nfs*) leave. No wheel has such files.
      if (base == "__pycache__" || base.ends_with(".pyc") || base.starts_with('.')) continue;
      INDUCTORFS_TRY(add(reach + "/" + base, name.empty() ? base : name + "/" + base, linked, depth));
    }
    if (error) return fail(error_from_errno(error.value(), "list", place_.directory + "/" + name));
    return {};
  }

  Result<void> add(const std::string& reach, const std::string& name, bool linked, int depth) {
    if (++seen_ > kFileLimit) return too_large("has more than " + std::to_string(kFileLimit) + " files");
    if (name.find_first_of("\n\r") != std::string::npos) {
      return fail(ErrorCode::kInvalid, place_.directory + " has a file with a line break in its name");
    }
    struct stat status {};
    if (lstat(reach.c_str(), &status) != 0) return fail_errno("stat", reach);
    if (S_ISLNK(status.st_mode)) return add_link(reach, name, depth);
    if (S_ISDIR(status.st_mode)) return list(reach, name, linked, depth + 1);
    return S_ISREG(status.st_mode) ? add_file({name, linked, status}) : Result<void>();
  }

  /// Distributions have links to libraries in /usr/lib, and to directories of headers in /usr/include.
  Result<void> add_link(const std::string& reach, const std::string& name, int depth) {
    const std::string path = place_.path + "/" + name;
    const auto target = open_in_root(root_.get(), path, O_PATH);
    if (!target && target.error().code() == ErrorCode::kNotFound) {
      std::error_code error;
      broken_links_.emplace(name, fs::read_symlink(reach, error).string());
      return error ? Result<void>(fail(error_from_errno(error.value(), "read link", reach))) : Result<void>();
    }
    struct stat status {};
    if (!target) return fail(target.error());
    if (fstat(target->get(), &status) != 0) return fail_errno("stat", path);
    if (!S_ISDIR(status.st_mode)) return S_ISREG(status.st_mode) ? add_file({name, true, status}) : Result<void>();
    return list("/proc/self/fd/" + std::to_string(target->get()), name, true, depth + 1);
  }

  Result<void> add_file(File file) {
    bytes_ += static_cast<uint64_t>(file.status.st_size);
    if (bytes_ > kBytesLimit) return too_large("has more than " + std::to_string(kBytesLimit) + " bytes");
    files_.push_back(std::move(file));
    return {};
  }

  [[nodiscard]] Result<void> too_large(const std::string& what) const {
    return fail(ErrorCode::kTooLarge, place_.directory + " " + what + ", more than a torch can have");
  }

  const PackagePlace& place_;
  const Fd& root_;
  std::vector<File> files_;
  std::map<std::string, std::string> broken_links_;
  size_t seen_ = 0;
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
std::string record_name(const std::string& name) {
  std::string path = "torch/" + name;
  if (path.find_first_of(",\"") == std::string::npos) return path;
  std::string quoted = "\"";
  for (const char c : path) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + "\"";
}

Result<std::string> line_of(const PackageFiles& package, const PackagePlace& place, const File& file,
                            KeyMemory& memory) {
  INDUCTORFS_TRY_ASSIGN(const auto open, package.open(file));
  INDUCTORFS_TRY_ASSIGN(const auto digest,
                        remembered_digest(open.get(), memory.name_of(place.directory + "/" + file.name), memory));
  (void)memory.save();  // an unwritable memory costs time at the next start, nothing else
  return record_name(file.name) + ",sha256=" + base64(digest.raw()) + "," + std::to_string(file.status.st_size);
}

Manifest manifest_of_package(PackageFiles& package, const KeyMemory& memory) {
  std::vector<File>& files = package.files();
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.name < b.name; });
  ManifestMaker maker;
  for (const File& file : files) maker.add(file.name, file.status, memory);
  for (const auto& [name, target] : package.broken_links()) {
    const struct stat none {};
    maker.add(name + " -> " + target, none, memory);
  }
  return maker.finish();
}

}  // namespace

Result<std::string> files_digest(const PackagePlace& torch, KeyMemory& memory) {
  INDUCTORFS_TRY_ASSIGN(const Fd root, open_at(AT_FDCWD, torch.root, O_PATH | O_DIRECTORY));
  PackageFiles package(torch, root);
  INDUCTORFS_TRY(package.list());
  const Manifest manifest = manifest_of_package(package, memory);
  std::vector<File>& files = package.files();
  if (std::none_of(files.begin(), files.end(), [](const File& file) { return file.name == kLibrary; })) {
    return fail(ErrorCode::kNotFound, torch.directory + " has no " + std::string(kLibrary) +
                                          ", so its libraries cannot be found; install torch from a wheel");
  }
  const std::string name = "files " + memory.name_of(torch.directory);
  if (auto known = memory.find(name, manifest.digest)) return *known;
  // What is remembered of large files stays if there is no time for the small ones.
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.status.st_size > b.status.st_size; });
  std::vector<std::string> lines;
  for (const File& file : files) {
    INDUCTORFS_TRY_ASSIGN(auto line, line_of(package, torch, file, memory));
    lines.push_back(std::move(line));
  }
  for (const auto& [link, target] : package.broken_links()) lines.push_back(record_name(link) + ",link=" + target);
  std::string digest = digest_of_lines({lines.begin(), lines.end()});
  if (!manifest.too_fresh) memory.keep(name, manifest.digest, digest);
  return digest;
}

}  // namespace inductorfs::fingerprint
