// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/takeover/region.h"
#include "inductorfs/vfs/file_system.h"

/// The kernel's side of a mount: mounting, the FUSE session, and one adapter that unpacks a request, calls the file
/// system and replies exactly once. docs/semantics.md lists each operation and errno.
namespace inductorfs::fuse {

struct MountOptions {
  std::string mountpoint;  ///< absolute; an existing empty directory
  std::string source = "inductorfs";
  bool allow_other = false;  ///< root does; others need user_allow_other in /etc/fuse.conf
  int directory = -1;        ///< the mountpoint, open (O_PATH): root mounts there, whatever has its path by now
};

/// Mounts as root by mount(2), else through fusermount3, and gives the /dev/fuse descriptor, which the caller owns: the
/// mount lives as long as somebody holds it. Errors, each with its remedy: kNotFound (no such directory),
/// kNotDirectory, kNotEmpty, kBusy (already a mount), kNotSupported (no /dev/fuse, or no fusermount3), kNotPermitted.
[[nodiscard]] Result<Fd> mount(const MountOptions& options);
/// Unmounts; `lazy` detaches a mount that is in use. kBusy names who uses it. A path that is no mount is kNotFound.
[[nodiscard]] Result<void> unmount(const std::string& mountpoint, bool lazy);
/// Who uses what is mounted there: "pid 12 (python train.py, open file), ..."; empty when nobody that /proc shows does.
[[nodiscard]] std::string mount_users(const std::string& mountpoint);
/// What is mounted exactly there: the type of file system ("fuse.inductorfs"), or nothing. Reads /proc/self/mountinfo
/// only, so it does not hang on a dead mount.
[[nodiscard]] std::string mounted_type(const std::string& mountpoint);

struct SessionOptions {
  size_t threads = 8;
  /// How long a thread polls before it sleeps, when requests come closely; 0 = never. It yields to whoever wants the
  /// processor: measured on two processors, a round trip takes 19 us instead of 70 when the other one is idle (asleep,
  /// it has to be woken), and 4.4 us instead of 3.8 when both are busy.
  std::chrono::microseconds spin{50};
  /// Where requests lie while they are served, so that the next worker can finish them; it outlives the session. None:
  /// memory of the session's own. Its number of threads counts.
  const takeover::Region* region = nullptr;
  /// A socket for what the kernel is to forget (SOCK_SEQPACKET, a message each, as the device takes it), whose other
  /// end a process reads that outlives this one; -1, or nobody reads there: the device. The kernel may hold the writer
  /// up until requests are answered, and no signal ends that.
  int notices = -1;
  /// Nobody reads `notices` any more: puts another reader behind the same descriptor. False, or none: it cannot be had,
  /// and the device is told. Called by one thread at a time, with no lock held.
  std::function<bool()> renew_notices{};
  /// An earlier worker has served this mount: the session begins with that one's INIT, and with what it left.
  bool resume = false;
  /// Ask the kernel once more for what it waits for after that (FUSE_NOTIFY_RESEND, Linux 6.9): a second line, for what
  /// the slots should have missed.
  bool resend = true;
};

/// Serves one /dev/fuse descriptor. Form A of the design: OPEN, OPENDIR and FLUSH are answered ENOSYS, names, absences
/// and attributes are kept by the kernel until it is told otherwise, PARALLEL_DIROPS is negotiated (libfuse before 3.17
/// does not ask for it, so the INIT reply is patched). Safe for concurrent use.
class Session : public vfs::KernelCache {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Session>> open(Fd device, const SessionOptions& options,
                                                             vfs::FileSystem& file_system, Counters& counters);
  /// Starts the threads, after requests whose effect an earlier worker had begun are finished; the other ones that it
  /// left are finished while new ones are served. Calls FileSystem::requests_finished() when all are. `on_end` is
  /// called once, from the last of them, when the kernel has ended the session (unmounted or aborted); it must not call
  /// stop(). Requires: called once.
  virtual void start(std::function<void()> on_end) = 0;
  /// Ends the threads without unmounting. Idempotent. Lookups that still wait may be answered later, also when this
  /// object is gone; the file system must outlive those answers.
  virtual void stop() = 0;
};

}  // namespace inductorfs::fuse
