// SPDX-License-Identifier: Apache-2.0
#include "messenger.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "carriers.h"
#include "inductorfs/supervisor/notices.h"
#include "workers.h"

namespace inductorfs::supervisor {
namespace {

constexpr int kDevice = 0;
constexpr int kNotices = 1;
constexpr const char* kName = "messenger";

}  // namespace

void be_messenger(int device, int notices) {
  rename_process(nullptr, kName);
  if (!keep_only({device, notices})) ::_exit(1);
  carry_notices(kDevice, kNotices);
}

void Messenger::open() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  in_ = out_of_the_way(Fd(ends[0]));
  out_ = out_of_the_way(Fd(ends[1]));
}

bool Messenger::start(int device, char* name, const WorkerIds& user) {
  if (!in_) return false;
  pid_ = ::fork();
  if (pid_ == 0) {
    rename_process(name, kName);
    // Into the tree by its descriptor, and then only these two: with the sending end it would wait for itself.
    const bool ready = become_server(user) && keep_only({device, in_.get()});
    if (ready) carry_notices(kDevice, kNotices);
    ::_exit(1);
  }
  if (pid_ > 0) return true;
  in_.reset();  // workers see that nobody listens
  out_.reset();
  return false;
}

bool Messenger::reap() {
  int status = 0;
  if (pid_ <= 0 || ::waitpid(pid_, &status, WNOHANG) != pid_) return false;
  pid_ = -1;
  if (WIFSIGNALED(status)) return true;
  in_.reset();  // it cannot do it: as in start()
  out_.reset();
  return false;
}

}  // namespace inductorfs::supervisor
