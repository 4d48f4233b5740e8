// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/call_filter.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <linux/openat2.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/mount_table.h"
#include "inductorfs/base/regular_file.h"
#include "support/emulator.h"
#include "support/temporary_directory.h"

namespace inductorfs {
namespace {

using testing::TemporaryDirectory;

constexpr int kNoChild = 255;

enum class Role { kNone, kReads, kServes, kStarts };

/// Returns what `act` returned in a child of that role, of one byte.
int in_child(Role role, const std::function<int()>& act) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    const bool is_filtered = role != Role::kNone;
    const auto filter = role == Role::kServes   ? CallFilter::for_serving()
                        : role == Role::kStarts ? CallFilter::for_starting()
                                                : CallFilter::for_reading();
    if (is_filtered && (!filter || !filter->apply())) ::_exit(kNoChild);
    ::_exit(act());
  }
  int status = 0;
  if (pid < 0 || ::waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return kNoChild;
  return WEXITSTATUS(status);
}

/// As the kernel answers it: glibc's functions have other ways for some.
template <typename... Arguments>
long call(long number, Arguments... arguments) {
  errno = 0;
  return ::syscall(number, arguments...);
}

TEST(CallFilter, LetsAProcessReadAndAnswer) {
  INDUCTORFS_NEEDS_NO_EMULATOR("filters of system calls");
  const TemporaryDirectory temporary;
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, temporary / "file", "what it says"));
  std::filesystem::create_symlink("file", temporary / "link");
  std::array<int, 2> ends{-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const Fd ours(ends[0]);
  const Fd theirs(ends[1]);
  const int left = in_child(Role::kReads, [&] {
    const auto text = read_regular(temporary / "link", 100);
    if (!text) return 1;
    std::vector<std::string> large;  // more memory than the heap has at once
    for (int i = 0; i < 100; ++i) large.emplace_back(size_t{1} << 20, 'x');
    size_t names = 0;
    for (const auto& entry : std::filesystem::directory_iterator(temporary.path())) names += entry.exists() ? 1 : 0;
    if (names != 2 || read_mount_table().empty()) return 2;
    return write_full(theirs.get(), *text) ? 0 : 3;
  });
  EXPECT_EQ(left, 0);
  std::array<char, 64> room{};
  EXPECT_EQ(::recv(ours.get(), room.data(), room.size(), MSG_DONTWAIT), 12);
}

