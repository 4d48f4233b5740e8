# SPDX-License-Identifier: Apache-2.0
"""What a program did to the files below one directory, recorded by strace: the steps from which a power cut makes what it
may leave on a disk (disk_images.py). Only the program's own system calls count, whatever library makes them."""
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

CALLS = ("openat,openat2,open,creat,close,write,pwrite64,ftruncate,truncate,fallocate,fsync,fdatasync,sync,syncfs,rename,renameat,"
         "renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,rmdir,symlink,symlinkat,setxattr,lsetxattr,fsetxattr,"
         "removexattr,lremovexattr,fremovexattr,chmod,fchmod,fchmodat,dup,fcntl,copy_file_range,pwritev,writev,mknodat")
STRACE = ("strace", "-f", "-y", "-xx", "-qq", "-s", "99999999", "-e", f"trace={CALLS}", "-e", "signal=none")
LINE = re.compile(r"(\d+) +(.*)")
DONE = re.compile(r"(\w+)\((.*)\) += (-?\d+|\?)(<.*>)?( .*)?")


@dataclass
class Step:
    """what: name (create, link, rename, exchange, unlink, mkdir, rmdir, symlink), data (write, truncate, hole), inode (xattr,
    mode), sync."""
    kind: str
    what: str
    inode: int = 0
    paths: tuple = ()
    value: object = None


@dataclass
class Recording:
    steps: list = field(default_factory=list)
    names: dict = field(default_factory=dict)  # path below the directory: inode, as the program left it
    directories: set = field(default_factory=set)
    under_way: list = field(default_factory=list)  # steps of calls that had not ended when the program did: there or not


def text_of(quoted):
    """strace's "\\x41..." as bytes; a value of no bytes may have no address."""
    if quoted.strip() == "NULL":
        return b""
    return bytes.fromhex(quoted.strip().rstrip(".").strip('"').replace("\\x", ""))


