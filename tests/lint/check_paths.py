#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds that every call of vfs by a path goes through LocalTree, which follows no symbolic link: users make links in the view, and
exchange them for directories while a request is on its way (docs/decisions/0029). Outside of its files a call may take a descriptor, or
the two halves of a HeldParent; files of /proc are the kernel's. The directories of src/store are the daemon's alone (0700), so that
nobody can make a link in them. Exit code 1 and one line for each offence.   check_paths.py [ROOT]"""
import re
import sys
from pathlib import Path

OWN = {"src/vfs/disk/local_tree.h", "src/vfs/disk/local_tree.cc", "src/vfs/disk/inode_marks.cc", "src/vfs/disk/held_parent.cc"}
READS_PROC = {"src/vfs/nodes/key_directory.cc", "src/vfs/nodes/work_watch.cc"}
# Names that no member function has, and those of the C library, which are written with ::.
AT = r"(?:::)?(?:openat2?|unlinkat|renameat2?|linkat|fstatat|statx|mkdirat|symlinkat|readlinkat|fchownat|fchmodat2?|utimensat|futimesat" \
     r"|mknodat|mkfifoat|faccessat2?|name_to_handle_at|l?getxattr|l?setxattr|l?listxattr|l?removexattr)"
PLAIN = r"::(?:open|creat|unlink|rmdir|remove|rename|link|symlink|readlink|realpath|stat|lstat|statfs|statvfs|mkdir|mknod|mkfifo|chown" \
        r"|lchown|chmod|utimes?|lutimes|access|truncate|opendir|fopen|freopen|scandir|nftw|inotify_add_watch|chdir|syscall)"
HELPER = r"(?:open_at|open_regular|open_in_root|read_regular|read_file|write_file_atomically|write_file_durably|make_directories" \
         r"|remove_tree)"
CALL = re.compile(rf"(?<![\w.>:])({AT}|{PLAIN}|{HELPER})\((?=\s*([^;]*))|(std::filesystem\b|std::[io]?fstream\b)")
# Of the two halves of one HeldParent.
HELD = re.compile(r"(\w+)(\.|->)fd\(\), \1\2name\(\)")
PROC = re.compile(r'AT_FDCWD, (proc_path\(|"/proc/)')
MAY_FOLLOW = {"open_at", "openat", "fstatat", "fchownat", "utimensat"}
TWO_PATHS = {"linkat", "renameat", "renameat2"}


def statements(text):
    """(line, statement) without comments; a statement may have several lines."""
    lines = [line.split("//", 1)[0] for line in text.splitlines()]
    for number, line in enumerate(lines, 1):
        yield number, line + " " + " ".join(part.strip() for part in lines[number:number + 3])


def offences_of(name, text):
    for number, statement in statements(text):
        first = statement[:len(text.splitlines()[number - 1].split("//", 1)[0])]
        for match in CALL.finditer(statement):
            if match.start() >= len(first):
                break  # it is told of its own line
            call, arguments = (match[1] or match[3]).lstrip(":"), match[2] or ""
            is_held = HELD.match(arguments) and (call not in MAY_FOLLOW or "NOFOLLOW" in arguments)
            of_proc = PROC.match(arguments) or (name in READS_PROC and call in ("open", "read_file", "std::filesystem"))
            if call not in TWO_PATHS and (is_held or of_proc):
                continue
            yield f"{name}:{number}: {call} by a path; vfs/disk/local_tree.h has the calls, or add one there"


def check(root):
    for path in sorted((root / "src" / "vfs").rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.suffix in (".cc", ".h") and name not in OWN:
            yield from offences_of(name, path.read_text(errors="replace"))


def main():
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    offences = list(check(root))
    print("\n".join(offences) or "paths: all calls below the store are LocalTree's")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
