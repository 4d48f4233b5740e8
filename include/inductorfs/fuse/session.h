// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "inductorfs/base/counters.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/mount_table.h"
#include "inductorfs/base/result.h"
#include "inductorfs/takeover/region.h"
#include "inductorfs/vfs/operations.h"

/// The kernel's side of a mount: mounting, the FUSE session, and one adapter that unpacks a request, calls the file
/// system and replies exactly once. docs/semantics/file-operations.md lists each operation and errno.
namespace inductorfs::fuse {

struct MountOptions {
  std::string mountpoint;  ///< absolute; an existing empty directory
  std::string source = "inductorfs";
  bool allow_other = false;  ///< root needs nothing for it; others need user_allow_other in /etc/fuse.conf
  int directory = -1;        ///< the mountpoint, opened with O_PATH: root mounts there, whatever has its path by then
  /// The root of a dead mount that covers `directory`, opened with O_PATH. The new mount replaces it, so that nobody
  /// ever sees the directory; before Linux 6.5 it comes on top, and the dead one stays below until somebody detaches
  /// it.
  int dead = -1;
  bool may_hold_files = false;  ///< the directory need not be empty
};

struct Mounted {
  Fd device;        ///< /dev/fuse, which the caller owns: the mount lives as long as some process holds it
  uint64_t id = 0;  ///< its number in the mount table; 0, not known, for a mount through fusermount3
};

/// Mounts by fsmount(2) if the caller is root, else through fusermount3. Errors, each with its remedy: kNotFound (no
/// such directory), kNotDirectory, kNotEmpty, kBusy (already a mount), kNotSupported (no /dev/fuse, or no fusermount3),
/// kNotPermitted.
[[nodiscard]] Result<Mounted> mount(const MountOptions& options);
/// Unmounts; `lazy` detaches a mount that is in use. kBusy names the processes that use it, or what is wrong when
/// another mount is at its place, which stays. For root only: when it is not lazy, the owner of the directory that the
/// mountpoint lies in could still exchange that one name while the kernel is called.
[[nodiscard]] Result<void> unmount(const MountEntry& mount, bool lazy);
/// Unmounts what is at this path. A path that is no mount is kNotFound.
[[nodiscard]] Result<void> unmount(const std::string& mountpoint, bool lazy);
/// Has the kernel end the requests of this mount, for root. The mount stays.
void end_waits(const MountEntry& mount);
struct MountUse {
  std::string mount_point;  ///< one that is in use; empty: /proc shows no process that uses any
  std::string users;        ///< "pid 12 (python train.py, open file), ..."
};
/// Looks through /proc, once, for the processes that use what is mounted there.
[[nodiscard]] MountUse mount_use(std::span<const MountEntry> mounts);
/// Returns the type of the file system that is mounted exactly there ("fuse.inductorfs"), or an empty string. Reads
/// only /proc/self/mountinfo, so it does not hang on a dead mount.
[[nodiscard]] std::string mounted_type(const std::string& mountpoint);

struct SessionOptions {
  size_t threads = 8;
  /// How long a thread polls before it sleeps when requests follow each other closely; 0 disables polling. While it
  /// polls it yields the processor to any thread that wants it. Measured on two processors: a round trip takes 19 us
  /// instead of 70 when the other processor is idle (a sleeping thread has to be woken), and 4.4 us instead of 3.8 when
  /// both are busy.
  std::chrono::microseconds spin{50};
  /// Threads that requests of one user other than root may hold for 20 ms and more; the next request is answered with
  /// EDQUOT. 0: as many as there are. What the kernel writes from its cache is nobody's.
  size_t user_requests = 0;
  /// Where requests are kept while they are served, so that the next worker can finish them; it outlives the session,
  /// and its number of threads counts. nullptr: the session uses memory of its own.
  const takeover::Region* region = nullptr;
  /// A socket for what the kernel is to forget (SOCK_SEQPACKET, one message for each, in the form that the device
  /// takes). The process that reads the other end outlives this one: the kernel may hold a writer up until requests are
  /// answered, and no signal ends that. If it is -1, or no process reads there, the session writes to the device
  /// itself.
  int notices = -1;
  /// Puts another reader behind `notices` when no process reads there any more. If it answers false, or there is none,
  /// the session writes to the device itself. One thread at a time calls it, with no lock held.
  std::function<bool()> renew_notices{};
  /// An earlier worker has served this mount: the session begins with that worker's INIT, and with what it left.
  bool resume = false;
  /// Is called once, when all requests that an earlier worker left are finished, or when there are none. If it is
  /// empty, nobody is told.
  std::function<void()> requests_finished{};
  /// A resumed session asks the kernel once more for the requests whose answers it waits for (FUSE_NOTIFY_RESEND, Linux
  /// 6.9). This is a second line of defence, for requests that the slots have missed.
  bool resend = true;
};

/// Serves one /dev/fuse descriptor, which it owns, with threads of its own. It answers OPEN, OPENDIR and FLUSH with
/// ENOSYS, and lets the kernel keep names, absences and attributes until it is told otherwise. It negotiates
/// PARALLEL_DIROPS, for which it patches the INIT reply, because libfuse before 3.17 does not ask for it.
/// Safe for concurrent use.
class Session : public vfs::KernelCache {
 public:
  /// Opens the session on a mounted device. What `operations` refers to, `counters` and the region must outlive it.
  [[nodiscard]] static Result<std::unique_ptr<Session>> open(Fd device, const SessionOptions& options,
                                                             const vfs::Operations& operations, Counters& counters);
  /// Starts the threads. It first finishes the requests whose effect an earlier worker had begun; the other requests
  /// that it left are finished while new ones are served (SessionOptions::requests_finished). The last thread calls
  /// `on_end` once, when the kernel has ended the session (unmounted or aborted); `on_end` must not call stop(). Must
  /// be called once.
  virtual void start(std::function<void()> on_end) = 0;
  /// Ends the threads without unmounting. Idempotent. Lookups that still wait may be answered later, even when this
  /// object is gone; the file system must outlive those answers.
  virtual void stop() = 0;
  /// How many threads are at requests of each user that take long: for 20 ms.
  [[nodiscard]] virtual std::map<uint32_t, size_t> requests_by_user() const = 0;
};

}  // namespace inductorfs::fuse
