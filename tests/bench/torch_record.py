# SPDX-License-Identifier: Apache-2.0
"""What a cold and a warm start of a real torch job ask of the files below their cache directory, recorded by strace on a plain directory, as a text that
replay.cc plays. One call a line, fields by tabs, in the order in which the calls ended, all processes of the job together:

  open SLOT FLAGS MODE PATH   close|fstat|fsync|getdents|ioctl SLOT   read SLOT SIZE   pread|map SLOT SIZE OFFSET   seek SLOT OFFSET
  write SLOT SIZE OFFSET SOURCE   pwrite SLOT SIZE OFFSET SOURCE   flock SLOT HOW   fchmod|ftruncate SLOT NUMBER
  stat|unlink|rmdir|readlink PATH   mkdir|chmod|truncate PATH NUMBER   rename|link PATH PATH   symlink TARGET PATH

The last field of a line is 0, or the errno that the job got. SOURCE is the file whose bytes at OFFSET were written, as it lay there in the end, or
empty for bytes that did not stay. A name that only one process uses has a % at its end, in whose place a player puts its own mark."""
import atexit
import errno
import fcntl
import getpass
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from inductorfs_testing import places
from inductorfs_testing.recording import arguments_of

# {system call: the method of Recorder that takes it}
HANDLERS = {
    "open": "open", "openat": "openat", "creat": "creat", "close": "close", "read": "read", "pread64": "pread", "write": "write", "pwrite64": "pwrite",
    "lseek": "seek", "mmap": "map", "getdents64": "getdents", "ioctl": "ioctl", "stat": "stat", "lstat": "stat", "access": "stat", "fstat": "fstat",
    "newfstatat": "stat_at", "statx": "stat_at", "faccessat": "stat_at", "faccessat2": "stat_at", "readlink": "readlink", "readlinkat": "readlink_at",
    "mkdir": "mkdir", "mkdirat": "mkdir", "rmdir": "rmdir", "unlink": "unlink", "unlinkat": "unlink_at", "rename": "rename", "renameat": "rename",
    "renameat2": "rename", "link": "link", "linkat": "link", "symlink": "symlink", "symlinkat": "symlink", "chmod": "chmod", "fchmodat": "chmod_at",
    "fchmod": "fchmod", "truncate": "truncate", "ftruncate": "ftruncate", "fsync": "fsync", "fdatasync": "fsync", "flock": "flock"}
FORKS = ("clone", "clone3", "fork", "vfork")
STRACE = ("strace", "-f", "--seccomp-bpf", "-y", "-qq", "-s", "0", "-e", f"trace={','.join((*HANDLERS, *FORKS))}", "-e", "signal=none", "-o")
LINE = re.compile(r"(\d+) +(.*)")
DONE = re.compile(r"(\w+)\((.*)\) += (-?\d+|0x[0-9a-f]+)(?:<.*>)?(?: (E[A-Z0-9]+) .*)?(?: .*)?")
TEMPORARY = re.compile(r"\.\d+\.\d+\.tmp$|^tmp\.pid_|\.tmp\.pid_|^tmp[a-z0-9_]{8}|^cc[A-Za-z0-9]{6}\.")
JOBS = places.WORKLOADS / "cpu_jobs.py"


def calls_of(log):
    """(thread, call, arguments, result, errno) of each call, in the order in which they ended."""
    begun = {}
    with open(log, errors="surrogateescape") as lines:
        for line in lines:
            thread, rest = LINE.fullmatch(line.rstrip("\n")).groups()
            if rest.endswith("<unfinished ...>"):
                begun[thread] = rest[:-len("<unfinished ...>")].rstrip()
                continue
            if rest.startswith("<... "):
                rest = begun.pop(thread, "") + rest.split(" resumed>", 1)[1]
            if match := DONE.fullmatch(rest):
                call, arguments, result, error = match.groups()
                yield thread, call, arguments, int(result, 0), getattr(errno, error) if error else 0


def flags_of(text, module):
    """"O_RDONLY|O_CLOEXEC" as a number; what the module does not know is no flag of a file system."""
    return sum(getattr(module, word, 0) for word in set(text.split("|")))


