# SPDX-License-Identifier: Apache-2.0
"""A process that uses a mount as jobs do, checks every answer against what it knows, and times each call. Run as
`python3 -m inductorfs_testing.load`; Load is the side of who starts it."""
import errno
import fcntl
import json
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import time
import traceback
from pathlib import Path

from . import artefacts
from .processes import Failed, wait_until

# A call is remembered from here on; what is shorter is no stall of any interest.
SHORT = 0.002
ERRORS_KEPT = 20
PIECE = 4096


class Checks:
    """The operations. `base` is a directory of this process's own in the mount. Needs external synchronisation."""

    def __init__(self, base: Path, seed, count):
        self.base, self.random, self._count = base, random.Random(seed), count
        self.operations, self.errors, self.slow, self.longest = 0, [], [], 0.0
        self.files = {}  # name: content, as this process has made them
        self.artefacts = []  # (path, content)
        self._serial = 0
        base.mkdir(parents=True, exist_ok=True)
        self._hold()

    # ---- counting

    def call(self, function, *arguments, **keywords):
        begin = time.monotonic()
        try:
            return function(*arguments, **keywords)
        finally:
            took = time.monotonic() - begin
            self.operations += 1
            self.longest = max(self.longest, took)
            if took > SHORT:
                self.slow.append((begin, took))
            self._count(self.operations)

    def check(self, good, *what):
        if not good:
            raise AssertionError(" ".join(str(part) for part in what))

    # ---- what is held open while workers come and go

    def _hold(self):
        self.content = os.urandom(64 * PIECE)
        for name in ("mapped", "deleted", "locked"):
            (self.base / name).write_bytes(self.content)
        self.mapped = os.open(self.base / "mapped", os.O_RDONLY)
        self.map = mmap.mmap(self.mapped, len(self.content), prot=mmap.PROT_READ)
        self.deleted = os.open(self.base / "deleted", os.O_RDWR)
        os.unlink(self.base / "deleted")
        self.deleted_content = bytearray(self.content)
        self.locked = os.open(self.base / "locked", os.O_RDWR)
        fcntl.flock(self.locked, fcntl.LOCK_EX)
        self.listed = self.base / "listed"
        self.listed.mkdir()
        self.names = {f"name {index}" for index in range(300)}
        for name in self.names:
            (self.listed / name).touch()
        self.listing, self.seen = None, set()

    def step_mapped(self):
        """The pages are taken from the kernel first, so that they are read from the worker of now."""
        self.map.madvise(mmap.MADV_DONTNEED)
        self.call(os.posix_fadvise, self.mapped, 0, 0, os.POSIX_FADV_DONTNEED)
        at = self.random.randrange(64) * PIECE
        self.check(self.call(lambda: self.map[at:at + PIECE]) == self.content[at:at + PIECE], "mapped differs at", at)

    def step_deleted(self):
        at = self.random.randrange(64) * PIECE
        if self.random.random() < 0.3:
            piece = os.urandom(PIECE)
            self.check(self.call(os.pwrite, self.deleted, piece, at) == PIECE, "short write")
            self.deleted_content[at:at + PIECE] = piece
        self.call(os.fsync, self.deleted)
        self.call(os.posix_fadvise, self.deleted, 0, 0, os.POSIX_FADV_DONTNEED)
        self.check(self.call(os.pread, self.deleted, PIECE, at) == self.deleted_content[at:at + PIECE], "deleted differs at", at)
        told = self.call(os.fstat, self.deleted)
        self.check(told.st_size == len(self.content) and told.st_nlink == 0, "deleted is", told)

    def step_locked(self):
        other = self.call(os.open, self.base / "locked", os.O_RDWR)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.check(False, "the lock was lost")
        except OSError as refused:
            self.check(refused.errno in (errno.EAGAIN, errno.EWOULDBLOCK), refused)
        finally:
            self.call(os.close, other)

    def step_listing(self):
        """A listing that goes on over many steps has each name once."""
        if self.listing is None:
            self.listing, self.seen = self.call(os.scandir, self.listed), set()
        for _ in range(40):
            entry = self.call(next, self.listing, None)
            if entry is None:
                self.listing.close()
                self.listing = None
                self.check(self.seen == self.names, "listed", len(self.seen), "of", len(self.names))
                return
            self.check(entry.name not in self.seen, "listed twice:", entry.name)
            self.seen.add(entry.name)

    # ---- names that come and go

    def _fresh(self, stem):
        self._serial += 1
        return f"{stem} {self._serial}"

    def _any(self):
        return self.random.choice(sorted(self.files)) if self.files else None

    def step_write(self):
        """As torch writes: a temporary name, then a rename over the final one."""
        name = self._any() if len(self.files) > 30 else self._fresh("file")
        content = os.urandom(self.random.choice((10, 5000, 70_000)))
        temporary = self.base / f".{name}.tmp"
        fd = self.call(os.open, temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        self.check(self.call(os.write, fd, content) == len(content), "short write")
        self.call(os.close, fd)
        self.call(os.rename, temporary, self.base / name)
        self.files[name] = content

    def step_read(self):
        if name := self._any():
            with open(self.base / name, "rb") as file:
                self.check(self.call(file.read) == self.files[name], name, "differs")
            self.check(self.call(os.stat, self.base / name).st_size == len(self.files[name]), name, "has another size")

    def step_absent(self):
        self.check(not self.call(os.path.lexists, self.base / self._fresh("never")), "a name that was never made")

    def step_append(self):
        if name := self._any():
            fd = self.call(os.open, self.base / name, os.O_WRONLY | os.O_APPEND)
            self.check(self.call(os.write, fd, b"more") == 4, "short write")
            self.call(os.close, fd)
            self.files[name] += b"more"

    def step_unlink(self):
        if len(self.files) > 10 and (name := self._any()):
            self.call(os.unlink, self.base / name)
            del self.files[name]
            self.check(not self.call(os.path.lexists, self.base / name), name, "is still there")

    def step_rename(self):
        if name := self._any():
            other = self._fresh("moved")
            self.call(os.rename, self.base / name, self.base / other)
            self.files[other] = self.files.pop(name)

    def step_link(self):
        if (name := self._any()) and len(self.files) < 60:
            self.call(os.link, self.base / name, self.base / (other := self._fresh("linked")))
            with open(self.base / other, "rb") as file:
                self.check(self.call(file.read) == self.files[name], other, "differs")
            self.call(os.unlink, self.base / other)

    def step_directory(self):
        path = self.base / self._fresh("directory")
        self.call(os.mkdir, path)
        self.call(os.symlink, "target", path / "link")
        self.check(self.call(os.readlink, path / "link") == "target", "another target")
        self.call(os.unlink, path / "link")
        self.check(self.call(os.listdir, path) == [], "left in a directory")
        self.call(os.rmdir, path)

    def step_attributes(self):
        if name := self._any():
            mode = self.random.choice((0o600, 0o644, 0o755))
            self.call(os.chmod, self.base / name, mode)
            self.call(os.utime, self.base / name, (1_000_000, 1_000_000 + self._serial))
            told = self.call(os.stat, self.base / name)
            self.check(told.st_mode & 0o777 == mode and told.st_mtime == 1_000_000 + self._serial, name, "has", told)
            self.call(os.setxattr, self.base / name, "user.mine", str(mode).encode())
            self.check(self.call(os.getxattr, self.base / name, "user.mine") == str(mode).encode(), "another attribute")

    def step_truncate(self):
        if name := self._any():
            size = len(self.files[name]) // 2
            self.call(os.truncate, self.base / name, size)
            self.files[name] = self.files[name][:size]

    def step_names(self):
        listed = {name for name in self.call(os.listdir, self.base) if name not in ("mapped", "locked", "listed")}
        self.check(listed == set(self.files), "names differ:", sorted(listed ^ set(self.files))[:5])

    def step_artefact(self):
        """What is sealed and published while workers come and go."""
        key = self._fresh(f"{self.base.name} artefact")
        path = self.call(artefacts.write_graph, self.base.parent, key, key * 20)
        self.check(self.call(path.read_bytes) == (key * 20).encode(), path, "differs")
        self.artefacts.append((str(path), key * 20))

    def step_artefact_again(self):
        """Its node, and its bytes from the worker of now, not the kernel's pages."""
        if self.artefacts:
            path, content = self.random.choice(self.artefacts)
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                self.check(self.call(file.read) == content.encode(), path, "differs later")
            self.check(self.call(os.stat, path).st_size == len(content), path, "has another size")

    def run(self, stop):
        steps = [getattr(self, name) for name in sorted(dir(self)) if name.startswith("step_")]
        while not stop():
            step = self.random.choice(steps)
            try:
                step()
            except Exception:  # noqa: BLE001: any error at all is what this process looks for
                if len(self.errors) < ERRORS_KEPT:
                    self.errors.append(f"{step.__name__} at {time.monotonic():.3f}: {traceback.format_exc()}")
        return {"operations": self.operations, "errors": self.errors, "slow": self.slow, "longest": self.longest,
                "artefacts": self.artefacts}


class Load:
    """Starts such processes, tells how far they are, and gathers what they say. Needs external synchronisation."""

    def __init__(self, cache: Path, directory: Path, processes=2, seed=0):
        directory.mkdir(parents=True, exist_ok=True)
        self._children = []
        for index in range(processes):
            counter, result = directory / f"load {index}.count", directory / f"load {index}.json"
            counter.write_bytes(bytes(8))
            command = [sys.executable, "-B", "-m", "inductorfs_testing.load", cache / f"load-{index}", counter, result, seed + index]
            env = dict(os.environ, PYTHONPATH=str(Path(__file__).resolve().parents[1]))
            child = subprocess.Popen([str(word) for word in command], env=env, stdin=subprocess.DEVNULL, cwd="/")
            self._children.append((child, counter, result))

    def counts(self):
        return [struct.unpack("Q", counter.read_bytes())[0] for _, counter, _ in self._children]

    def advance(self, operations=1, seconds=60):
        """Waits until each process has done so many more calls."""
        before = self.counts()
        wait_until(lambda: all(count >= then + operations for count, then in zip(self.counts(), before, strict=True)), seconds,
                   "operations of the load", pause=0.002)

    def finish(self, seconds=60):
        """What each of them saw."""
        for child, _, _ in self._children:
            child.send_signal(signal.SIGTERM)
        results = []
        for child, _, result in self._children:
            try:
                child.wait(seconds)
            except subprocess.TimeoutExpired:
                child.kill()
                raise Failed(f"the load hangs: {child.args}") from None
            results.append(json.loads(result.read_text()))
        return results

    def kill(self):
        for child, _, _ in self._children:
            if child.poll() is None:
                child.kill()
                child.wait(20)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


def main(base, counter, result, seed):
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    with open(counter, "r+b") as file:
        shared = mmap.mmap(file.fileno(), 8)

        def count(operations):
            shared[:8] = struct.pack("Q", operations)

        told = Checks(Path(base), int(seed), count).run(lambda: bool(stopped))
    Path(result).write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
