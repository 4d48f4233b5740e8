// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include "inductorfs/base/fd.h"
#include "remains.h"
#include "user.h"
#include "workers.h"

namespace inductorfs::supervisor {

/// A process that takes the connections of other users to the control socket of root's mount, and passes on what is
/// sent there, byte by byte. With a request a user can send a descriptor whose last close waits for as long as he likes
/// (a connection with SO_LINGER, a file of his own FUSE), and whoever receives it or closes the connection closes it: a
/// worker would not answer, and would not end. Nobody waits for this process. It holds its listener and one end of a
/// channel (protocol.h, Guest), of which workers have the other, and ends when nobody is left there. Needs external
/// synchronisation.
class Proxy {
 public:
  /// Makes the channel, before the first worker.
  void open();
  /// Returns the end of the channel that workers receive from; -1: there is none.
  [[nodiscard]] int channel() const { return worker_end_.get(); }
  /// Takes connections at this listener from now on, instead of at an earlier one. `name` is as for Messenger::start().
  void serve(Fd listener, char* name, const WorkerIds& user);
  /// Starts another process for one that has ended.
  void keep(char* name, const WorkerIds& user);
  /// Leaves the listener to the process, which is not to have ended when it is closed here.
  void leave();
  /// The milliseconds until keep() is to be called; -1: whenever a child has ended.
  [[nodiscard]] Time rest(Time now) const;

 private:
  void start(char* name, const WorkerIds& user, int earlier = -1);
  void try_later();

  pid_t pid_ = -1;
  Time due_ = 0;  ///< when another one is to be started; 0: none is
  Time pause_ = 0;
  Remains remains_;
  Fd listener_;
  Fd worker_end_;
  Fd own_end_;
};

/// Passes on what comes at `listener` to who receives at the other end of `channel`, until that end has gone. Of one
/// user it has four connections at once, of all 32; who has more is told so.
void pass_on_guests(int listener, int channel);

}  // namespace inductorfs::supervisor