class Recorder:
    """Follows descriptors and names below `top`. Needs external synchronisation."""

    def __init__(self, top):
        self._top = str(top) + "/"
        self._slots, self._next = {}, 0  # {(process, descriptor): [slot, file, where it stands]}
        self._files = {}  # {path: the number of the file}
        self._process = {}
        self.lines, self.unknown = [], 0

    def read(self, log):
        everything = list(calls_of(log))
        for thread, call, arguments, result, _ in everything:
            if call in FORKS and result > 0 and "CLONE_THREAD" in arguments:
                self._process[str(result)] = self._process.get(thread, thread)
        for thread, call, arguments, result, error in everything:
            if call in HANDLERS and self._top[:-1] in arguments:
                getattr(self, "_" + HANDLERS[call])(self._process.get(thread, thread), arguments_of(arguments), result, error)
        return self

    def text(self):
        """With the names that files have in the end."""
        at_the_end = {number: path for path, number in self._files.items()}
        return "".join("\t".join(str(at_the_end.get(-word - 1, "")) if isinstance(word, int) and word < 0 else str(word) for word in line) + "\n"
                       for line in self.lines)

    # ---- names and descriptors

    def _below(self, words):
        """The path below the top of ["path"] or [directory, "path"]; None elsewhere."""
        quoted = words[-1].strip('"')
        base = re.search(r"<(.*)>", words[0])
        path = os.path.normpath(os.path.join(base[1] if base else "/", quoted))
        if not (path + "/").startswith(self._top):
            return None
        return path[len(self._top):] or "."

    @staticmethod
    def _marked(path):
        return "/".join(name + "%" if TEMPORARY.search(name) else name for name in path.split("/"))

    def _add(self, *words):
        self.lines.append(words)

    def _named(self, what, words, error, *more):
        if (path := self._below(words)) is not None:
            self._add(what, self._marked(path), *more, error)

    def _held(self, process, word):
        """[slot, file, where it stands] of a descriptor of a file below the top; None elsewhere."""
        if self._top[:-1] not in word:
            return None
        found = self._slots.get((process, word.split("<")[0]))
        self.unknown += found is None
        return found

    def _open(self, process, words, result, error):
        self._openat(process, ["AT_FDCWD", *words], result, error)

    def _creat(self, process, words, result, error):
        self._openat(process, ["AT_FDCWD", words[0], "O_WRONLY|O_CREAT|O_TRUNC", words[1]], result, error)

    def _openat(self, process, words, result, error):
        if (path := self._below(words[:2])) is None:
            self._slots.pop((process, str(result)), None)
            return
        flags = flags_of(words[2], os)
        self._add("open", self._next, flags, int(words[3], 8) if len(words) > 3 else 0, self._marked(path), error)
        if error == 0:
            file = self._files.setdefault(path, len(self.lines)) if flags & (os.O_WRONLY | os.O_RDWR) else None
            self._slots[process, str(result)] = [self._next, file, 0]
            self._next += 1

    def _close(self, process, words, _result, error):
        if held := self._slots.pop((process, words[0].split("<")[0]), None):
            self._add("close", held[0], error)

    def _simple(self, what, process, word, error, *more):
        if held := self._held(process, word):
            self._add(what, held[0], *more, error)

    # ---- bytes

    def _read(self, process, words, _result, error):
        self._simple("read", process, words[0], error, words[2])

    def _pread(self, process, words, _result, error):
        self._simple("pread", process, words[0], error, words[2], words[3])

    def _map(self, process, words, _result, error):
        self._simple("map", process, words[4], error, words[1], int(words[5], 0))

    def _seek(self, process, words, result, error):
        if (held := self._held(process, words[0])) and error == 0:
            held[2] = result
            self._add("seek", held[0], result, 0)

    def _write(self, process, words, result, error):
        if held := self._held(process, words[0]):
            self._add("write", held[0], words[2], held[2], -(held[1] or 0) - 1, error)
            held[2] += max(result, 0)

    def _pwrite(self, process, words, _result, error):
        if held := self._held(process, words[0]):
            self._add("pwrite", held[0], words[2], words[3], -(held[1] or 0) - 1, error)

    def _ftruncate(self, process, words, _result, error):
        self._simple("ftruncate", process, words[0], error, words[1])

    def _fchmod(self, process, words, _result, error):
        self._simple("fchmod", process, words[0], error, int(words[1], 8))

    def _fsync(self, process, words, _result, error):
        self._simple("fsync", process, words[0], error)

    def _flock(self, process, words, _result, error):
        self._simple("flock", process, words[0], error, flags_of(words[1], fcntl))

    def _ioctl(self, process, words, _result, error):
        self._simple("ioctl", process, words[0], error)

    def _getdents(self, process, words, _result, error):
        self._simple("getdents", process, words[0], error)

    # ---- attributes and names

    def _stat(self, _process, words, _result, error):
        self._named("stat", words[:1], error)

    def _fstat(self, process, words, _result, error):
        self._simple("fstat", process, words[0], error)

    def _stat_at(self, process, words, _result, error):
        if words[1] in ('""', "NULL"):
            self._simple("fstat", process, words[0], error)
        else:
            self._named("stat", words[:2], error)

    def _readlink(self, _process, words, _result, error):
        self._named("readlink", words[:1], error)

    def _readlink_at(self, _process, words, _result, error):
        self._named("readlink", words[:2], error)

    def _mkdir(self, _process, words, _result, error):
        self._named("mkdir", words[:-1], error, int(words[-1], 8))

    def _gone(self, what, words, error):
        if error == 0 and (path := self._below(words)) is not None:
            self._files.pop(path, None)
        self._named(what, words, error)

    def _rmdir(self, _process, words, _result, error):
        self._gone("rmdir", words[:1], error)

    def _unlink(self, _process, words, _result, error):
        self._gone("unlink", words[:1], error)

    def _unlink_at(self, _process, words, _result, error):
        self._gone("rmdir" if "AT_REMOVEDIR" in words[2] else "unlink", words[:2], error)

    def _two(self, what, words, error):
        halves = (words[:1], words[1:2]) if len(words) == 2 else (words[:2], words[2:4])
        before, after = (self._below(half) for half in halves)
        if before is None or after is None:
            return
        self._add(what, self._marked(before), self._marked(after), error)
        if what == "rename" and error == 0:
            for path in [path for path in self._files if path == before or path.startswith(before + "/")]:
                self._files[after + path[len(before):]] = self._files.pop(path)

    def _rename(self, _process, words, _result, error):
        self._two("rename", words, error)

    def _link(self, _process, words, _result, error):
        self._two("link", words, error)

    def _symlink(self, _process, words, _result, error):
        if (path := self._below(words[1:])) is not None:
            self._add("symlink", words[0].strip('"'), self._marked(path), error)

    def _chmod(self, _process, words, _result, error):
        self._named("chmod", words[:1], error, int(words[1], 8))

    def _chmod_at(self, _process, words, _result, error):
        self._named("chmod", words[:2], error, int(words[2], 8))

    def _truncate(self, _process, words, _result, error):
        self._named("truncate", words[:1], error, words[1])


