// SPDX-License-Identifier: Apache-2.0
#include "messenger.h"

#include <linux/fuse.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "inductorfs/supervisor/protocol.h"
#include "workers.h"

namespace inductorfs::supervisor {
namespace {

/// A header, a fixed part and a name (FUSE_NAME_MAX of Linux 6.15, fs/fuse/fuse_i.h: PATH_MAX - 1).
constexpr size_t kNoticeLimit = 4096 + 256;
constexpr int kDevice = kMessengerDevice;
constexpr int kNotices = kMessengerNotices;
constexpr int kMostDescriptors = 256;  ///< of a supervisor; it has some ten

/// The kernel did not know the name, but its listing of the directory may lack it.
void forget_listing(std::string_view notice) {
  struct {
    fuse_out_header header;
    fuse_notify_inval_inode_out content;
  } message{};
  fuse_notify_inval_entry_out entry{};
  if (notice.size() < sizeof message.header + sizeof entry) return;
  std::memcpy(&message.header, notice.data(), sizeof message.header);
  if (message.header.error != FUSE_NOTIFY_INVAL_ENTRY) return;
  std::memcpy(&entry, notice.data() + sizeof message.header, sizeof entry);
  message.header.error = FUSE_NOTIFY_INVAL_INODE;
  message.header.len = sizeof message;
  message.content.ino = entry.parent;
  (void)!::write(kDevice, &message, sizeof message);  // the kernel may not know the directory either
}

void close_others() {
  if (::syscall(SYS_close_range, kNotices + 1, ~0U, 0) == 0) return;  // Linux 5.9
  for (int fd = kNotices + 1; fd < kMostDescriptors; ++fd) (void)::close(fd);
}

/// In the child: never returns. A notice leaves the socket when the kernel has it, so that whoever comes after a
/// process that was killed tells it again: twice does no harm.
[[noreturn]] void carry() {
  std::array<char, kNoticeLimit> notice;
  while (true) {
    const ssize_t got = ::recv(kNotices, notice.data(), notice.size(), MSG_PEEK);
    if (got == 0) ::_exit(0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) ::_exit(1);
    const std::string_view bytes(notice.data(), static_cast<size_t>(got));
    if (::write(kDevice, bytes.data(), bytes.size()) < 0) forget_listing(bytes);
    (void)::recv(kNotices, notice.data(), notice.size(), 0);
  }
}

/// "inductorfs-supervisor" becomes "inductorfs-messenger", in the list of processes.
void rename_process(char* name) {
  constexpr std::string_view kOld = "supervisor";
  constexpr std::string_view kNew = "messenger";
  (void)::prctl(PR_SET_NAME, "inductorfs-mess");  // cut at 15 bytes, as a program's name is
  if (name == nullptr) return;
  const size_t size = std::strlen(name);
  if (!std::string_view(name, size).ends_with(kOld)) return;
  char* const place = name + size - kOld.size();
  std::memset(place, 0, kOld.size());
  std::memcpy(place, kNew.data(), kNew.size());
}

}  // namespace

void be_messenger() {
  close_others();
  carry();
}

void Messenger::open() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  in_ = out_of_the_way(Fd(ends[0]));
  out_ = out_of_the_way(Fd(ends[1]));
}

bool Messenger::start(int device, char* name) {
  if (!in_) return false;
  pid_ = ::fork();
  if (pid_ == 0) {
    rename_process(name);
    const bool ready = ::dup2(device, kDevice) >= 0 && ::dup2(in_.get(), kNotices) >= 0;
    close_others();  // the sending end, too, else it would wait for itself
    if (ready) carry();
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
