// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/call_filter.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/futex.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>

#include "inductorfs/base/fd.h"

namespace inductorfs {
namespace {

/// By name: a machine that has no such call (SYS_open of arm64), or a library that is older than it, is no error; the
/// call is refused.
constexpr const char* kOfReading[] = {
    // files
    "read",
    "pread64",
    "readv",
    "preadv",
    "lseek",
    "getdents64",
    "close",
    "dup",
    "readlink",
    "readlinkat",
    "stat",
    "lstat",
    "fstat",
    "newfstatat",
    "statx",
    "statfs",
    "fstatfs",
    "access",
    "faccessat",
    "faccessat2",
    "getcwd",
    "fgetxattr",
    "getxattr",
    "lgetxattr",
    "fadvise64",
    "inotify_add_watch",  // for whoever has sent what is to tell of it
    // the answer, and lines for the log
    "write",
    "writev",
    "sendmsg",
    "sendto",
    "poll",
    "ppoll",
    // memory and time
    "brk",
    "munmap",
    "mremap",
    "madvise",
    "clock_gettime",
    "clock_nanosleep",
    "nanosleep",
    "gettimeofday",
    "getrandom",
    "sched_yield",
    "sched_getaffinity",
    "restart_syscall",
    "getrusage",
    "sysinfo",
    "uname",
    // itself
    "getpid",
    "gettid",
    "getppid",
    "getuid",
    "geteuid",
    "getgid",
    "getegid",
    "getgroups",
    "capget",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sigaltstack",
    "exit",
    "exit_group",
};
/// In addition to those.
constexpr const char* kOfServing[] = {
    // files
    "pwrite64",
    "ftruncate",
    "fallocate",
    "fsync",
    "fdatasync",
    "syncfs",
    "sync_file_range",
    "rmdir",
    "unlink",
    "unlinkat",
    "rename",
    "renameat",
    "renameat2",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "fchown",  // SQLite, where the process is root: to whom a file belongs already
    "umask",
    "utimensat",
    "flock",
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "llistxattr",
    "flistxattr",
    "lremovexattr",
    "fremovexattr",
    "inotify_init1",
    "inotify_rm_watch",
    "close_range",
    // connections
    "connect",
    "bind",
    "listen",
    "accept4",
    "shutdown",
    "getsockname",
    "getpeername",
    "getsockopt",
    "setsockopt",
    "socketpair",
    "recvfrom",
    "recvmsg",
    "sendmmsg",
    // waiting
    "futex",
    "select",
    "pselect6",
    "epoll_create1",
    "epoll_ctl",
    "epoll_wait",
    "epoll_pwait",
    "eventfd2",
    "signalfd4",
    "pipe2",
    "dup2",
    "dup3",
    "wait4",
    // memory, threads and itself
    "mlock",
    "munlock",
    "memfd_create",
    "membarrier",
    "get_robust_list",
    "set_robust_list",
    "rseq",
    "set_tid_address",
    "sched_getparam",
    "sched_getscheduler",
    "getcpu",
    "clock_getres",
    "time",
    "getrlimit",
    "rt_sigtimedwait",
};
/// What a unit without SystemCallFilter= would leave to whoever takes over a process that starts programs.
constexpr const char* kOfNobody[] = {
    // the kernel's inside, and more of its code than any job needs
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "init_module",
    "finit_module",
    "delete_module",
    "kexec_load",
    "kexec_file_load",
    "lookup_dcookie",
    "syslog",
    "ioperm",
    "iopl",
    "modify_ldt",
    "reboot",
    "swapon",
    "swapoff",
    "acct",
    "quotactl",
    "quotactl_fd",
    "vhangup",
    // the clock and the names of the host
    "settimeofday",
    "clock_settime",
    "clock_adjtime",
    "adjtimex",
    "sethostname",
    "setdomainname",
    // keys
    "add_key",
    "request_key",
    "keyctl",
    // other processes
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "process_madvise",
    "pidfd_getfd",
    "kcmp",
    // files by a number
    "open_by_handle_at",
    "fanotify_init",
};
/// With a mode, at this argument. A file that is set-user-id would be so on the host, whose mount of the store may run
/// it. openat2(2), whose mode no filter sees, is refused; HeldParent goes without. Of files that it has not opened it
/// changes no mode: what Landlock lets nobody open, it lets be opened to all.
constexpr std::pair<const char*, unsigned> kOfModes[] = {{"open", 2},  {"openat", 3},  {"creat", 1},
                                                         {"mkdir", 1}, {"mkdirat", 2}, {"fchmod", 1}};
constexpr scmp_datum_t kSetId = S_ISUID | S_ISGID;
/// Names and addresses of this host, by getaddrinfo(3), and the daemons of Redis and systemd.
constexpr std::pair<int, int> kSockets[] = {{AF_UNIX, 0},
                                            {AF_INET, 0},
                                            {AF_INET, IPPROTO_TCP},
                                            {AF_INET, IPPROTO_UDP},
                                            {AF_INET6, 0},
                                            {AF_INET6, IPPROTO_TCP},
                                            {AF_INET6, IPPROTO_UDP},
                                            {AF_NETLINK, NETLINK_ROUTE}};
constexpr int kOfItself[] = {PR_SET_NAME, PR_GET_NAME, PR_SET_PDEATHSIG, PR_GET_DUMPABLE};
constexpr uint32_t kUnknown = SCMP_ACT_ERRNO(ENOSYS);
/// Those who call them go another way where a kernel does not know them.
constexpr int kTried[] = {SCMP_SYS(clone3), SCMP_SYS(openat2)};
/// For tests: another call that is refused ends the process, so that nobody goes on without what it would have done.
constexpr const char* kEndVariable = "INDUCTORFS_END_ON_REFUSED_CALL";
constexpr size_t kMostBytes = size_t{32} << 10;
/// O_TMPFILE has O_DIRECTORY in it.
constexpr scmp_datum_t kToWrite = O_ACCMODE | O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY);
constexpr int kOfDescriptors[] = {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL};
/// In addition to those; nothing that has a signal sent to another process.
constexpr int kOfFiles[] = {F_SETFL,      F_GETLK,     F_SETLK,     F_SETLKW,     F_OFD_GETLK, F_OFD_SETLK,
                            F_OFD_SETLKW, F_ADD_SEALS, F_GET_SEALS, F_SETPIPE_SZ, F_GETPIPE_SZ};

/// Those of sockets and of files; of a terminal, whether it is one.
constexpr uint32_t kRequests[] = {FIONREAD, FIONBIO, FIOCLEX, FICLONE, TCGETS, SIOCGIFINDEX, SIOCGIFNAME};

using Context = std::unique_ptr<void, void (*)(void*)>;

/// Allows `call` where the bits `mask` of its argument `argument` are `wanted`.
bool allow(const Context& context, const char* call, unsigned argument, scmp_datum_t mask, scmp_datum_t wanted) {
  const int number = ::seccomp_syscall_resolve_name(call);
  const scmp_arg_cmp is{argument, SCMP_CMP_MASKED_EQ, mask, wanted};
  return number < 0 || ::seccomp_rule_add_array(context.get(), SCMP_ACT_ALLOW, number, 1, &is) == 0;
}

bool allow_all(const Context& context, std::span<const char* const> calls) {
  return std::ranges::all_of(calls, [&context](const char* call) {
    const int number = ::seccomp_syscall_resolve_name(call);
    return number < 0 || ::seccomp_rule_add_array(context.get(), SCMP_ACT_ALLOW, number, 0, nullptr) == 0;
  });
}

/// Allows `call` where its argument `argument` is `wanted`, by the 32 bits that the kernel looks at.
bool allow_value(const Context& context, const char* call, unsigned argument, uint32_t wanted) {
  return allow(context, call, argument, UINT32_MAX, wanted);
}

/// Memory is not run that is not a program's from the start.
bool allow_memory(const Context& context) {
  return allow(context, "mmap", 2, PROT_EXEC, 0) && allow(context, "mprotect", 2, PROT_EXEC, 0);
}

bool allow_serving(const Context& context) {
  constexpr scmp_datum_t kSpaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
                                   CLONE_NEWPID | CLONE_NEWNET | CLONE_PARENT | CLONE_PTRACE | CLONE_UNTRACED;
  const auto own = static_cast<uint32_t>(::getpid());
  const auto is_allowed_socket = [&context](const std::pair<int, int>& socket) {
    const scmp_arg_cmp is[] = {{0, SCMP_CMP_MASKED_EQ, UINT32_MAX, static_cast<scmp_datum_t>(socket.first)},
                               {2, SCMP_CMP_MASKED_EQ, UINT32_MAX, static_cast<scmp_datum_t>(socket.second)}};
    return ::seccomp_rule_add_array(context.get(), SCMP_ACT_ALLOW, SCMP_SYS(socket), 2, is) == 0;
  };
  const auto is_allowed_word = [&context](int word) {
    return allow_value(context, "prctl", 0, static_cast<uint32_t>(word));
  };
  const auto is_allowed_for = [&context](int what) {
    return allow_value(context, "fcntl", 1, static_cast<uint32_t>(what));
  };
  const auto is_allowed_with_mode = [&context](const auto& call) {
    return allow(context, call.first, call.second, kSetId, 0);
  };
  const auto is_allowed_request = [&context](uint32_t request) { return allow_value(context, "ioctl", 1, request); };
  return allow_all(context, kOfReading) && allow_all(context, kOfServing) && allow_memory(context) &&
         std::ranges::all_of(kSockets, is_allowed_socket) && std::ranges::all_of(kOfItself, is_allowed_word) &&
         std::ranges::all_of(kRequests, is_allowed_request) && std::ranges::all_of(kOfDescriptors, is_allowed_for) &&
         std::ranges::all_of(kOfFiles, is_allowed_for) && std::ranges::all_of(kOfModes, is_allowed_with_mode) &&
         // Threads, and a messenger, which is itself; without clone3(2), whose flags no filter sees, the C library
         // does.
         allow(context, "clone", 0, kSpaces, 0) && allow_value(context, "prlimit64", 0, 0) &&
         // Whether a process is there it may ask; only itself it may stop.
         allow_value(context, "kill", 1, 0) && allow_value(context, "kill", 0, own) &&
         allow_value(context, "tgkill", 0, own);
}

bool allow_reading(const Context& context) {
  const auto is_allowed_for = [&context](int what) {
    return allow(context, "fcntl", 1, ~scmp_datum_t{0}, static_cast<scmp_datum_t>(what));
  };
  return allow_all(context, kOfReading) && std::ranges::all_of(kOfDescriptors, is_allowed_for) &&
         // Of one process: with another one's memory it could keep that from waking up.
         allow(context, "futex", 1, FUTEX_PRIVATE_FLAG, FUTEX_PRIVATE_FLAG) &&
         allow(context, "open", 1, kToWrite, O_RDONLY) && allow(context, "openat", 2, kToWrite, O_RDONLY) &&
         allow_memory(context);
}

bool refuse_to_those_who_start(const Context& context) {
  // A program of another instruction set that a user's environment has is to go on; it has the same calls by others.
  return ::seccomp_attr_set(context.get(), SCMP_FLTATR_ACT_BADARCH, kUnknown) == 0 &&
         std::ranges::all_of(kOfNobody, [&context](const char* call) {
           const int number = ::seccomp_syscall_resolve_name(call);
           return number < 0 || ::seccomp_rule_add_array(context.get(), kUnknown, number, 0, nullptr) == 0;
         });
}

}  // namespace