@dataclass
class Recorded:
    """What the job left, and the texts of its two starts."""
    directory: Path
    cold: Path
    warm: Path


def record(command, top, scratch, name, environment=None):
    """Runs the command once; the file with its text."""
    log, text = scratch / f"{name}.strace", scratch / f"{name}.calls"
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(top), "TMPDIR": str(scratch / "tmp"), "HOME": str(scratch), "PYTHONNOUSERSITE": "1",
                   "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})}
    done = subprocess.run([*STRACE, log, *command], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode != 0:
        raise SystemExit(f"bench: the recorded {name} start failed: {done.stderr[-2000:]}")
    recorder = Recorder(top).read(log)
    if not recorder.lines or recorder.unknown > len(recorder.lines) // 20:
        raise SystemExit(f"bench: the recording of the {name} start has {len(recorder.lines)} calls, and {recorder.unknown} of unknown descriptors")
    text.write_text(recorder.text())
    log.unlink()
    return text


_made = {}


def recorded(plan):
    """Made once for all groups of a run."""
    if plan.recorded_jobs not in _made:
        plan.phase("a cold and a warm start of the job under strace, once for all groups")
        scratch = Path(tempfile.mkdtemp(prefix="inductorfs-recorded-"))
        atexit.register(shutil.rmtree, scratch, ignore_errors=True)
        top = scratch / "tmp" / f"torchinductor_{getpass.getuser()}"
        top.mkdir(parents=True)
        command = [places.venv_python(plan.torch), JOBS, "--jobs", plan.recorded_jobs]
        _made[plan.recorded_jobs] = Recorded(top, *(record(command, top, scratch, name, plan.environment) for name in ("cold", "warm")))
    return _made[plan.recorded_jobs]
