# SPDX-License-Identifier: Apache-2.0
"""Runs a command as on an older kernel: python old_kernel.py LACKS COMMAND...

  passrights   before Linux 6.16, which does not know SO_PASSRIGHTS
  beneath      before Linux 6.5, whose move_mount(2) does not know MOVE_MOUNT_BENEATH

A filter of system calls, which all that the command starts inherits, answers as that kernel."""
import ctypes
import errno
import os
import platform
import struct
import sys

SETSOCKOPT, ARCHITECTURE = {"x86_64": (54, 0xC000003E), "aarch64": (208, 0xC00000B7)}[platform.machine()]
MOVE_MOUNT = 429
SO_PASSRIGHTS, MOVE_MOUNT_BENEATH = 83, 0x200
LOAD, EQUALS, HAS_BIT, RETURN = 0x20, 0x15, 0x45, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_JMP|JSET|K, BPF_RET|K
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16  # of struct seccomp_data
# {what it lacks: (system call, the number of its argument, how that is compared, with what, the answer)}
LACKS = {"passrights": (SETSOCKOPT, 2, EQUALS, SO_PASSRIGHTS, errno.ENOPROTOOPT),
         "beneath": (MOVE_MOUNT, 4, HAS_BIT, MOVE_MOUNT_BENEATH, errno.EINVAL)}


class Filter(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ushort), ("words", ctypes.c_char_p)]


def forget(call, argument, compare, value, answer):
    program = [
        (LOAD, 0, 0, ARCHITECTURE_AT), (EQUALS, 0, 5, ARCHITECTURE),
        (LOAD, 0, 0, NUMBER_AT), (EQUALS, 0, 3, call),
        (LOAD, 0, 0, ARGUMENTS_AT + 8 * argument), (compare, 0, 1, value),
        (RETURN, 0, 0, ERRNO | answer), (RETURN, 0, 0, ALLOW)]
    words = b"".join(struct.pack("HBBI", *one) for one in program)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(22, 2, ctypes.byref(Filter(len(program), words)), 0, 0) != 0:  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    forget(*LACKS[sys.argv[1]])
    os.execvp(sys.argv[2], sys.argv[2:])
