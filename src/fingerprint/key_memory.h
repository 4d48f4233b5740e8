// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"

namespace inductorfs::fingerprint {

/// What says that a file was not touched since: device, inode, size, mtime and ctime, as text.
[[nodiscard]] std::string identity_of(const struct stat& status);

/// True when the file changed so shortly ago that a further change could leave the same times (they tick with the
/// kernel's timer, 4 ms): such a file's digest is not remembered. (git calls it a racily clean entry.)
[[nodiscard]] bool is_too_fresh(const struct stat& status);

/// The identities of many files in one digest: while it is the same, what was computed from them is the same.
struct Manifest {
  std::string digest;
  bool too_fresh = false;
};
[[nodiscard]] Result<Manifest> manifest_of(const std::vector<std::string>& files);

class KeyMemory;
/// The same with the names and identities that `memory` keeps.
[[nodiscard]] Result<Manifest> manifest_of(const std::vector<std::string>& files, const KeyMemory& memory);

/// Digests of large files and whole keys of earlier runs, kept in a small JSON file. A file that is absent, damaged or
/// of another form is an empty memory: it only costs time. Needs external synchronisation.
class KeyMemory {
 public:
  /// An empty path remembers nothing beyond this object.
  explicit KeyMemory(std::string path);
  /// For packages below /proc/PID/root or /proc/PID/fd/N. Another container of the same image has equal files at other
  /// inodes of another device, below another such place: sizes and times say that they are the same. Whoever runs a
  /// file system of his own can forge these, so that each user has a memory of his own.
  [[nodiscard]] static KeyMemory of_containers(const std::string& path, const std::string& user);

  /// What a file or package is called in the memory, and what says that a file is the same.
  [[nodiscard]] std::string name_of(const std::string& path) const;
  [[nodiscard]] std::string identity_of_file(const struct stat& status) const;
  /// The value kept under `name` if it was kept with the same manifest.
  [[nodiscard]] std::optional<std::string> find(const std::string& name, std::string_view manifest) const;
  void keep(const std::string& name, std::string_view manifest, std::string_view value);
  /// Writes the file when there is something new in it: whole or not at all.
  [[nodiscard]] Result<void> save();

 private:
  struct Kept {
    std::string manifest;
    std::string value;
  };
  void load();
  [[nodiscard]] std::string key_of(const std::string& name, std::string_view manifest) const;

  std::string path_;
  std::string user_;  ///< of containers
  std::map<std::string, Kept> kept_;
  bool changed_ = false;
};

/// Digest of a file's content; that of a large one comes from the memory while its identity is the same.
[[nodiscard]] Result<codec::Digest> remembered_digest(const std::string& path, KeyMemory& memory);

}  // namespace inductorfs::fingerprint
