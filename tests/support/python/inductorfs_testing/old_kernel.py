# SPDX-License-Identifier: Apache-2.0
"""Runs a command as on a kernel before Linux 6.16, which does not know SO_PASSRIGHTS: python old_kernel.py COMMAND...

A filter of system calls, which all that the command starts inherits, answers ENOPROTOOPT."""
import ctypes
import os
import platform
import struct
import sys

SETSOCKOPT, ARCHITECTURE = {"x86_64": (54, 0xC000003E), "aarch64": (208, 0xC00000B7)}[platform.machine()]
SO_PASSRIGHTS = 83
ENOPROTOOPT = 92
LOAD, EQUALS, RETURN = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
NUMBER_AT, ARCHITECTURE_AT, OPTION_AT = 0, 4, 32  # of struct seccomp_data; the third argument
PROGRAM = [
    (LOAD, 0, 0, ARCHITECTURE_AT), (EQUALS, 0, 5, ARCHITECTURE),
    (LOAD, 0, 0, NUMBER_AT), (EQUALS, 0, 3, SETSOCKOPT),
    (LOAD, 0, 0, OPTION_AT), (EQUALS, 0, 1, SO_PASSRIGHTS),
    (RETURN, 0, 0, ERRNO | ENOPROTOOPT), (RETURN, 0, 0, ALLOW)]


class Filter(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ushort), ("words", ctypes.c_char_p)]


def forget_passrights():
    words = b"".join(struct.pack("HBBI", *one) for one in PROGRAM)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(22, 2, ctypes.byref(Filter(len(PROGRAM), words)), 0, 0) != 0:  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    forget_passrights()
    os.execvp(sys.argv[1], sys.argv[1:])