/// Each of these does something without the filter, or the kernel says why not.
TEST(CallFilter, RefusesWhatAnAttackerWouldBeginWith) {
  INDUCTORFS_NEEDS_NO_EMULATOR("filters of system calls");
  const TemporaryDirectory temporary;
  const std::string file = temporary / "file";
  const std::string fresh = temporary / "fresh";
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, file, "what it says"));
  const Fd opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 8> bytes{};
  const iovec memory{bytes.data(), bytes.size()};
  open_how how{};
  const auto open_as = [&](int flags) {
    return [&file, flags] { return call(SYS_openat, AT_FDCWD, file.c_str(), flags, 0600); };
  };
  const std::vector<std::pair<const char*, std::function<long()>>> calls = {
      {"open for writing", open_as(O_WRONLY)},
      {"open for both", open_as(O_RDWR)},
#ifdef SYS_open
      {"the old open for writing", [&] { return call(SYS_open, file.c_str(), O_WRONLY); }},
      {"the old open and create", [&] { return call(SYS_open, file.c_str(), O_RDONLY | O_CREAT, 0600); }},
#endif
      {"open and create", open_as(O_RDONLY | O_CREAT)},
      {"open and empty", open_as(O_RDONLY | O_TRUNC)},
      {"open, access mode 3", open_as(O_ACCMODE)},
      {"a file without a name", [&] { return call(SYS_openat, AT_FDCWD, "/tmp", O_TMPFILE | O_WRONLY, 0600); }},
      {"openat2", [&] { return call(SYS_openat2, AT_FDCWD, file.c_str(), &how, sizeof how); }},
      {"mkdirat", [&] { return call(SYS_mkdirat, AT_FDCWD, fresh.c_str(), 0700); }},
      {"unlinkat", [&] { return call(SYS_unlinkat, AT_FDCWD, fresh.c_str(), 0); }},
      {"linkat", [&] { return call(SYS_linkat, AT_FDCWD, file.c_str(), AT_FDCWD, fresh.c_str(), 0); }},
      {"renameat2", [&] { return call(SYS_renameat2, AT_FDCWD, file.c_str(), AT_FDCWD, fresh.c_str(), 0); }},
      {"fchmodat", [&] { return call(SYS_fchmodat, AT_FDCWD, file.c_str(), 0600); }},
      {"fchownat", [&] { return call(SYS_fchownat, AT_FDCWD, file.c_str(), -1, -1, 0); }},
      {"ftruncate", [&] { return call(SYS_ftruncate, opened.get(), 0); }},
      {"pwrite64", [&] { return call(SYS_pwrite64, opened.get(), bytes.data(), 1, 0); }},
      {"fcntl, a lease", [&] { return call(SYS_fcntl, opened.get(), F_SETLEASE, F_RDLCK); }},
      {"fcntl, flags", [&] { return call(SYS_fcntl, opened.get(), F_SETFL, O_NONBLOCK); }},
      {"ioctl", [&] { return call(SYS_ioctl, opened.get(), 0x5401, bytes.data()); }},
      {"socket", [] { return call(SYS_socket, AF_UNIX, SOCK_STREAM, 0); }},
      {"connect", [&] { return call(SYS_connect, opened.get(), nullptr, 0); }},
      {"memfd_create", [] { return call(SYS_memfd_create, "inductorfs-test", MFD_CLOEXEC); }},
      {"clone", [] { return call(SYS_clone, CLONE_THREAD, nullptr, nullptr, nullptr, nullptr); }},
      {"clone3", [] { return call(SYS_clone3, nullptr, 0); }},
      {"execve", [] { return call(SYS_execve, "/nonexistent", nullptr, nullptr); }},
      {"execveat", [] { return call(SYS_execveat, AT_FDCWD, "/nonexistent", nullptr, nullptr, 0); }},
      {"kill", [] { return call(SYS_kill, ::getppid(), 0); }},
      {"tgkill", [] { return call(SYS_tgkill, ::getppid(), ::getppid(), 0); }},
      {"pidfd_open", [] { return call(SYS_pidfd_open, ::getppid(), 0); }},
      {"ptrace", [] { return call(SYS_ptrace, PTRACE_ATTACH, -1, nullptr, nullptr); }},
      {"process_vm_readv", [&] { return call(SYS_process_vm_readv, ::getpid(), &memory, 1, &memory, 1, 0); }},
      {"process_vm_writev", [&] { return call(SYS_process_vm_writev, ::getpid(), &memory, 1, &memory, 1, 0); }},
      {"prctl", [] { return call(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0); }},
      {"setresuid", [] { return call(SYS_setresuid, -1, -1, -1); }},
      {"setfsuid", [] { return call(SYS_setfsuid, -1); }},
      {"capset", [] { return call(SYS_capset, nullptr, nullptr); }},
      {"unshare", [] { return call(SYS_unshare, 0); }},
      {"setns", [&] { return call(SYS_setns, opened.get(), 0); }},
      {"mount", [] { return call(SYS_mount, nullptr, "/nonexistent", nullptr, 0, nullptr); }},
      {"chroot", [] { return call(SYS_chroot, "/nonexistent"); }},
      {"a futex of others", [&] { return call(SYS_futex, bytes.data(), FUTEX_WAKE, 1, nullptr, nullptr, 0); }},
      {"prlimit64", [] { return call(SYS_prlimit64, ::getppid(), 0, nullptr, nullptr); }},
      {"memory that runs",
       [] { return call(SYS_mmap, nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }},
      {"mprotect to run", [] { return call(SYS_mprotect, nullptr, 4096, PROT_READ | PROT_EXEC); }},
  };
  const auto in_children = [&calls](Role role) {
    std::vector<std::string> unknown;
    for (const auto& [what, act] : calls) {
      if (in_child(role, [&act = act] { return act() < 0 ? errno : 0; }) == ENOSYS) unknown.emplace_back(what);
    }
    return unknown;
  };
  EXPECT_EQ(in_children(Role::kReads).size(), calls.size());
  EXPECT_FALSE(std::filesystem::exists(fresh));
  EXPECT_EQ(read_regular(file, 100).value_or(""), "what it says");
  EXPECT_EQ(in_children(Role::kNone), std::vector<std::string>())
      << "nothing is learned of a call that this kernel lacks";
}

