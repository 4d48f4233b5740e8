# SPDX-License-Identifier: Apache-2.0
"""Commands before `inductorfs` that take from its worker what keeps it to its store. Root."""
import sys

# Calls of each machine: quotactl_fd (443) lies between them.
MOUNT_SETATTR, LANDLOCK_FIRST, LANDLOCK_LAST = 442, 444, 446
REFUSE = """
import ctypes, os, struct, sys
first, last, *command = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
lines = [(0x20, 0, 0, 0), (0x35, 0, 2, int(first)), (0x25, 1, 0, int(last)), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
filter = struct.pack("HxxxxxxP", len(lines), ctypes.addressof(program))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, filter, 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(command[0], command)
"""


def refused(first, last):
    """A kernel, or a container, without these system calls."""
    return (sys.executable, "-c", REFUSE, str(first), str(last))


NO_LANDLOCK = refused(LANDLOCK_FIRST, LANDLOCK_LAST)
NO_TREE = ("/usr/bin/setpriv", "--bounding-set=-sys_chroot", "--inh-caps=-sys_chroot")  # the right to enter one
# Nor that links of the store lead nowhere, which its tree has of Linux 5.14.
NO_LANDLOCK_WITH_LINKS = refused(MOUNT_SETATTR, LANDLOCK_LAST)
