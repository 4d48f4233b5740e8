// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/store/store_check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <set>
#include <utility>

#include "directory.h"
#include "pack.h"

namespace inductorfs::store {
namespace {

constexpr const char* kSetAside = "set-aside";
constexpr size_t kSetAsideLimit = 1000;  // of one name
constexpr mode_t kFolderMode = 0700;

/// Needs external synchronisation.
class Checker {
 public:
  Checker(CheckedStore& store, bool repair, Findings& findings) : store_(store), repair_(repair), findings_(findings) {}

  Result<void> run() {
    INDUCTORFS_TRY(for_each_name(dir(), ".", [&](const char* name) { look_at_top(name); }));
    INDUCTORFS_TRY(look_below(kTemporaryFolder, [&](const std::string& path) {
      found_leftover(path, "a file of a writer that was killed");
    }));
    std::vector<std::string> folders;
    INDUCTORFS_TRY(look_below(kBlobFolder, [&](const std::string& path) { folders.push_back(path); }));
    for (const std::string& folder : folders) {
      if (!is_folder_of_blobs(folder)) {
        found_foreign(folder, "not a folder of blobs");
        continue;
      }
      INDUCTORFS_TRY(look_below(folder, [&](const std::string& path) { look_at_blob(path); }));
    }
    INDUCTORFS_TRY(look_at_packs());
    // What it tells of has gone by now.
    if (repair_) (void)::unlinkat(dir(), kDamageFile, 0);
    return {};
  }

 private:
  [[nodiscard]] int dir() const { return store_.directory.get(); }

  Result<void> look_below(const std::string& folder, const std::function<void(const std::string&)>& use) {
    std::vector<std::string> paths;
    auto read = for_each_name(dir(), folder.c_str(), [&](const char* name) { paths.push_back(folder + "/" + name); });
    if (!read && read.error().code() != ErrorCode::kNotFound) return read;
    for (const std::string& path : paths) use(path);
    return {};
  }

  bool is_folder_of_blobs(const std::string& path) const {
    struct stat info {};
    const std::string name = path.substr(path.rfind('/') + 1);
    const bool hex = name.size() == 2 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
    return hex && ::fstatat(dir(), path.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode);
  }

  void look_at_top(const std::string& name) {
    if (name.ends_with(".tmp")) found_leftover(name, "a file that was being replaced");
  }

  void look_at_blob(const std::string& path) {
    const std::string name = path.substr(path.rfind('/') + 1);
    const auto digest = codec::Digest::from_hex(name);
    struct stat info {};
    if (!digest || blob_path(*digest) != path) return found_foreign(path, "its name is not a blob's in this folder");
    const auto file = open_at(dir(), path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    if (!file || ::fstat(file->get(), &info) != 0 || !S_ISREG(info.st_mode)) {
      return found_foreign(path, file ? "not a regular file" : file.error().text());
    }
    const auto actual = codec::digest_of_file(file->get());
    if (actual && *actual == *digest) {
      const auto size = static_cast<uint64_t>(info.st_size);
      store_.bytes += size;
      store_.blobs.emplace(*digest, size);
      store_.inodes.emplace(info.st_ino, *digest);
      return;
    }
    Finding finding{path, actual ? "its bytes have the digest " + actual->to_hex() : actual.error().text(), false, {}};
    if (repair_ && ::unlinkat(dir(), path.c_str(), 0) == 0) finding.repair = "removed";
    findings_.add(std::move(finding));
  }

  Result<void> look_at_packs() {
    std::set<uint64_t> indexes;
    std::set<uint64_t> bytes;
    INDUCTORFS_TRY(look_below(kPackFolder, [&](const std::string& path) {
      const std::string name = path.substr(path.rfind('/') + 1);
      struct stat info {};
      const auto number = pack_number(name);
      if (!number || ::fstatat(dir(), path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode)) {
        return found_foreign(path, "not a file of a pack");
      }
      (path == Pack::index_path(*number) ? indexes : bytes).insert(*number);
    }));
    for (const uint64_t number : bytes) {
      if (!indexes.contains(number)) found_leftover(Pack::bytes_path(number), "a pack without an index");
    }
    for (const uint64_t number : indexes) {
      if (bytes.contains(number)) {
        look_at_pack(number);
      } else {
        found_foreign(Pack::index_path(number), "an index without its pack");
      }
    }
    return {};
  }

  void look_at_pack(uint64_t number) {
    const std::string path = Pack::bytes_path(number);
    const auto records = Pack::read_records(dir(), number);
    if (!records) return found_foreign(Pack::index_path(number), records.error().what());
    const auto file = open_at(dir(), path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    if (!file) return found_foreign(path, file.error().text());
    for (const auto& [place, record] : *records) {
      if (!record.live) continue;
      const auto actual = BlobFile(Fd(::fcntl(file->get(), F_DUPFD_CLOEXEC, 0)), record.offset, record.size).digest();
      if (actual && *actual == record.digest) {
        // A blob that is a file too counts once, as the daemon keeps one of them.
        if (store_.blobs.emplace(record.digest, record.size).second) store_.bytes += record.size;
        continue;
      }
      Finding finding{path + " at " + std::to_string(record.offset),
                      "blob " + record.digest.to_hex() + ": its bytes " +
                          (actual ? "have the digest " + actual->to_hex() : "cannot be read: " + actual.error().text()),
                      false,
                      {}};
      if (repair_ && Pack::drop_record(dir(), number, place)) finding.repair = "removed";
      findings_.add(std::move(finding));
    }
  }

  void found_leftover(const std::string& path, const char* what) {
    Finding finding{path, what, true, {}};
    if (repair_ && ::unlinkat(dir(), path.c_str(), 0) == 0) finding.repair = "removed";
    findings_.add(std::move(finding));
  }

  void found_foreign(const std::string& path, const std::string& what) {
    findings_.add({path, what, false, repair_ ? set_aside(path) : ""});
  }

  /// Somebody may want it: it is moved, not removed, and over nothing that was set aside before. What was done; empty
  /// when nothing could be.
  std::string set_aside(const std::string& path) {
    (void)::mkdirat(dir(), kSetAside, kFolderMode);  // the rename tells
    const std::string name = std::string(kSetAside) + path.substr(path.rfind('/'));
    struct stat there {};
    for (size_t number = 0; number < kSetAsideLimit; ++number) {
      const std::string place = number == 0 ? name : name + "." + std::to_string(number);
      if (::fstatat(dir(), place.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0) continue;
      return ::renameat(dir(), path.c_str(), dir(), place.c_str()) == 0 ? "moved to " + place : "";
    }
    return {};
  }

  CheckedStore& store_;
  const bool repair_;
  Findings& findings_;
};

}  // namespace

void Findings::add(Finding finding) {
  uint64_t& count = finding.harmless ? harmless_ : harmful_;
  if (!finding.harmless && !finding.repair.empty()) ++repaired_;
  if (count++ < kLimit) findings_.push_back(std::move(finding));
}

Result<CheckedStore> check(const std::string& directory, bool repair, Findings& findings) {
  CheckedStore store;
  auto lock = lock_store(directory, store.directory);
  INDUCTORFS_TRY(lock);
  store.lock = std::move(*lock);
  INDUCTORFS_TRY(Checker(store, repair, findings).run());
  return store;
}

}  // namespace inductorfs::store
