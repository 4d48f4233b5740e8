# SPDX-License-Identifier: Apache-2.0
"""A server of two ranks that keeps its compile cache as vLLM does (workloads/vllm_rank.py), on two nodes: the second one compiles nothing, and
what is vLLM's own stays as its ranks wrote it. Inductor's CUDA path runs whole, before a stand-in GPU. vLLM itself is not here: its
packages for GPUs want one."""
import hashlib
import os
import stat
from pathlib import Path

import pytest
from inductorfs_testing import mounts, places
from inductorfs_testing.fixtures import Cluster, stand_in_gpu
from inductorfs_testing.toolchain import PtxasCalls

VERSION, RANKS = "2.15", 2
RANK = places.WORKLOADS / "vllm_rank.py"
# vllm/env_override.py and compilation/: what it sets itself.
VLLM = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "TRITON_CACHE_AUTOTUNING": "1"}
FAMILY = "user.inductorfs.family"


class Server:
    """The ranks of one node, which all run at once, with the variables that `inductorfs env` prints."""

    def __init__(self, node, library):
        self.node, self.root, self._count = node, Path(node.variables()["VLLM_CACHE_ROOT"]), 0
        self._stand_in = {"LD_PRELOAD": library / "libcuda.so.1", "TRITON_LIBCUDA_PATH": library, "FAKE_CUDA_COUNT": RANKS}

    def run(self, mode="inductor", ranks=range(RANKS), **environment):
        self._count += 1
        jobs = [self.node.begin(RANK, "--root", self.root, "--rank", rank, "--mode", mode, "--text", f"{self.node.name} {self._count} {rank}",
                                **self._stand_in, **environment) for rank in ranks]
        return [job.wait().json for job in jobs]

    def text(self, rank):
        """What the latest run of this rank wrote into its own files."""
        return f"{self.node.name} {self._count} {rank}"


def family_of(path):
    """Of what vLLM calls so (docs/families.md)."""
    named = {"vllm_compile_cache.py": "vllm_index", "cache_key_factors.json": "vllm_factors", "model": "vllm_model"}
    if path.parent.name == "modelinfos":
        return "vllm_modelinfo"
    return named.get(path.name, "parcel_member" if path.name.startswith("artifact_") else "engine_private")


@pytest.fixture(scope="module")
def runs():
    with Cluster(torch=VERSION, patient=True) as cluster:
        library = cluster.directory / "cuda"
        stand_in_gpu(VERSION, library)
        a, b = (Server(cluster.node(name, environment={"LD_LIBRARY_PATH": str(library), **VLLM}), library) for name in "ab")
        made = PtxasCalls(a.node.root / "ptxas.log")
        cold = a.run(**made.env)
        compiled = a.node.compilers.counts()
        a.node.sync()
        calls = PtxasCalls(b.node.root / "ptxas.log")
        before = [name for out in cold for name in out["own"] if os.path.lexists(b.root / name)]
        warm = b.run(**calls.env)
        yield {"cluster": cluster, "a": a, "b": b, "cold": cold, "warm": warm, "compiled": compiled, "calls": calls, "made": made, "before": before}


def kernels(directory):
    """The cubins of Triton's key directories there."""
    return {path.name for path in directory.glob("*/*.cubin")}


def triton_cache(out):
    return Path(out["inductor"]).with_name("triton_cache")


def hits(out, graphs):
    assert out["counters"].get("inductor.fxgraph_cache_hit") == graphs > 0, out
    assert not [name for name in out["counters"] if name.endswith(("fxgraph_cache_miss", "autograd_cache_miss", "bypass"))], out


def compiled_nothing(server, calls):
    assert calls.calls() == []
    assert not {"compile", "link", "header"} & set(server.node.compilers.counts()), server.node.compilers.calls()


def test_first_node_compiles_for_each_rank(runs):
    """Else the other tests of this file say nothing."""
    for rank, out in enumerate(runs["cold"]):
        assert out["counters"]["inductor.fxgraph_cache_miss"] > 0
        assert Path(out["inductor"]) == runs["a"].root / "torch_compile_cache" / "0123456789" / f"rank_{rank}_0" / "inductor_cache"
        assert list((Path(out["inductor"]) / "fxgraph").glob("*/*/*"))
        assert len(kernels(triton_cache(out))) == 3
    assert len(runs["made"].calls()) >= 3
    assert runs["compiled"].get("link", 0) >= 1, "Triton's cuda_utils"


def test_second_node_compiles_nothing(runs):
    for cold, warm in zip(runs["cold"], runs["warm"], strict=True):
        hits(warm, cold["counters"]["inductor.fxgraph_cache_miss"])
        assert kernels(triton_cache(warm)) == kernels(triton_cache(cold))
    compiled_nothing(runs["b"], runs["calls"])


@pytest.mark.parametrize("which", ["a", "b"])
def test_what_has_names_of_vllms_own_and_other_content_stays_on_its_node_as_it_was_written(runs, which):
    """With the same names on both nodes. The families are known; what vLLM itself writes there is shared (tests/serving)."""
    server = runs[which]
    server.node.sync()
    assert runs["before"] == []
    for rank, out in enumerate(runs["cold" if which == "a" else "warm"]):
        assert len(out["own"]) == 8
        for name, digest in out["own"].items():
            path = server.root / name
            assert path.read_bytes() == server.text(rank).encode()
            assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
            assert os.getxattr(path, FAMILY).decode() == family_of(path), name
            # Made with mode 0600 or 0644: who may read the root may read the artefacts in it (vfs/tree/common_access.h).
            assert stat.S_IMODE(path.stat().st_mode) == 0o644, name
    assert not [name for name in mounts.published(runs["cluster"]) if "rank_" in name or "vllm" in name or "artifact" in name]


def test_the_directory_of_aot_mode_hits_too(runs):
    """One directory of torch's for all ranks. vLLM leaves TRITON_CACHE_DIR alone then, and after a hit nobody else sets it: without the
    user's, Triton's launcher and the server's own kernels would go to the home directory."""
    b, cold, rank = runs["b"], runs["cold"][1], 1
    b.node.compilers.clear()
    users = Path(b.node.variables()["TRITON_CACHE_DIR"])
    (out,) = b.run("aot", [rank], **runs["calls"].env)
    hits(out, cold["counters"]["inductor.fxgraph_cache_miss"])
    assert Path(out["inductor"]).parent.parent.name == "torch_aot_compile"
    assert kernels(users) == kernels(triton_cache(cold))
    compiled_nothing(b, runs["calls"])
