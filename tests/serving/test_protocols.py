# SPDX-License-Identifier: Apache-2.0
"""The kernel libraries of serving engines themselves (kernel_jobs.py), on mounts that share nothing but Redis and were told of nothing, with
the variables that `inductorfs env` prints: what one has compiled, the same library finds on the other. And the replays of protocols.py
leave what the libraries leave."""
import os
import subprocess

import protocols
import pytest
from inductorfs_testing import compare, places
from inductorfs_testing.fixtures import Cluster, lack
from inductorfs_testing.mounts import published

JOB = places.REPOSITORY / "tests" / "serving" / "kernel_jobs.py"
REQUIREMENTS = places.REPOSITORY / "tests" / "serving" / "requirements" / "kernels-2026.10.txt"
TORCH = "2.15"
# {library: the variable that says where its cache is, and where below that}
ROOTS = {"tilelang": ("TILELANG_CACHE_DIR", ""), "sglang": ("SGLANG_JIT_CACHE_DIR", ""), "flashinfer": ("FLASHINFER_WORKSPACE_BASE", ".cache/flashinfer")}
every_library = pytest.mark.parametrize("library", ROOTS)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """These libraries beside this torch, as one environment has them."""
    if os.geteuid() != 0:
        lack("an overlay: root only")
    done = subprocess.run([places.REPOSITORY / "scripts" / "venv", REQUIREMENTS], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          text=True, check=True, timeout=1800)
    both = tmp_path_factory.mktemp("environment")
    subprocess.run(["mount", "-t", "overlay", "-o", f"ro,lowerdir={done.stdout.strip()}:{places.venv(TORCH)}", "overlay", both], check=True)
    yield both
    subprocess.run(["umount", "-l", both], check=True)


@pytest.fixture(scope="module")
def variables(environment, tmp_path_factory):
    """Of a job: NVCC, and a GPU that is none."""
    (libraries,) = environment.glob("lib/python3*/site-packages")
    cuda = libraries / "nvidia" / "cu13"
    fake = tmp_path_factory.mktemp("cuda")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", f"-I{cuda / 'include'}", places.NOGPU / "fake_libcuda.c",
                    "-o", fake / "libcuda.so.1", "-ldl", "-lpthread"], check=True, timeout=120)
    return {"CUDA_HOME": cuda, "LD_PRELOAD": fake / "libcuda.so.1",
            "LD_LIBRARY_PATH": f"{fake}:{cuda / 'lib'}", "SOURCES": tmp_path_factory.mktemp("sources"),
            "INDUCTOR_PATH": f"{cuda / 'bin'}:{environment / 'bin'}"}


@pytest.fixture(scope="module")
def nodes(environment, variables):
    """Their daemons see the GPU, too."""
    with Cluster(torch=TORCH, patient=True, environment={"LD_LIBRARY_PATH": variables["LD_LIBRARY_PATH"]}) as cluster:
        cluster.python = environment / "bin" / "python"
        yield cluster, *(cluster.node(name) for name in "ab")


def job(node, variables, library, seed="1"):
    more = dict(variables)
    more["PATH"] = f"{more.pop('INDUCTOR_PATH')}{os.pathsep}{node.env()['PATH']}"
    return node.run(JOB, library, more.pop("SOURCES"), seed, seconds=300, **more).json


def root_of(node, library):
    variable, below = ROOTS[library]
    return places.Path(node.variables()[variable]) / below


@pytest.fixture(scope="module")
def cold(nodes, variables):
    """{library: what its job tells on the first node}, published."""
    _, a, _ = nodes
    for library in ROOTS:  # what a host reads of its packages for the first time may be late for the first job (docs/semantics)
        job(a, variables, library, seed="0")
    told = {library: job(a, variables, library) for library in ROOTS}
    a.sync()
    return told


@every_library
def test_the_library_finds_on_the_second_node_what_it_made_on_the_first(nodes, variables, cold, library):
    cluster, a, b = nodes
    assert not cold[library]["hit"]
    where = places.Path(cold[library]["where"]).relative_to(a.cache)
    assert root_of(a, library) in (a.cache / where).parents, where
    assert any(name.endswith(where.name) for name in published(cluster)), a.explain(where)
    b.catch_up(a)
    warm = job(b, variables, library)
    assert warm["hit"], b.explain(where)
    one, other = a.cache / where, b.cache / where
    files = lambda top: {path.relative_to(top): path.read_bytes() for path in top.rglob("*") if path.is_file()}  # noqa: E731
    assert files(one) == files(other) and (files(one) or one.read_bytes() == other.read_bytes())
    print(f"\n{library}: cold {cold[library]['seconds']} s, second node {warm['seconds']} s")


@pytest.mark.parametrize("library, replay", [("tilelang", protocols.TileLang), ("sglang", protocols.Sglang)])
def test_the_replay_leaves_what_the_library_leaves(nodes, cold, library, replay, tmp_path):
    """Names of equal shape, and the same files but those of a build; the replay's on a plain directory."""
    real, replayed = root_of(nodes[1], library), tmp_path / "replayed" / replay.root
    replayed.mkdir(parents=True)
    replay.make(replayed, "kernel", "replay")

    def shape(path, root):
        return [(len(part), part.rpartition("-")[0]) for part in path.relative_to(root).parts[-2:]]

    made = places.Path(cold[library]["where"])
    assert len(made.relative_to(real).parts) == len(replay.name("kernel").parts)
    if library == "sglang":
        assert shape(made, real) == shape(replayed / replay.name("kernel"), replayed)
    suffixes = lambda top: {(path.suffix or path.name) for path in top.iterdir()}  # noqa: E731
    assert suffixes(made) >= {places.Path(name).suffix for name in replay.files}
    left = [path.name for path in (real / made.relative_to(real)).parent.iterdir()]
    assert not [name for name in left if name.startswith(".staging-")]
    assert not compare.mounts_below(tmp_path)


def test_a_library_heals_a_directory_that_is_damaged(nodes, variables, cold):
    """TileLang removes what its manifest contradicts and makes it anew, on a node that has it from the cluster."""
    _, a, b = nodes
    where = places.Path(cold["tilelang"]["where"]).relative_to(a.cache)
    b.catch_up(a)
    assert job(b, variables, "tilelang")["hit"], "it has it"
    (b.cache / where / "kernel_lib.so").write_bytes(b"damaged")
    assert not job(b, variables, "tilelang")["hit"]
    assert job(b, variables, "tilelang")["hit"]
    assert job(a, variables, "tilelang")["hit"], "the first node kept its own"