TEST(CallFilter, LetsOpenToRead) {
  INDUCTORFS_NEEDS_NO_EMULATOR("filters of system calls");
  for (const int flags : {O_RDONLY, O_PATH, O_RDONLY | O_DIRECTORY, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW}) {
    EXPECT_EQ(
        in_child(Role::kReads, [flags] { return call(SYS_openat, AT_FDCWD, "/", flags | O_CLOEXEC) < 0 ? errno : 0; }),
        0)
        << flags;
  }
}

/// By the kernel's numbers.
const std::set<long>& calls_of_reading() {
  static const std::set<long> calls = {
#ifdef SYS_open
      SYS_readlink,
      SYS_stat,
      SYS_lstat,
      SYS_access,
      SYS_poll,
#endif
      SYS_read,
      SYS_pread64,
      SYS_readv,
      SYS_preadv,
      SYS_lseek,
      SYS_getdents64,
      SYS_close,
      SYS_dup,
      SYS_readlinkat,
      SYS_fstat,
      SYS_newfstatat,
      SYS_statx,
      SYS_statfs,
      SYS_fstatfs,
      SYS_faccessat,
      SYS_faccessat2,
      SYS_getcwd,
      SYS_fgetxattr,
      SYS_getxattr,
      SYS_lgetxattr,
      SYS_fadvise64,
      SYS_inotify_add_watch,
      SYS_write,
      SYS_writev,
      SYS_sendmsg,
      SYS_sendto,
      SYS_ppoll,
      SYS_brk,
      SYS_munmap,
      SYS_mremap,
      SYS_madvise,
      SYS_clock_gettime,
      SYS_clock_nanosleep,
      SYS_nanosleep,
      SYS_gettimeofday,
      SYS_getrandom,

      SYS_sched_yield,
      SYS_sched_getaffinity,
      SYS_restart_syscall,
      SYS_getrusage,
      SYS_sysinfo,
      SYS_uname,
      SYS_getpid,
      SYS_gettid,
      SYS_getppid,
      SYS_getuid,
      SYS_geteuid,
      SYS_getgid,
      SYS_getegid,
      SYS_getgroups,
      SYS_capget,
      SYS_rt_sigaction,
      SYS_rt_sigprocmask,
      SYS_rt_sigreturn,
      SYS_sigaltstack,
      SYS_exit,
      SYS_exit_group};
  return calls;
}

/// Those with a mode are in MakesNoSetIdFileWhereItServes. Of futex(2) the kernel itself does not know what is asked
/// here.
std::set<long> calls_of_serving() {
  std::set<long> calls = calls_of_reading();
  calls.insert({
#ifdef SYS_open
      SYS_rmdir,
      SYS_unlink,
      SYS_rename,
      SYS_link,
      SYS_symlink,
      SYS_time,
      SYS_dup2,
      SYS_select,
      SYS_epoll_wait,
#endif
      SYS_pwrite64,
      SYS_ftruncate,
      SYS_fallocate,
      SYS_fsync,
      SYS_fdatasync,
      SYS_syncfs,
      SYS_sync_file_range,
      SYS_unlinkat,
      SYS_renameat,
      SYS_renameat2,
      SYS_linkat,
      SYS_symlinkat,
      SYS_fchown,
      SYS_umask,
      SYS_utimensat,
      SYS_flock,
      SYS_setxattr,
      SYS_lsetxattr,
      SYS_fsetxattr,
      SYS_llistxattr,
      SYS_flistxattr,
      SYS_lremovexattr,
      SYS_fremovexattr,
      SYS_inotify_init1,
      SYS_inotify_rm_watch,
      SYS_close_range,
      SYS_connect,
      SYS_bind,
      SYS_listen,
      SYS_accept4,
      SYS_shutdown,
      SYS_getsockname,
      SYS_getpeername,
      SYS_getsockopt,
      SYS_setsockopt,
      SYS_socketpair,
      SYS_recvfrom,
      SYS_recvmsg,
      SYS_sendmmsg,
      SYS_pselect6,
      SYS_epoll_create1,
      SYS_epoll_ctl,
      SYS_epoll_pwait,
      SYS_eventfd2,
      SYS_signalfd4,
      SYS_pipe2,
      SYS_dup3,
      SYS_wait4,
      SYS_mlock,
      SYS_munlock,
      SYS_memfd_create,
      SYS_membarrier,
      SYS_get_robust_list,
      SYS_set_robust_list,
      SYS_rseq,
      SYS_set_tid_address,
      SYS_sched_getparam,
      SYS_sched_getscheduler,
      SYS_getcpu,
      SYS_clock_getres,
      SYS_getrlimit,
      SYS_rt_sigtimedwait});
  return calls;
}