Result<CallFilter> CallFilter::for_starting() { return made_by(&refuse_to_those_who_start, SCMP_ACT_ALLOW); }

Result<CallFilter> CallFilter::for_reading() { return made_by(&allow_reading, kUnknown); }

Result<CallFilter> CallFilter::for_serving() {
  const char* const ends = std::getenv(kEndVariable);  // NOLINT(concurrency-mt-unsafe): nobody sets it
  return made_by(&allow_serving, ends == nullptr || *ends == '\0' ? kUnknown : SCMP_ACT_KILL_PROCESS);
}

Result<CallFilter> CallFilter::made_by(bool (*add)(const Context& context), uint32_t others) {
  // A kernel with filters looks at the address of the filter, which is none.
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, nullptr, 0, 0) == 0 || errno != EFAULT) {
    return fail(ErrorCode::kNotSupported, "the kernel has no filters of system calls, or the container allows none");
  }
  const Context context(::seccomp_init(others), &::seccomp_release);
  // A tree: the kernel asks the filter of each call that there is when a child puts itself under it.
  if (context == nullptr || ::seccomp_attr_set(context.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2) != 0 || !add(context) ||
      (others == SCMP_ACT_KILL_PROCESS && !std::ranges::all_of(kTried, [&context](int call) {
         return ::seccomp_rule_add_array(context.get(), kUnknown, call, 0, nullptr) == 0;
       }))) {
    return fail(ErrorCode::kNotSupported, "libseccomp makes no filter of system calls for this machine");
  }
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno("pipe");
  const Fd out(ends[0]);
  Fd in(ends[1]);
  // Less than a pipe takes at once.
  if (::seccomp_export_bpf(context.get(), in.get()) != 0) return fail(ErrorCode::kInternal, "export of a filter");
  in.reset();
  std::string program(kMostBytes, '\0');
  const ssize_t size = ::read(out.get(), program.data(), program.size());
  if (size < 0) return fail_errno("read from a pipe");
  program.resize(static_cast<size_t>(size));
  return CallFilter(std::move(program));
}

Result<void> CallFilter::apply() const {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno("prctl");
  // The kernel copies it. Not by seccomp(2), which the filter of a service that starts us may not have.
  const sock_fprog program{static_cast<unsigned short>(program_.size() / sizeof(sock_filter)),
                           reinterpret_cast<sock_filter*>(const_cast<char*>(program_.data()))};
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0) return fail_errno("prctl");
  return {};
}

}  // namespace inductorfs