def arguments_of(text):
    """Top-level commas part them; strings are all hexadecimal."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        if character in "{[<(":
            depth += 1
        elif character in "}]>)":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    parts.append(text[start:].strip())
    return parts


def calls_of(log: Path):
    """(call, arguments, result) of each call that succeeded, in the order in which they ended; a close where it began: the
    kernel gives its number to the next open before it ends. Last, with the result None, those that a kill cut short."""
    begun = {}
    for line in log.read_text().splitlines():
        number, rest = LINE.fullmatch(line).groups()
        if rest.endswith("<unfinished ...>"):
            begun[number] = rest[:-len("<unfinished ...>")].rstrip()
            if begun[number].startswith("close("):
                yield "close", [begun[number][len("close("):]], 0
            continue
        if rest.startswith("<... "):
            begin = begun.pop(number)
            if begin.startswith("close("):
                continue
            rest = begin + rest.split(" resumed>", 1)[1]
        if (match := DONE.fullmatch(rest)) and match[3] == "?":
            begun[number] = f"{match[1]}({match[2]}"
        elif match and int(match[3]) >= 0:
            yield match[1], arguments_of(match[2]), int(match[3])
    for call, arguments in (begin.split("(", 1) for begin in begun.values()):
        if call != "close":
            yield call, arguments_of(arguments), None


class Recorder:
    """Follows the calls through descriptors and names. Needs external synchronisation."""

    def __init__(self, directory: Path):
        self._top = os.fsencode(str(directory))
        self._open, self._next = {}, 1
        self.recording = Recording()

    def read(self, log: Path):
        ended = None
        for call, arguments, result in calls_of(log):
            if result is None and ended is None:
                ended = len(self.recording.steps)
            if handler := getattr(self, f"_{call}", None):
                handler(arguments, result)
        if ended is not None:
            self.recording.under_way = self.recording.steps[ended:]
            del self.recording.steps[ended:]
        return self.recording

    # ---- paths

    def _below(self, path):
        """The path below the directory, or None."""
        path = os.path.normpath(path)
        if path == self._top:
            return ""
        return os.fsdecode(path[len(self._top) + 1:]) if path.startswith(self._top + b"/") else None

    def _path(self, directory, quoted):
        path = text_of(quoted)
        if match := re.match(rb"/proc/self/fd/(\d+)(/.*)?$", path):
            base = self._open.get(int(match[1]), (None, None))[1]
            return None if base is None else self._below(os.path.join(self._top, os.fsencode(base)) + (match[2] or b""))
        base = re.search(r"<(.*)>", directory)
        return self._below(os.path.join(text_of(base[1]) if base else b"/", path))

    def _inode_of(self, descriptor):
        return self._open.get(int(descriptor.split("<")[0]), (None, None))[0]

    def _add(self, kind, what, **more):
        self.recording.steps.append(Step(kind, what, **more))

    # ---- names

    def _openat(self, arguments, result):
        path, flags = self._path(arguments[0], arguments[1]), arguments[2]
        if path is None:
            self._open.pop(result, None)
            return
        names = self.recording.names
        if path not in names and path not in self.recording.directories and path and "O_CREAT" in flags:
            names[path] = self._next
            self._next += 1
            self._add("name", "create", inode=names[path], paths=(path,), value=int(arguments[3], 8))
        elif "O_TRUNC" in flags and path in names:
            self._add("data", "truncate", inode=names[path], value=0)
        self._open[result] = (names.get(path), path)

    def _openat2(self, arguments, result):
        """A directory, through which names are reached."""
        path = self._path(arguments[0], arguments[1])
        self._open[result] = (self.recording.names.get(path), path)

    def _close(self, arguments, _):
        self._open.pop(int(arguments[0].split("<")[0]), None)

    def _move(self, before, after, exchange=False):
        names, folders = self.recording.names, self.recording.directories
        if before is None or after is None or before == after:
            return
        if exchange:
            names[before], names[after] = names[after], names[before]
            return self._add("name", "exchange", inode=names[after], paths=(before, after))
        if before in names:
            if names.get(after) == names[before]:
                return  # two names of one file
            inode = names.pop(before)
            names[after] = inode
            return self._add("name", "rename", inode=inode, paths=(before, after))
        for table in (names, folders):
            for path in [path for path in table if path == before or path.startswith(before + "/")]:
                moved = after + path[len(before):]
                if table is names:
                    names[moved] = names.pop(path)
                else:
                    folders.remove(path)
                    folders.add(moved)
        for number, (inode, path) in list(self._open.items()):
            if path is not None and (path == before or path.startswith(before + "/")):
                self._open[number] = (inode, after + path[len(before):])
        self._add("name", "rename", paths=(before, after))

    def _rename(self, arguments, _):
        self._move(self._path("", arguments[0]), self._path("", arguments[1]))

    def _renameat(self, arguments, _):
        self._move(self._path(*arguments[0:2]), self._path(*arguments[2:4]))

    def _renameat2(self, arguments, _):
        self._move(self._path(*arguments[0:2]), self._path(*arguments[2:4]), "RENAME_EXCHANGE" in arguments[4])

    def _linkat(self, arguments, _):
        source = text_of(arguments[1])
        match = re.fullmatch(rb"/proc/self/fd/(\d+)", source)
        inode = self._open.get(int(match[1]), (None, None))[0] if match else self.recording.names.get(
            self._path(*arguments[0:2]))
        after = self._path(*arguments[2:4])
        if inode is not None and after is not None:
            self.recording.names[after] = inode
            self._add("name", "link", inode=inode, paths=(after,))

    def _gone(self, path):
        if path in self.recording.names:
            del self.recording.names[path]
            self._add("name", "unlink", paths=(path,))
        elif path in self.recording.directories:
            self.recording.directories.remove(path)
            self._add("name", "rmdir", paths=(path,))

    def _unlinkat(self, arguments, _):
        self._gone(self._path(*arguments[0:2]))

    def _unlink(self, arguments, _):
        self._gone(self._path("", arguments[0]))

    _rmdir = _unlink

    def _made(self, path, mode):
        if path:
            self.recording.directories.add(path)
            self._add("name", "mkdir", paths=(path,), value=int(mode, 8))

    def _mkdir(self, arguments, _):
        self._made(self._path("", arguments[0]), arguments[1])

    def _mkdirat(self, arguments, _):
        self._made(self._path(*arguments[0:2]), arguments[2])

    def _symlinkat(self, arguments, _):
        if path := self._path(*arguments[1:3]):
            self.recording.names[path] = self._next
            self._next += 1
            self._add("name", "symlink", inode=self._next - 1, paths=(path,), value=text_of(arguments[0]))

    # ---- bytes and marks

    def _pwrite64(self, arguments, result):
        if (inode := self._inode_of(arguments[0])) is not None:
            self._add("data", "write", inode=inode, value=(int(arguments[3]), text_of(arguments[1])[:result]))

    def _write(self, arguments, result):
        """Whole files in one go, as the program's helpers write them: where the descriptor stands is not followed."""
        if (inode := self._inode_of(arguments[0])) is not None:
            before = sum(len(step.value[1]) for step in self.recording.steps if step.inode == inode and step.what == "write")
            self._add("data", "write", inode=inode, value=(before, text_of(arguments[1])[:result]))

    def _fallocate(self, arguments, _):
        if (inode := self._inode_of(arguments[0])) is not None and "FALLOC_FL_PUNCH_HOLE" in arguments[1]:
            self._add("data", "hole", inode=inode, value=(int(arguments[2]), int(arguments[3])))
        elif inode is not None and arguments[1] == "0":  # the store's reserve, which is empty before
            self._add("data", "truncate", inode=inode, value=int(arguments[2]) + int(arguments[3]))

    def _ftruncate(self, arguments, _):
        if (inode := self._inode_of(arguments[0])) is not None:
            self._add("data", "truncate", inode=inode, value=int(arguments[1]))

    def _fsetxattr(self, arguments, _):
        if (inode := self._inode_of(arguments[0])) is not None:
            self._add("inode", "xattr", inode=inode, value=(text_of(arguments[1]), text_of(arguments[2])))

    def _lsetxattr(self, arguments, _):
        if (inode := self.recording.names.get(self._path("", arguments[0]))) is not None:
            self._add("inode", "xattr", inode=inode, value=(text_of(arguments[1]), text_of(arguments[2])))

    def _lremovexattr(self, arguments, _):
        if (inode := self.recording.names.get(self._path("", arguments[0]))) is not None:
            self._add("inode", "xattr", inode=inode, value=(text_of(arguments[1]), None))

    # ---- syncs

    def _fsync(self, arguments, _):
        inode, path = self._open.get(int(arguments[0].split("<")[0]), (None, None))
        if path is not None:
            self._add("sync", "file" if inode is not None else "directory", inode=inode or 0, paths=(path,))

    _fdatasync = _fsync

    def _syncfs(self, _arguments, _):
        self._add("sync", "all")
