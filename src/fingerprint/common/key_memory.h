// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fingerprint/common/in_root.h"
#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"

namespace inductorfs::fingerprint {

/// Returns the identity of a file, which changes when the file is touched: device, inode, size, mtime and ctime, as
/// text.
[[nodiscard]] std::string identity_of(const struct stat& status);

/// Says whether the file changed so recently that a further change could leave the same times (they tick with the
/// kernel's timer, 4 ms). Such a file's digest is not remembered. (git calls it a racily clean entry.)
[[nodiscard]] bool is_too_fresh(const struct stat& status);

/// The identities of many files in one digest: as long as it is the same, what was computed from them is the same.
struct Manifest {
  std::string digest;      ///< of no earlier manifest where the identities do not tell files apart
  bool too_fresh = false;  ///< nothing is to be kept with it
};
[[nodiscard]] Result<Manifest> manifest_of(const std::vector<std::string>& files);

class KeyMemory;
/// Makes a manifest of files that were looked at already. Needs external synchronisation.
class ManifestMaker {
 public:
  void add(std::string_view name, const struct stat& status, const KeyMemory& memory);
  /// Must be called at most once, after the last add().
  [[nodiscard]] Manifest finish();

 private:
  codec::Hasher hasher_;
  bool too_fresh_ = false;
  bool tells_apart_ = true;
};
/// Does the same for files of a process with that root, with the identities that `memory` uses.
[[nodiscard]] Result<Manifest> manifest_of(const InRoot& root, const std::vector<std::string>& files,
                                           const KeyMemory& memory);

/// Digests of large files and whole keys of earlier runs, kept in a small JSON file. A file that is absent, damaged or
/// of another form is an empty memory, which only costs time. Needs external synchronisation.
class KeyMemory {
 public:
  struct Learned {
    std::string name;
    std::string manifest;
    std::string value;
  };
  /// With an empty path, nothing is remembered beyond this object. `owner` is the user for whom things are remembered:
  /// who has the most loses them when there are too many. What is remembered for root all find, for the bytes are those
  /// of files that root had read; what is for another user, that user alone, who may have read it in a process of his.
  explicit KeyMemory(std::string path, uid_t owner = 0);
  /// Makes a memory for packages of processes with another root. Another container of the same image has equal files
  /// at other inodes of another device; their sizes and times say that they are the same. A user who runs a file system
  /// can forge these, so each user has a separate memory.
  [[nodiscard]] static KeyMemory of_containers(const std::string& path, uid_t user);
  /// Returns what the user finds here, for a process of his, which may be in other hands and is to know nothing else.
  [[nodiscard]] std::string text() const;
  /// Makes a memory of that text, in which nothing is saved.
  [[nodiscard]] static KeyMemory handed(const std::string& text, uid_t user, bool is_of_containers);

  /// Returns the identity that tells whether a file is the same.
  [[nodiscard]] std::string identity_of_file(const struct stat& status) const;
  /// Says whether another file of that name has another identity. In images (squashfs, erofs, iso9660), and so in an
  /// overlay over one, the time of a change is that of the content, which whoever makes the image may have set, and the
  /// next image may have the same device and inodes: then nothing is remembered.
  [[nodiscard]] bool tells_apart(const struct stat& status) const;
  /// Returns the value kept under `name` if it was kept with the same manifest.
  [[nodiscard]] std::optional<std::string> find(const std::string& name, std::string_view manifest) const;
  void keep(const std::string& name, std::string_view manifest, std::string_view value);
  /// What this object was given to keep, for a process that may save it.
  [[nodiscard]] const std::vector<Learned>& learned() const { return learned_; }
  /// Adds what is new to the file, which another process may have written meanwhile: the readers of one environment run
  /// at once, each for a part. The file is written as a whole or not at all. Of two processes that save in the same
  /// millisecond one may lose what it learned.
  [[nodiscard]] Result<void> save();

 private:
  struct Kept {
    std::string manifest;
    std::string value;
    uid_t owner = 0;
  };
  using KeptValues = std::map<std::string, Kept>;
  void load(const std::string& text);
  [[nodiscard]] static std::string text_of(const KeptValues& kept);
  [[nodiscard]] bool is_image(const std::string& device) const;
  static void make_room(KeptValues& kept, size_t more);
  [[nodiscard]] std::string key_of(const std::string& name, std::string_view manifest) const;
  [[nodiscard]] const Kept* kept_at(const std::string& key, std::string_view manifest) const;

  std::string path_;
  uid_t owner_;
  bool is_of_containers_ = false;  ///< of_containers()
  /// The devices that hold images, or overlays over them, on this host: once somebody has asked.
  mutable std::optional<std::set<std::string>> images_;
  KeptValues kept_;
  std::set<std::string> fresh_;  ///< names in kept_ that were not saved yet
  std::vector<Learned> learned_;
};

/// Returns the digest of a file's content; for a large file it comes from the memory while the file's identity is the
/// same.
[[nodiscard]] Result<codec::Digest> remembered_digest(const InRoot& root, const std::string& path, KeyMemory& memory);
/// Does the same for an open regular file. `name` is its name in the memory.
[[nodiscard]] Result<codec::Digest> remembered_digest(int file, const std::string& name, KeyMemory& memory);

}  // namespace inductorfs::fingerprint
