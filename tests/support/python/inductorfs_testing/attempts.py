# SPDX-License-Identifier: Apache-2.0
"""What whoever has taken a process over tries first, and what none of ours may do. A scene has `others`, {name: pid}, processes of the
mount's, and `peer`, a process that anybody has started (subprocess.Popen)."""
import os
import platform
import socket
import struct
from pathlib import Path

from .taken_over import HERE, Attempt, one, quoted

NAME = f"inductorfs-attack-{os.getpid()}"
X86 = platform.machine() == "x86_64"


def loader():
    return "/lib64/ld-linux-x86-64.so.2" if X86 else "/lib/ld-linux-aarch64.so.1"


def users(_):
    for call in ("setuid 0", "setgid 0", "setreuid 0 0", "setregid 0 0", "setresuid 0 0 0", "setresgid 0 0 0", "setfsuid 0", "setfsgid 0", "setgroups 1 words:0",
                 "capset words:0x20080522 words:-1,-1,-1", "prctl 4 1 0 0 0", "prctl 47 2 0 0 0"):  # PR_SET_DUMPABLE; PR_CAP_AMBIENT, RAISE
        yield one(call)
    yield one("prctl 0x59616d61 -1 0 0 0", also=(22,))  # PR_SET_PTRACER: EINVAL without Yama


def namespaces(scene):
    for name, flag in {"mnt": 0x20000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000, "cgroup": 0x2000000,
                       "time": 0x80, "fs": 0x200, "files": 0x400}.items():
        yield Attempt(f"unshare {name}", [f"unshare {flag:#x}"])
        if flag > 0x400:
            yield Attempt(f"clone {name}", [f"clone {flag | 17:#x} 0 0 0 0"])
            yield Attempt(f"clone3 {name}", [f"clone3 words:{flag:#x},0,0,0,17,0,0,0 64"])
    yield Attempt("clone user and mnt", [f"clone {0x10020000 | 17:#x} 0 0 0 0"])
    for name, pid in scene.others.items():
        yield Attempt(f"setns {name}", [f"pidfd_open {pid} 0", "setns %0 0x20000"])
    yield Attempt("setns of its own", [f'openat {HERE} "/proc/self/ns/mnt" 0', "setns %0 0x20000"])


def processes(scene):
    for name, pid in {**scene.others, "peer": scene.peer.pid}.items():
        address = Path(f"/proc/{pid}/maps").read_text().split("-", 1)[0]
        far, here = f"words:0x{address},16", "mmap 0 4096 3 34 -1 0"
        for call in (f"kill {pid} 15", f"tkill {pid} 15", f"tgkill {pid} {pid} 15", f"rt_sigqueueinfo {pid} 15 words:15,0xffffffff,0,0,0,0,0,0,0,0,0,0,0,0,0,0",
                     f"ptrace 16 {pid} 0 0", f"ptrace 0x4206 {pid} 0 0", f"prlimit64 {pid} 7 0 @16", f"setpriority 0 {pid} 19", f"sched_setaffinity {pid} 8 words:-1",
                     f"sched_setscheduler {pid} 0 words:0", f"ioprio_set 1 {pid} 0x6000", f"kcmp {pid} {pid} 2 0 0", f"move_pages {pid} 1 words:0x{address} 0 @8 0",
                     f"migrate_pages {pid} 8 words:1 words:1", f"pidfd_open {pid} 0"):
            yield Attempt(f"{call}, {name}", [call])
        for call in ("process_vm_readv", "process_vm_writev"):
            yield Attempt(f"{call} {name}", [here, f"{call} {pid} words:%0,16 1 {far} 1 0"])
        for call in ("pidfd_send_signal %0 15 0 0", "pidfd_getfd %0 0 0", f"process_madvise %0 {far} 1 20 0"):
            yield Attempt(f"{call} {name}", [f"pidfd_open {pid} 0", call])
        for call in (f"fcntl %0 8 {pid}", f"fcntl %0 15 words:{pid << 32 | 1}", f"ioctl %0 0x8901 words:{pid}"):  # F_SETOWN, F_SETOWN_EX, FIOSETOWN
            yield Attempt(f"{call} {name}", ["socket 1 1 0", call], after=["close %0"])


def kernel(_):
    """Calls with a history of holes."""
    yield one('keyctl 0 -3 1')
    yield one(f'add_key "user" {quoted(NAME)} "payload" 7 -2')
    yield one(f'request_key "user" {quoted(NAME)} 0 0')
    yield one("bpf 0 words:0x400000002,0x100000004 16")
    yield one("perf_event_open words:0x4000000001,9,0,0,0,0x61,0,0 0 -1 -1 0")
    yield one("io_uring_setup 1 @120")
    yield one("userfaultfd 1")
    yield one("fanotify_init 0x200 0")
    yield one("syslog 3 @64 64")
    yield one("ioctl 0 0x5412 \"x\"", also=(25,))  # TIOCSTI; ENOTTY
    yield one("ioctl 0 0x541c \"\\x0b\"", also=(25,))  # TIOCLINUX
    if X86:
        yield one("154 1 words:0,0x4100000fff 16")  # modify_ldt
        yield one("172 3")  # iopl
        yield one("173 0x80 1 1")  # ioperm


def whole_host(_):
    """None would do harm: what is there is set again, or does not exist."""
    name = os.uname().nodename
    for call in ("reboot 0xfee1dead 672274793 0 0", "kexec_load 0 0 0 0", 'init_module @16 16 ""', 'finit_module -1 "" 0', f"delete_module {quoted(NAME)} 0x800",
                 f"swapon {quoted('/' + NAME)} 0", f"swapoff {quoted('/' + NAME)}", f"sethostname {quoted(name)} {len(name)}", "setdomainname \"(none)\" 6",
                 "settimeofday 0 0", 'quotactl 0x80000200 "/dev/vda" 0 0', "acct 0", "vhangup"):
        yield one(call)


def address_of(path):
    return struct.pack("H", socket.AF_UNIX) + os.fsencode(path) + b"\0"