TEST(CallFilter, MakesNoSetIdFileWhereItServes) {
  INDUCTORFS_NEEDS_NO_EMULATOR("filters of system calls");
  const TemporaryDirectory temporary;
  const std::string file = temporary / "file";
  for (const mode_t mode : {0755U, 04755U, 02755U, 06755U}) {
    const std::string fresh = temporary / std::to_string(mode);
    const std::vector<std::function<long()>> calls = {
        [&] { return call(SYS_openat, AT_FDCWD, fresh.c_str(), O_WRONLY | O_CREAT, mode); },
        [&] { return call(SYS_fchmod, ::open(file.c_str(), O_RDONLY | O_CLOEXEC), mode); },
        [&] { return call(SYS_mkdirat, AT_FDCWD, (fresh + ".d").c_str(), mode); },
    };
    ASSERT_TRUE(write_file_atomically(AT_FDCWD, file, "a program"));
    for (size_t i = 0; i < calls.size(); ++i) {
      const int error = in_child(Role::kServes, [&] { return calls[i]() < 0 ? errno : 0; });
      EXPECT_EQ(error, mode == 0755U ? 0 : ENOSYS) << i << " of " << mode;
    }
  }
  open_how how{};
  EXPECT_EQ(in_child(Role::kServes, [&] { return call(SYS_openat2, AT_FDCWD, "/", &how, sizeof how) < 0 ? errno : 0; }),
            ENOSYS);
}

/// Some of the others a kernel may have been built without.
TEST(CallFilter, TakesFromWhoStartsProgramsWhatNoneNeeds) {
  INDUCTORFS_NEEDS_NO_EMULATOR("filters of system calls");
  const auto act_of = [](long number) {
    return [number] { return call(number, -1, -1, -1, -1, -1, -1) < 0 ? errno : 0; };
  };
  for (const long number : {SYS_ptrace, SYS_reboot, SYS_settimeofday, SYS_sethostname, SYS_adjtimex}) {
    EXPECT_NE(in_child(Role::kNone, act_of(number)), ENOSYS) << number;
    EXPECT_EQ(in_child(Role::kStarts, act_of(number)), ENOSYS) << number;
  }
  for (const long number : {SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_init_module, SYS_kexec_load, SYS_syslog,
                            SYS_acct, SYS_add_key, SYS_keyctl, SYS_process_vm_writev, SYS_kcmp, SYS_swapon,
                            SYS_quotactl, SYS_open_by_handle_at, SYS_fanotify_init}) {
    EXPECT_EQ(in_child(Role::kStarts, act_of(number)), ENOSYS) << number;
  }
  EXPECT_EQ(in_child(Role::kStarts, [] { return std::system("exec 3</dev/null; kill -0 $$ && true"); }), 0)
      << "a program may be run";
}

/// A call that is added to the filter is to be added here, by whoever has thought of what it is good for. What is
/// allowed with some arguments alone is in RefusesWhatAnAttackerWouldBeginWith.
TEST(CallFilter, LetsNoOtherCallPass) {
  INDUCTORFS_NEEDS_NO_EMULATOR("filters of system calls");
  constexpr long kMost = 512;
  const std::set<long> serving = calls_of_serving();
#ifdef __x86_64__
  // The kernel lets them pass whatever the filter says; they are for its own traces, and end any other caller.
  const std::set<long> of_the_kernel = {335, 336};  // uretprobe, uprobe
#else
  const std::set<long> of_the_kernel;
#endif
  for (long number = 0; number < kMost; ++number) {
    if (of_the_kernel.contains(number)) continue;
    const auto act = [number] { return call(number, -1, -1, -1, -1, -1, -1) < 0 ? errno : 0; };
    EXPECT_EQ(in_child(Role::kReads, act) != ENOSYS, calls_of_reading().contains(number)) << number;
    EXPECT_EQ(in_child(Role::kServes, act) != ENOSYS, serving.contains(number)) << number;
  }
}

}  // namespace
}  // namespace inductorfs
