// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "inductorfs/base/fd.h"

/// What the supervisor and its workers have agreed on (docs/operations.md). Nothing here allocates.
namespace inductorfs::supervisor {

/// Descriptors that a process finds open when it starts.
inline constexpr int kRegionFd = 3;    ///< takeover::Region
inline constexpr int kSettingsFd = 4;  ///< what `mount` was told, for the worker
inline constexpr int kLinkFd = 5;      ///< worker: its end of the link to the supervisor
inline constexpr int kDeviceFd = 6;    ///< worker: /dev/fuse, when there is a session to resume
inline constexpr int kReadyFd = 7;    ///< first worker: where the process waits that asked for the mount; may be closed
inline constexpr int kProgramFd = 8;  ///< supervisor: the program that workers are started from
inline constexpr int kNotesFd = 9;    ///< what one worker leaves for the next one, beside the region
inline constexpr int kLockFd = 10;    ///< worker: the lock of the mount's store, from the worker before it
inline constexpr int kNoticesFd =
    11;  ///< worker: where the messenger takes what the kernel is to forget; may be closed
inline constexpr int kFirstFreeFd = 12;

/// argv[0] of inductorfs-supervisor when a worker that has lost its supervisor starts it as a messenger, and its
/// descriptors.
inline constexpr const char* kMessengerName = "inductorfs-messenger";
inline constexpr int kMessengerDevice = 0;   ///< /dev/fuse
inline constexpr int kMessengerNotices = 1;  ///< its end of the notices

/// Exit codes of a worker. 0: the mount has ended. Any other, and a signal, is a crash.
inline constexpr int kExitHandOver = 75;  ///< it has answered what it had begun, and left the mount as it is

/// Threads of a worker that nobody waits for are called so: they look at files of other users, so that the kernel may
/// never let them go. They have no descriptor of the worker's.
inline constexpr std::string_view kLooseThread = "loose-look";

/// What goes over the link, which is a SOCK_SEQPACKET.
enum class Word : uint32_t {
  kDevice = 1,          ///< from the first worker, with /dev/fuse
  kUpgrade = 2,         ///< from a worker that is asked for an upgrade, with the new program
  kUpgradeTaken = 3,    ///< to that worker: end with kExitHandOver
  kUpgradeRefused = 4,  ///< to that worker: a stop or another upgrade is on its way
  kLock = 5             ///< from a worker, with the lock of its store: the supervisor holds it between two workers
};

enum class Receipt { kWord, kNothing, kEnded };

/// False when the other end is gone or does not listen.
[[nodiscard]] bool send_word(int link, Word word, int descriptor = -1) noexcept;
/// Never blocks. kNothing for what is no word, too.
[[nodiscard]] Receipt receive_word(int link, Word& word, Fd& descriptor) noexcept;

}  // namespace inductorfs::supervisor
