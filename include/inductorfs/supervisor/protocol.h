// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "inductorfs/base/fd.h"

/// The protocol between the supervisor and its workers (docs/operations/processes-of-a-mount.md). Nothing here
/// allocates.
namespace inductorfs::supervisor {

/// Descriptors that a process finds open when it starts.
inline constexpr int kRegionFd = 3;    ///< takeover::Region
inline constexpr int kSettingsFd = 4;  ///< the settings of the mount, for the worker
inline constexpr int kLinkFd = 5;      ///< worker: its end of the link to the supervisor
inline constexpr int kDeviceFd = 6;    ///< worker: /dev/fuse, when there is a session to resume
inline constexpr int kReadyFd = 7;    ///< first worker: the process that asked for the mount waits on it; may be closed
inline constexpr int kProgramFd = 8;  ///< supervisor: the program that workers are started from
inline constexpr int kNotesFd = 9;    ///< what one worker leaves for the next one, in addition to the region
inline constexpr int kLockFd = 10;    ///< worker: the lock of the mount's store, from the worker before it
/// Worker: the socket to the messenger, which tells the kernel what to forget; may be closed.
inline constexpr int kNoticesFd = 11;
inline constexpr int kControlFd = 12;  ///< worker: the listening control socket of the workers before it
/// The socket of a worker to its examiner (fingerprint/examiner.h), at both.
inline constexpr int kExaminerFd = 13;
/// Of the examiner alone, sealed: a secret (fingerprint::new_seal_secret()), and how the mount's facts are learned
/// (host::facts_request_from()); closed: it learns none.
inline constexpr int kExaminerTaskFd = 14;
/// The socket of a worker to its mounter (src/mount/mounter.h), at both.
inline constexpr int kMounterFd = 15;
inline constexpr int kMounterTaskFd = 16;   ///< of the mounter alone: what it mounts, and where (mounter_task.h)
inline constexpr int kMounterNotesFd = 17;  ///< of the mounter alone: what one has mounted, for the next one
/// The mount namespace that processes live in which serve the mount (mount/worker_tree.h); closed: there is none.
inline constexpr int kTreeFd = 18;
inline constexpr int kMountsFd = 19;  ///< worker: the host's list of mounts, /proc/self/mountinfo; may be closed
inline constexpr int kGuestsFd = 20;  ///< worker: its end of the channel of guests (Guest); closed: there is none
inline constexpr int kFirstFreeFd = 21;

/// What `inductorfs mounter MOUNTPOINT leave` says at its standard error when it has done it, and says nothing else.
inline constexpr const char* kDone = "done\n";

/// An exit code of a worker. 0 means that the mount has ended; any code but these, and a signal, is a crash.
inline constexpr int kExitHandOver = 75;  ///< the worker has answered all it had begun, and left the mount as it is
inline constexpr int kExitHost = 76;      ///< it could not take over because of the host: its disk is out of order

/// The messages on the link between supervisor and worker, which is a SOCK_SEQPACKET.
enum class Word : uint32_t {
  kDevice = 1,          ///< from the first worker, with /dev/fuse
  kUpgrade = 2,         ///< from a worker that is asked for an upgrade, with the new program
  kUpgradeTaken = 3,    ///< to that worker: end with kExitHandOver
  kUpgradeRefused = 4,  ///< to that worker: a stop or another upgrade has already begun
  kLock = 5,            ///< from a worker, with the lock of its store, which the supervisor holds between two workers
  /// From a worker, with its listening control socket: who asks between two workers waits for the next one, and is told
  /// by the supervisor why there is none.
  kControl = 6,
  kExaminerSilent = 7,   ///< from a worker: its examiner takes no questions, and is to be replaced
  kMounterSilent = 8,    ///< the same of its mounter
  kLeft = 9,             ///< from a worker: nothing of the mount is left that would have to be taken down
  kProgramRefused = 10,  ///< to a worker that asked for an upgrade: others could have made that program
  kGuests = 11,          ///< from a worker, with the listening control socket of guests, for the proxy
};

enum class Receipt { kWord, kNothing, kEnded };

/// Sends one word, with a descriptor unless that is -1. Returns false when the other end is gone or does not listen.
[[nodiscard]] bool send_word(int link, Word word, int descriptor = -1) noexcept;
/// Receives one word if one is there, and its descriptors; never blocks as long as there is room for as many as a
/// message may have. A message that is no word answers kNothing too.
[[nodiscard]] Receipt receive_word(int link, Word& word, std::span<Fd> descriptors) noexcept;

/// Who has connected to the control socket of guests: neither root nor the user who mounted.
struct Guest {
  static constexpr size_t kMostGroups = 256;
  uid_t uid = 0;
  pid_t pid = 0;
  uint32_t group_count = 0;  ///< 0: not known, or more than there is room for
  std::array<gid_t, kMostGroups> groups{};
};
/// Hands a guest to whoever serves, with one end of a pair of stream sockets: what is heard and said there is what the
/// guest says and hears. `channel` is a SOCK_SEQPACKET. False: not now.
[[nodiscard]] bool send_guest(int channel, const Guest& guest, int connection) noexcept;
/// Receives one guest if one is there; never blocks. kWord without a connection: one that this process had no room for.
[[nodiscard]] Receipt receive_guest(int channel, Guest& guest, Fd& connection) noexcept;

}  // namespace inductorfs::supervisor
