# SPDX-License-Identifier: Apache-2.0
"""What a disk may hold after a power cut, of a recording's steps: what was synced, and of the rest what chance leaves.

Two kinds of file system, each as weak as Linux has them:
  ordered: names, marks and sizes reach the disk in their order (a journal: ext4, XFS), bytes of files in none.
  loose:   nothing has an order. An fsync of a file takes its names with it (btrfs and f2fs do; POSIX does not say so).
In both, of a write each block of 4 KiB is there or not, and where it is not, the file may have its new length all the same
(zeros)."""
import os
import random
from pathlib import Path

BLOCK = 4096
KINDS = ("ordered", "loose")


def above(path):
    return path.rsplit("/", 1)[0] if "/" in path else ""


def synced_by(sync, step, kind):
    """Whether an earlier step is on the disk when this sync has returned."""
    if sync.what == "all":
        return True
    if kind == "ordered" and step.kind != "data":
        return True
    if sync.what == "file":
        if step.inode == sync.inode:
            return True
        return step.what in ("mkdir", "rename") and any(sync.paths[0].startswith(path + "/") for path in step.paths)
    return step.kind == "name" and any(above(path) == sync.paths[0] for path in step.paths)


def durable(steps, kind):
    """For each step whether some later sync covers it."""
    kept = [False] * len(steps)
    for at, sync in enumerate(steps):
        if sync.kind == "sync":
            for earlier in range(at):
                kept[earlier] = kept[earlier] or synced_by(sync, steps[earlier], kind)
    return kept


class Image:
    """A disk on which steps are carried out; those whose ground is missing do nothing. Needs external synchronisation."""

    def __init__(self, chance):
        self._chance = chance
        self.names, self.folders = {}, {"": 0o755}
        self.bytes, self.xattrs, self.links = {}, {}, {}

    def name(self, step):
        getattr(self, f"_{step.what}")(step)

    def _create(self, step):
        if above(step.paths[0]) in self.folders:
            self.names[step.paths[0]] = step.inode
            self.bytes.setdefault(step.inode, bytearray())

    _link = _create

    def _symlink(self, step):
        self.links[step.inode] = step.value
        self._create(step)

    def _unlink(self, step):
        self.names.pop(step.paths[0], None)

    def _mkdir(self, step):
        if above(step.paths[0]) in self.folders:
            self.folders[step.paths[0]] = step.value

    def _rmdir(self, step):
        path = step.paths[0]
        if not any(above(other) == path for other in [*self.names, *self.folders] if other):
            self.folders.pop(path, None)

    def _exchange(self, step):
        one, two = step.paths
        if one in self.names and two in self.names:
            self.names[one], self.names[two] = self.names[two], self.names[one]

    def _rename(self, step):
        before, after = step.paths
        if above(after) not in self.folders:
            return
        if before in self.names:
            self.names[after] = self.names.pop(before)
        elif before in self.folders:
            for table in (self.names, self.folders):
                for path in [path for path in table if path == before or path.startswith(before + "/")]:
                    table[after + path[len(before):]] = table.pop(path)

    def xattr(self, step):
        name, value = step.value
        marks = self.xattrs.setdefault(step.inode, {})
        marks.pop(name, None)
        if value is not None:
            marks[name] = value

    def truncate(self, step):
        data = self.bytes.setdefault(step.inode, bytearray())
        del data[step.value:]
        data.extend(bytes(step.value - len(data)))

    def hole(self, step):
        offset, size = step.value
        data = self.bytes.setdefault(step.inode, bytearray())
        end = max(offset, min(offset + size, len(data)))
        data[offset:end] = bytes(end - offset)

    def write(self, step, keeps):
        """keeps() says for each block whether it got there."""
        offset, written = step.value
        data = self.bytes.setdefault(step.inode, bytearray())
        at = 0
        while at < len(written):
            end = min(len(written), at + BLOCK - (offset + at) % BLOCK)
            kept = keeps()
            if kept or self._chance.random() < 0.5:
                data.extend(bytes(max(0, offset + end - len(data))))
            if kept:
                data[offset + at:offset + end] = written[at:end]
            at = end

    def put(self, place: Path):
        """Makes it below `place`."""
        for folder, mode in sorted(self.folders.items()):
            (place / folder).mkdir(parents=True, exist_ok=True)
            (place / folder).chmod(mode | 0o700)
        made = {}
        for path, inode in sorted(self.names.items()):
            if inode in made:
                os.link(made[inode], place / path)
                continue
            made[inode] = place / path
            if inode in self.links:
                os.symlink(self.links[inode], place / path)
                continue
            (place / path).write_bytes(self.bytes.get(inode, b""))
            for name, value in self.xattrs.get(inode, {}).items():
                os.setxattr(place / path, name, value)


def after_power_cut(recording, kind, seed):
    """The same for the same seed."""
    steps, chance = recording.steps, random.Random(f"{kind} {seed}")
    kept = durable(steps, kind)
    image = Image(chance)
    share = chance.choice((0.0, 0.1, 0.5, 0.9, 1.0))  # of what was not synced
    marks = [at for at, step in enumerate(steps) if step.kind in ("name", "inode")]
    last = max((at for at in marks if kept[at]), default=-1)
    journal = chance.choice([last, *[at for at in marks if at > last]])
    for at, step in enumerate(steps):
        if step.kind in ("name", "inode"):
            there = kept[at] or (at <= journal if kind == "ordered" else chance.random() < share)
            if there:
                image.name(step) if step.kind == "name" else image.xattr(step)
        elif step.what == "write":
            image.write(step, lambda at=at: kept[at] or chance.random() < share)
        elif step.what in ("truncate", "hole") and (kept[at] or chance.random() < share):
            image.truncate(step) if step.what == "truncate" else image.hole(step)
    return image
