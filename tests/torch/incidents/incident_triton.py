# SPDX-License-Identifier: Apache-2.0
"""The world of the incident table's lines about Triton's key directories, and the steps that make its incidents. Sets are made by
Triton's compile, and mixed by its own FileCacheManager in an order that is chance otherwise."""
import shutil
from pathlib import Path

from inductorfs_testing import places
from inductorfs_testing.processes import wait_until

from incident_hosts import Facts, Hand, World, listed

SOURCE = places.WORKLOADS / "kernel_set.py"
NAME = "axpy"


class Sets:
    """One kernel compiled twice for sm_80 from two paths, and once for sm_90: key directories as Triton wrote them."""

    def __init__(self, directory: Path, hand):
        self.directories, self.loaded = {}, {}
        for writer, target in (("first", 80), ("second", 80), ("newer", 90)):
            source = directory / writer / "kernel_set.py"
            source.parent.mkdir(parents=True)
            shutil.copy2(SOURCE, source)
            made = hand("compile_kernel", source=source, name=NAME, target=target, cache=directory / writer / "cache")
            self.directories[writer] = directory / writer / "cache" / made["key"]
            self.loaded[writer] = made["loaded"]
        self.key, self.newer_key = self.directories["first"].name, self.directories["newer"].name
        assert self.key == self.directories["second"].name != self.newer_key

    def children(self, writer):
        return sorted(path.name for path in self.directories[writer].iterdir() if not path.name.startswith("__grp__"))

    def owners(self, loaded):
        """Which writers' bytes Triton has loaded; what both made alike says nothing."""
        return {writer for writer in ("first", "second") for kind, digest in loaded.items()
                if digest == self.loaded[writer].get(kind)
                and self.loaded["first"].get(kind) != self.loaded["second"].get(kind)}


class TritonWorld(World):
    def __init__(self, cluster):
        super().__init__(cluster, Facts.learn(cluster.python))
        node = self.node("hands")
        # Processes that have written nothing to a mount read it as any other does.
        self.first, self.second, self.reading = self.hands = [Hand(node) for _ in range(3)]
        self.sets = Sets(cluster.directory / "sets", self.first)

    def pair(self, name, facts=None):
        return tuple(self.node(f"{name}-{which}", facts, "--prefix", name) for which in ("writer", "reader"))

    def put(self, hand, cache, writer, names=None, over=None):
        """Puts what this writer made for the key into another cache, without the group. over: other bytes for a name."""
        paths = {}
        for name in self.sets.children(writer) if names is None else names:
            source = (over or {}).get(name, self.sets.directories[writer] / name)
            paths[name] = hand("put", cache=cache, key=self.sets.directories[writer].name, name=name, source=source)
        return paths

    def put_set(self, hand, cache, writer, over=None):
        paths = self.put(hand, cache, writer, over=over)
        hand("put_group", cache=cache, key=self.sets.directories[writer].name, name=f"{NAME}.json", children=paths)

    def close(self):
        for hand in self.hands:
            hand.close()


def groups(node):
    return {name for name in listed(node) if "/__grp__" in name}


def group_of(key):
    return f"triton/@/{key}/__grp__{NAME}.json"


def a100(facts):
    """An A100 in place of whatever this host has: sm_80."""
    gpu, arch = "device=NVIDIA A100-SXM4-80GB; cc=8.0; sms=108; memory_gib=80", "cc=8.0"
    return facts.edited("gpu", (r"(?s)\A.*\Z", gpu)).edited("gpu-arch", (r"(?s)\A.*\Z", arch))


def h100(facts):
    gpu, arch = "device=NVIDIA H100 80GB HBM3; cc=9.0; sms=132; memory_gib=80", "cc=9.0"
    return facts.edited("gpu", (r"(?s)\A.*\Z", gpu)).edited("gpu-arch", (r"(?s)\A.*\Z", arch))


def on_two_architectures(triton, name):
    """(H100, another H100, A100), of which the first has put a set for sm_90 that the second one lists."""
    writer, twin, reader = (triton.node(f"{name}-{which}", facts, "--prefix", name) for which, facts in (
        ("h100", h100(triton.facts)), ("h100-too", h100(triton.facts)), ("a100", a100(triton.facts))))
    triton.put_set(triton.first, writer.cache / "triton" / "0", "newer")
    writer.sync()
    wait_until(lambda: groups(twin) == {group_of(triton.sets.newer_key)}, 20, "the set on an equal node")
    return writer, twin, reader


def put_with_a_cubin_for_sm_90(triton, cache):
    """The set says sm_80, its cubin is one for sm_90."""
    triton.put_set(triton.first, cache, "first", over={f"{NAME}.cubin": triton.sets.directories["newer"] / f"{NAME}.cubin"})


def put_without_a_child(triton, cache):
    """The group names a cubin that is not there."""
    sets, hand = triton.sets, triton.first
    paths = triton.put(hand, cache, "first", [name for name in sets.children("first") if not name.endswith(".cubin")])
    paths[f"{NAME}.cubin"] = str(cache / sets.key / f"{NAME}.cubin")
    hand("put_group", cache=cache, key=sets.key, name=f"{NAME}.json", children=paths)


def put_with_a_child_outside(triton, cache, where):
    """The group names a cubin of another directory."""
    sets, hand = triton.sets, triton.first
    paths = triton.put(hand, cache, "first")
    triton.put(hand, cache, "newer")
    paths[f"{NAME}.cubin"] = {
        "another key": str(cache / sets.newer_key / f"{NAME}.cubin"),
        "outside": str(sets.directories["newer"] / f"{NAME}.cubin"),
        "climbing": f"{cache}/{sets.key}/../{sets.newer_key}/{NAME}.cubin"}[where]
    hand("put_group", cache=cache, key=sets.key, name=f"{NAME}.json", children=paths)


OUTSIDE = ("another key", "outside", "climbing")


def put_of_two_writers(triton, cache):
    """The first process puts its children, the second half of its own over them, then the first puts the group."""
    children = triton.sets.children("first")
    paths = triton.put(triton.first, cache, "first")
    triton.put(triton.second, cache, "second", children[::2])
    triton.first("put_group", cache=cache, key=triton.sets.key, name=f"{NAME}.json", children=paths)


def load(triton, hand, cache):
    """What Triton loads for the key from this cache, in this process."""
    source = triton.sets.directories["first"].parent.parent / "kernel_set.py"
    return hand("compile_kernel", source=source, name=NAME, target=80, cache=cache)["loaded"]
