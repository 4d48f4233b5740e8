// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/call_filter.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

#include "inductorfs/base/fd.h"

namespace inductorfs {
namespace {

/// By name: a machine that has no such call is no error (SYS_open of arm64).
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
constexpr size_t kMostBytes = size_t{32} << 10;
/// O_TMPFILE has O_DIRECTORY in it.
constexpr scmp_datum_t kToWrite = O_ACCMODE | O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY);
constexpr int kOfDescriptors[] = {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL};

using Context = std::unique_ptr<void, decltype(&::seccomp_release)>;

/// Allows `call` where the bits `mask` of its argument `argument` are `wanted`.
bool allow(const Context& context, const char* call, unsigned argument, scmp_datum_t mask, scmp_datum_t wanted) {
  const int number = ::seccomp_syscall_resolve_name(call);
  if (number == __NR_SCMP_ERROR) return false;
  const scmp_arg_cmp is{argument, SCMP_CMP_MASKED_EQ, mask, wanted};
  return number < 0 || ::seccomp_rule_add_array(context.get(), SCMP_ACT_ALLOW, number, 1, &is) == 0;
}

bool allow_reading(const Context& context) {
  const auto is_allowed = [&context](const char* call) {
    const int number = ::seccomp_syscall_resolve_name(call);
    return number != __NR_SCMP_ERROR &&
           (number < 0 || ::seccomp_rule_add_array(context.get(), SCMP_ACT_ALLOW, number, 0, nullptr) == 0);
  };
  const auto is_allowed_for = [&context](int what) {
    return allow(context, "fcntl", 1, ~scmp_datum_t{0}, static_cast<scmp_datum_t>(what));
  };
  return std::ranges::all_of(kOfReading, is_allowed) && std::ranges::all_of(kOfDescriptors, is_allowed_for) &&
         // Of one process: with another one's memory it could keep that from waking up.
         allow(context, "futex", 1, FUTEX_PRIVATE_FLAG, FUTEX_PRIVATE_FLAG) &&
         allow(context, "open", 1, kToWrite, O_RDONLY) && allow(context, "openat", 2, kToWrite, O_RDONLY) &&
         allow(context, "mmap", 2, PROT_EXEC, 0) && allow(context, "mprotect", 2, PROT_EXEC, 0);
}

}  // namespace

Result<CallFilter> CallFilter::for_reading() {
  // A kernel with filters looks at the address of the filter, which is none.
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, nullptr, 0, 0) == 0 || errno != EFAULT) {
    return fail(ErrorCode::kNotSupported, "the kernel has no filters of system calls, or the container allows none");
  }
  const Context context(::seccomp_init(SCMP_ACT_ERRNO(ENOSYS)), &::seccomp_release);
  // A tree: the kernel asks the filter of each call that there is when a child puts itself under it.
  if (context == nullptr || ::seccomp_attr_set(context.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2) != 0 ||
      !allow_reading(context)) {
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
