// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <initializer_list>

#include "core.h"
#include "inductorfs/base/fd.h"
#include "user.h"

/// The system calls of a supervisor: signals, and the worker as a process.
namespace inductorfs::supervisor {

[[nodiscard]] Time now();
/// Moves a descriptor out of the numbers at which a worker expects its own descriptors.
[[nodiscard]] Fd out_of_the_way(Fd fd);

/// Receives SIGTERM, SIGINT, SIGHUP and SIGCHLD through a descriptor. Needs external synchronisation.
class Signals {
 public:
  /// Blocks the signals. A worker inherits that, so that none is lost before the worker is ready for them.
  [[nodiscard]] bool open();
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// Returns the next signal's number, or 0 when there is none.
  [[nodiscard]] int next();

 private:
  Fd fd_;
};

/// The descriptors that earlier workers have left for the next one; -1: nothing yet.
struct KeptDescriptors {
  int device = -1;
  int lock = -1;      ///< the lock of the store
  int notices = -1;   ///< Messenger::notices()
  int control = -1;   ///< the listening control socket
  int examiner = -1;  ///< Companion::renew()
  int mounter = -1;   ///< the same
  int guests = -1;    ///< Proxy::channel()
};

/// The current worker and the link to it. Needs external synchronisation.
class Worker {
 public:
  /// Starts `program` as `user`, whatever program it is. Returns false when the system has no room for it.
  [[nodiscard]] bool start(int program, const KeptDescriptors& kept, const char* mountpoint, const WorkerIds& user);
  /// Returns true once, with the status, when the worker has ended. Its last words are still on the link.
  [[nodiscard]] bool reap(int& status);
  void signal(int number) const;
  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Returns the link, or -1 when the worker has closed its end.
  [[nodiscard]] int link() const { return link_.get(); }
  void close_link() { link_.reset(); }

 private:
  pid_t pid_ = -1;
  Fd link_;
};

/// In a child: has the OOM killer take this process before the one that started it.
void go_first();
/// In a child: leaves it with these descriptors, at most three, which become 0, 1 and 2.
[[nodiscard]] bool keep_only(std::initializer_list<int> kept);
/// In a child: "inductorfs-supervisor" becomes "inductorfs-" and this in the list of processes, if that is what `name`,
/// argv[0], ends in; nullptr leaves it.
void rename_process(char* name, const char* what);
/// Protects this process from the OOM killer and locks it into memory, as far as its rights allow.
void protect();

}  // namespace inductorfs::supervisor
