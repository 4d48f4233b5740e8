// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "inductorfs/base/result.h"

/// What the daemon notes on a file's inode, in extended attributes: whose it is, whether the store may have it, and
/// more. A mount begins on no disk that keeps no such attributes. All that is here blocks on the local disk only, and
/// is safe for concurrent use.
namespace inductorfs::vfs {

class LocalTree;

/// Whose a file is, and what its mode is, as jobs see it. On the disk all belongs to the daemon's user, with mode 0600
/// or 0700, and is a regular file or a directory: what jobs are told is data, kept in an extended attribute of the
/// inode. So the daemon needs no right to give files away, and nothing that a user makes is followed, waited for or run
/// by what finds it on the disk. A symbolic link is a file that holds its target; a FIFO or a socket is an empty one.
struct FileOwner {
  uid_t uid = 0;
  gid_t gid = 0;
  mode_t mode = 0;  ///< as st_mode, with the type

  /// Neither a regular file nor a directory.
  [[nodiscard]] bool is_special() const { return !S_ISREG(mode) && !S_ISDIR(mode); }
};

/// Of an open file, by O_PATH too. An inode that has none, as one that was just made, answers
/// nothing.
[[nodiscard]] Result<std::optional<FileOwner>> file_owner(int file);
[[nodiscard]] Result<void> set_file_owner(int file, const FileOwner& owner);
/// Of a name in an open directory, which is not followed.
[[nodiscard]] Result<std::optional<FileOwner>> file_owner_in(int directory, const char* name);

/// Says of a directory that it has, or had, special files: whoever lists it has to look at each file for its type.
[[nodiscard]] bool holds_specials(int directory);
[[nodiscard]] Result<void> note_specials(int directory);

/// Returns fstat(2) as jobs see it.
[[nodiscard]] Result<struct stat> status_of(int file);

inline constexpr const char* kChangedMark = "user.inductorfs.changed";
inline constexpr const char* kSealMark = "user.inductorfs.sealed";
inline constexpr const char* kScopeMark = "user.inductorfs.scope";        ///< scopes that the file's writers fitted
inline constexpr const char* kPrivateMark = "user.inductorfs.private";    ///< why the file never leaves the host
inline constexpr const char* kDisputedMark = "user.inductorfs.disputed";  ///< in pending/: KeyState::Put
inline constexpr const char* kLeftMark = "user.inductorfs.left";          ///< of a set that nobody completed (KeySets)
inline constexpr const char* kUnseenLeft = "new";                         ///< its value until a start has met the file
inline constexpr const char* kModeMark = "user.inductorfs.mode";          ///< somebody chose the mode by chmod(2)
inline constexpr const char* kSeenMark = "user.inductorfs.seen";          ///< GroupViews::mark_view()
inline constexpr const char* kEntryMark = "user.inductorfs.entry";        ///< in stale/: the file's canonical path

/// The seal is there before the store can have the inode, empty at first, and holds the digest when that was handed to
/// the publish queue, so that a restart knows what was.
/// Returns the digest in a seal. An error of the disk is no absence.
[[nodiscard]] Result<std::optional<std::string>> seal_of(int file);
inline constexpr const char* kDamagedSeal = "damaged";  ///< the seal of a file that has other bytes than the disk got
/// Says whether the file has a seal, empty or not: the store may have its inode.
[[nodiscard]] Result<bool> is_stores(int file);
[[nodiscard]] Result<void> set_seal(int file, std::string_view digest_hex);
/// Of a file whose inode the store has not taken.
void remove_seal(int file);

/// Says whether the file is a copy that was made to be written to, or may be one: if it is not sealed, it stays
/// private, and no start seals it.
[[nodiscard]] bool is_changed(int file);
/// Marks such a copy. `instead_of` is the inode whose place the copy takes, until the node that has that inode knows
/// the copy; 0: it takes no inode's place.
void mark_changed(int file, uint64_t instead_of);

/// Reads a mark of at most kMarkLimit bytes.
inline constexpr size_t kMarkLimit = 4096;
[[nodiscard]] Result<std::optional<std::string>> read_mark(const LocalTree& tree, const std::string& path,
                                                           const char* name);
/// The same where a mark that cannot be read may count as none: nothing is shared, or destroyed, for want of it.
[[nodiscard]] std::optional<std::string> mark_of(const LocalTree& tree, const std::string& path, const char* name);
/// Sets a mark, best effort: a file without a mark is private at the next start.
void set_mark(const LocalTree& tree, const std::string& path, const char* name, const std::string& value);
void remove_mark(const LocalTree& tree, const std::string& path, const char* name);

}  // namespace inductorfs::vfs
