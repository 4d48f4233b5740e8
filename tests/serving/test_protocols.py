# SPDX-License-Identifier: Apache-2.0
"""The kernel libraries of serving engines themselves (kernel_jobs.py), on mounts that share nothing but Redis: what one has compiled,
the same library finds on the other. And the replays of protocols.py leave what the libraries leave."""
import contextlib
import os
import subprocess

import protocols
import pytest
from inductorfs_testing import compare, places
from inductorfs_testing.mounts import QuickCluster, published
from inductorfs_testing.processes import wait_until

JOB = places.REPOSITORY / "tests" / "serving" / "kernel_jobs.py"
REQUIREMENTS = places.REPOSITORY / "tests" / "serving" / "requirements" / "kernels-2026.10.txt"
TORCH = "2.15"
ROOTS = {"tilelang": "tilelang", "sglang": "sglang/jit", "flashinfer": ".cache/flashinfer"}
every_library = pytest.mark.parametrize("library", ROOTS)


@pytest.fixture(scope="module")
def variables(tmp_path_factory):
    """Of a job: this torch beside these libraries, NVCC, and a GPU that is none."""
    done = subprocess.run([places.REPOSITORY / "scripts" / "venv", REQUIREMENTS], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          text=True, check=True, timeout=1800)
    (libraries,) = places.Path(done.stdout.strip()).glob("lib/python3*/site-packages")
    cuda = libraries / "nvidia" / "cu13"
    fake = tmp_path_factory.mktemp("cuda")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", f"-I{cuda / 'include'}", places.NOGPU / "fake_libcuda.c",
                    "-o", fake / "libcuda.so.1", "-ldl", "-lpthread"], check=True, timeout=120)
    return {"PYTHONPATH": f"{libraries}:{places.site_packages(TORCH)}", "CUDA_HOME": cuda, "LD_PRELOAD": fake / "libcuda.so.1",
            "LD_LIBRARY_PATH": f"{fake}:{cuda / 'lib'}", "SOURCES": tmp_path_factory.mktemp("sources"),
            "INDUCTOR_PATH": f"{cuda / 'bin'}:{libraries.parents[2] / 'bin'}"}


@pytest.fixture(scope="module")
def nodes():
    with QuickCluster(torch=None) as cluster:
        cluster.python = places.venv_python(TORCH)
        facts = {"engine": "the same everywhere"}
        a, b = (cluster.quick(name, facts=facts) for name in "ab")
        a.python = b.python = cluster.python
        yield cluster, a, b


def job(node, variables, library, root, seed="1"):
    root.mkdir(parents=True, exist_ok=True)
    more = dict(variables)
    more["PATH"] = f"{more.pop('INDUCTOR_PATH')}{os.pathsep}{node.env()['PATH']}"
    return node.run(JOB, library, root, more.pop("SOURCES"), seed, seconds=300, **more).json


def begun(cache, library):
    """What an import of the library does before it looks for a kernel."""
    root = cache / ROOTS[library]
    root.mkdir(parents=True, exist_ok=True)
    if library == "tilelang":
        protocols.TileLang.begin(root)
    return root


@pytest.fixture(scope="module")
def cold(nodes, variables):
    """{library: what its job tells on the first node}, published."""
    _, a, _ = nodes
    told = {library: job(a, variables, library, a.cache / root) for library, root in ROOTS.items()}
    a.sync()
    return told


@every_library
def test_the_library_finds_on_the_second_node_what_it_made_on_the_first(nodes, variables, cold, library):
    cluster, a, b = nodes
    assert not cold[library]["hit"]
    where = places.Path(cold[library]["where"]).relative_to(a.cache)
    assert any(name.endswith(where.name) for name in published(cluster)), a.explain(where)
    begun(b.cache, library)

    def lists():
        with contextlib.suppress(OSError):
            return where.name in os.listdir((b.cache / where).parent)
        return False

    wait_until(lists, 15, b.explain(where))
    warm = job(b, variables, library, b.cache / ROOTS[library])
    assert warm["hit"], b.explain(where)
    one, other = a.cache / where, b.cache / where
    files = lambda top: {path.relative_to(top): path.read_bytes() for path in top.rglob("*") if path.is_file()}  # noqa: E731
    assert files(one) == files(other) and (files(one) or one.read_bytes() == other.read_bytes())
    print(f"\n{library}: cold {cold[library]['seconds']} s, second node {warm['seconds']} s")


@pytest.mark.parametrize("library, replay", [("tilelang", protocols.TileLang), ("sglang", protocols.Sglang)])
def test_the_replay_leaves_what_the_library_leaves(nodes, cold, library, replay, tmp_path):
    """Names of equal shape, and the same files but those of a build; the replay's on a plain directory."""
    real, replayed = nodes[1].cache / ROOTS[library], tmp_path / "replayed" / replay.root
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
    begun(b.cache, "tilelang")
    wait_until((b.cache / where / "kernel_lib.so").exists, 15, b.explain(where))
    (b.cache / where / "kernel_lib.so").write_bytes(b"damaged")
    assert not job(b, variables, "tilelang", b.cache / ROOTS["tilelang"])["hit"]
    assert job(b, variables, "tilelang", b.cache / ROOTS["tilelang"])["hit"]
    assert job(a, variables, "tilelang", a.cache / ROOTS["tilelang"])["hit"], "the first node kept its own"
