# SPDX-License-Identifier: Apache-2.0
"""Comparing cache directories, mounts and results."""
import os
import re
from pathlib import Path

# Names that never leave a host.
PRIVATE = re.compile(r"(^|/)\.\d+\.\d+\.tmp$|(^|/)tmp\.pid_|\.tmp\.pid_|^triton/[^/]+/tmp\.|^triton_cache/tmp\.|_CxxBuild(/|$)"
                     r"|^locks/|/locks/|\.lock$|^tmp[a-z0-9_]{8}(/|\.py$)|^bisect/|(^|/)\.fuse_hidden|(^|/)\.nfs")

# Names of the families that hosts with equal facts share, in the form that names them for any device.
SHARED = [re.compile(pattern) for pattern in (
    r"^fxgraph/[a-z2-7]{2}/f[a-z2-7]{51}/[a-z2-7]{51}$",
    r"^aotautograd/a[a-z2-7]{51}/([a-z2-7]{51}|entry)$",
    r"^[a-z2-7]{2}/c[a-z2-7]{51}\.py$",
    r"^[a-z2-7]{2}/c[a-z2-7]{51}(\.main)?\.(cpp|so)$",
    r"^triton/@/[A-Z2-7]{52}/__grp__.*\.json$",
    r"^triton/@/[A-Z2-7]{52}/.*\.so$",
    r"^[a-z2-7]{2}/[0-9a-f]{64}\.best_config$",
    r"^cache/[0-9a-f]{64}$",
    r"^cache/(should_pad|inductor_on_disk_cache)/[0-9a-f]{32}$")]


def names(root: Path):
    """All files below root, relative; from listings alone, so that nothing is fetched."""
    found = []
    for directory, _, files in os.walk(root):
        relative = os.path.relpath(directory, root)
        found += [name if relative == "." else f"{relative}/{name}" for name in files]
    return sorted(found)


def canonical(name):
    """triton/<device>/... and triton_cache/... as triton/@/...: a key does not depend on the device's index."""
    return re.sub(r"^(triton/[^/]+|triton_cache)/", "triton/@/", name)


def shared_names(root: Path):
    """The canonical names of the shared families that `root` lists."""
    return {name for name in map(canonical, names(root)) if any(pattern.match(name) for pattern in SHARED)}


def lasting(root: Path):
    """All names but temporary ones and locks."""
    return {name for name in names(root) if not PRIVATE.search(name)}


def families(root: Path):
    """{kind: number of files}, to see at a glance what a directory holds."""
    kinds = {}
    for name in names(root):
        kind = re.sub(r"[A-Z2-7]{52}|[a-z2-7]{51,52}|[0-9a-f]{64}", "*", name)
        kind = re.sub(r"^[a-z2-7]{2}/|(?<=/)[a-z2-7]{2}/", "xx/", kind)
        kind = re.sub(r"/[^/]*(\.[a-z_]+)$", r"/*\1", kind)
        kinds[kind] = kinds.get(kind, 0) + 1
    return kinds


def is_mounted(path: Path):
    return str(path) in mounts_below(path)


def mount_lines(process="self"):
    """Of its mountinfo. Those of tests beside this one are among them, with paths of any bytes."""
    return [os.fsdecode(line) for line in Path(f"/proc/{process}/mountinfo").read_bytes().split(b"\n") if line]


def mounts_below(root: Path):
    """Mountpoints at or below root, outermost first."""
    root, found = str(root), []
    for line in mount_lines():
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), line.split(" ")[4])
        if point == root or point.startswith(root + "/"):
            found.append(point)
    return found


def difference(before, after):
    """{counter: growth} between two counter maps, without those that stood still."""
    return {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
