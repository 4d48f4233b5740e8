# SPDX-License-Identifier: Apache-2.0
"""What whoever has taken a process over can do: system calls inside it (tests/support/taken_over.cc). Root."""
import ctypes
import errno
import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from . import places
from .processes import PATIENCE, Failed

PROGRAM = Path(os.environ.get("INDUCTORFS_TAKEN_OVER", places.REPOSITORY / "build" / "tests" / "support" / "taken_over"))
LIBC = ctypes.CDLL(None, use_errno=True)
HERE, READ, WRITE, CREATE = -100, os.O_RDONLY, os.O_RDWR, os.O_WRONLY | os.O_CREAT  # HERE: AT_FDCWD
BECAME_ANOTHER = 3
# With any other error the call was allowed, and has failed for its arguments.
REFUSALS = {errno.EPERM, errno.EACCES, errno.ENOENT, errno.ENOSYS, errno.EROFS, errno.ENOTDIR, errno.EAFNOSUPPORT, errno.ESOCKTNOSUPPORT,
            errno.EPROTONOSUPPORT}


@dataclass
class Attempt:
    """`calls`: lines for the program, where %K is what the K-th of them answers; the last is the one to be refused. `after`: what is undone.
    `also`: further errors that are a refusal here."""
    name: str
    calls: list
    after: list = field(default_factory=list)
    also: tuple = ()


def quoted(text):
    return '"' + "".join(chr(byte) if 32 < byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}" for byte in os.fsencode(text)) + '"'


def inside(pid, calls, seconds=40):
    """(what each call answered, whether the process became another program at the last of them, and is dead)"""
    done = subprocess.run([PROGRAM, str(pid)], input="".join(f"{call}\n" for call in calls), capture_output=True, text=True,
                          timeout=seconds * PATIENCE)
    results = [int(line.split()[0]) for line in done.stdout.splitlines()]
    if done.returncode not in (0, BECAME_ANOTHER) or (done.returncode == 0 and len(results) != len(calls)):
        failed = calls[len(results)] if len(results) < len(calls) else ""
        raise Failed(f"{done.stderr}in process {pid}, after {len(results)} of {len(calls)} calls, at: {failed}")
    return results, done.returncode == BECAME_ANOTHER


def not_refused(pid, attempts):
    """The attempts that were not refused, and what they were answered. Those after one that has ended the process are not made."""
    calls, judged = [], []
    for attempt in attempts:
        first = len(calls)
        lines = [re.sub(r"%(\d+)", lambda match: f"${first + int(match[1])}", line) for line in [*attempt.calls, *attempt.after]]  # noqa: B023
        calls += lines
        judged.append(first + len(attempt.calls) - 1)
    results, _ = inside(pid, calls)
    return [f"{attempt.name}: {told(results[index])}" for attempt, index in zip(attempts, judged, strict=True)
            if index < len(results) and not is_refusal(results[index], attempt.also)]


def is_refusal(result, also=()):
    return result < 0 and -result in REFUSALS.union(also)


def told(result):
    return errno.errorcode.get(-result, str(result)) if result < 0 else str(result)


def opening(path, flags=READ, at=HERE, what="open"):
    flags |= os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    return Attempt(f"{what} {path} at {at} {flags:#o}", [f"openat {at} {quoted(path)} {flags} 0o666"])


def one(call, also=()):
    return Attempt(call, [call], also=also)


def library():
    (path, *_) = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libc.so" in line]
    return path


def landlock():
    """The kernel's version of it; below 0: it has none."""
    return LIBC.syscall(444, None, ctypes.c_size_t(0), 1)  # landlock_create_ruleset(2)


def field_of(status, name):
    (value,) = [line.split(":", 1)[1].strip() for line in status.splitlines() if line.startswith(f"{name}:")]
    return value
