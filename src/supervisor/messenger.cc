// SPDX-License-Identifier: Apache-2.0
#include "messenger.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "carriers.h"
#include "inductorfs/supervisor/notices.h"
#include "workers.h"

namespace inductorfs::supervisor {
namespace {

constexpr int kDevice = 0;
constexpr int kNotices = 1;
constexpr rlim_t kMostDescriptors = 4096;          ///< of a worker: some hundred at most
constexpr const char kName[] = "inductorfs-mess";  ///< cut at 15 bytes, as a program's name is

void close_others() {
  if (::syscall(SYS_close_range, kNotices + 1, ~0U, 0) == 0) return;  // Linux 5.9
  rlimit limit{};
  (void)::getrlimit(RLIMIT_NOFILE, &limit);
  const int end = static_cast<int>(std::min(limit.rlim_cur, kMostDescriptors));
  for (int fd = kNotices + 1; fd < end; ++fd) (void)::close(fd);
}

/// Leaves the process with these two.
bool take_descriptors(int device, int notices) {
  // Neither may lie where the other one goes.
  const int other = ::fcntl(notices, F_DUPFD, kNotices + 1);
  const bool ready = other >= 0 && ::dup2(device, kDevice) >= 0 && ::dup2(other, kNotices) >= 0;
  close_others();
  return ready;
}

/// "inductorfs-supervisor" becomes "inductorfs-messenger", in the list of processes.
void rename_process(char* name) {
  constexpr std::string_view kOld = "supervisor";
  constexpr std::string_view kNew = "messenger";
  (void)::prctl(PR_SET_NAME, kName);
  if (name == nullptr) return;
  const size_t size = std::strlen(name);
  if (!std::string_view(name, size).ends_with(kOld)) return;
  char* const place = name + size - kOld.size();
  std::memset(place, 0, kOld.size());
  std::memcpy(place, kNew.data(), kNew.size());
}

}  // namespace

void be_messenger(int device, int notices) {
  (void)::prctl(PR_SET_NAME, kName);
  if (!take_descriptors(device, notices)) ::_exit(1);
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
    rename_process(name);
    // Into the tree by its descriptor, and then only these two: with the sending end it would wait for itself.
    const bool ready = become_server(user) && take_descriptors(device, in_.get());
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
