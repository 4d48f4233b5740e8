# SPDX-License-Identifier: Apache-2.0
"""The incident table again, its reader in a container: a root, processes, mounts, a user and a host name of its own, and the mount at
another path than the host's and the writer's. What a plain directory does in its place the other tests show."""
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from inductorfs_testing.fixtures import lack
from inductorfs_testing.processes import wait_until

from incident_containers import Contained
from incident_cpu import (CHANGES, GRAPHS, NATIVE, build_with_a_newer_glibc, other_torch, put_stub_compiler, second_node_hits,
                          with_all_of_a)
from incident_cuda import OTHER_FUSION, build_with_cuda_12, contents, of_cuda_12, replace_facts
from incident_cuda import second_node_hits as second_node_hits_before_a_gpu
from incident_files import AUTOGRAD, GRAPH, PAGE, Pair, leave_behind, of_another_key, timings, with_another_bit
from incident_hosts import Facts, Hand, few_tools, hits, is_seen, lasting, listed, made_by, of_an_older_cpu, sees_only
from incident_triton import (NAME, OUTSIDE, a100, group_of, groups, load, on_two_architectures, put_of_two_writers,
                             put_with_a_child_outside, put_with_a_cubin_for_sm_90, put_without_a_child)
from incident_worlds import H100, ONE_KERNEL


@pytest.fixture(scope="module", autouse=True)
def root():
    if os.geteuid() != 0:
        lack("containers: root only")


@pytest.fixture
def inside():
    """Puts the readers of a node into a container."""
    made = []

    def contain(node):
        made.append(Contained(node))
        return made[-1]

    yield contain
    for container in made:
        container.close()


# ---- wrong reuse

OTHER_CPUS = {
    "an older CPU": (of_an_older_cpu, NATIVE | GRAPHS),
    "another CPU": (lambda facts: facts.edited("cpu", (r"^flags=", "flags=another ")), NATIVE),
    "an older glibc": (lambda facts: facts.edited("libc", (r"^version=.*", "version=2.28")), NATIVE),
}


@pytest.mark.parametrize("other", OTHER_CPUS)
def test_in_a_container_nothing_of_another_cpu_or_libc(cpu, inside, other):
    change, hidden = OTHER_CPUS[other]
    sees_only(inside(cpu.node(f"contained-{other.replace(' ', '-')}", change(cpu.facts))), cpu.a, hidden)


def test_in_a_container_no_library_that_needs_a_newer_glibc(cpu, hand, inside, tmp_path):
    writer, reader, _ = build_with_a_newer_glibc(cpu, hand, "contained-glibc", tmp_path / "newer.so")
    sees_only(inside(reader), writer, NATIVE - {"vec_isa_marker"})


@pytest.mark.parametrize("change", CHANGES)
def test_in_a_container_nothing_of_a_torch_with_other_content(cpu, installation, inside, change):
    with other_torch(installation, change) as facts:
        node = cpu.node(f"contained-other-{change}", facts)
        assert node.status()["catalog"]["synced"] is True
        assert listed(inside(node)) == set()


def test_in_a_container_no_tuning_of_another_device(cuda, inside):
    """Of equal names, those that were measured before this device; and when it is replaced under the mount, those of the new one,
    to a process that has read the old ones."""
    node = cuda.node("contained-replaced", cuda.h200_facts)
    reader = inside(node)
    wait_until(lambda: contents(reader) == contents(cuda.h200), 20, "the tunings of the H200")
    assert contents(cuda.h200) != contents(cuda.a)
    replace_facts(node, cuda.facts)
    wait_until(lambda: contents(reader) == contents(cuda.a), 30, "the tunings of the H100", pause=0.1)


def test_in_a_container_no_object_of_cuda_12(cuda, inside, tmp_path):
    sees_only(inside(cuda.node("contained-cuda-12", of_cuda_12(cuda.facts))), cuda.a, {"fxgraph", "aotautograd", "triton_launcher"})
    _, reader, name, _ = build_with_cuda_12(cuda, "contained-runtime", tmp_path / "cuda12.so")
    assert not is_seen(inside(reader), name)


def test_in_a_container_no_graph_of_another_fp_fusion(cuda, inside):
    reader = inside(cuda.node("contained-fusion", cuda.facts.edited(*OTHER_FUSION)))
    sees_only(reader, cuda.a, {"fxgraph", "aotautograd", "best_config"})


def test_in_a_container_no_kernel_for_another_architecture(triton, inside):
    _, twin, reader = on_two_architectures(triton, "contained-arch")
    assert groups(inside(twin)) == {group_of(triton.sets.newer_key)}
    contained = inside(reader)
    assert groups(contained) == set()
    assert not is_seen(contained, f"triton/0/{triton.sets.newer_key}/{NAME}.cubin")


def broken_sets():
    yield "cubin of another architecture", put_with_a_cubin_for_sm_90
    yield "child that is not there", put_without_a_child
    for where in OUTSIDE:
        yield f"child: {where}", lambda triton, cache, where=where: put_with_a_child_outside(triton, cache, where)


@pytest.mark.parametrize("put", [pytest.param(put, id=name) for name, put in broken_sets()])
def test_in_a_container_no_broken_set(triton, inside, put, request):
    name = "contained-" + "".join(letter if letter.isalnum() else "-" for letter in request.node.callspec.id)
    writer, reader = triton.pair(name, a100(triton.facts))
    put(triton, writer.cache / "triton" / "0")
    writer.sync()
    contained = inside(reader)
    assert groups(contained) == set()
    for child in triton.sets.children("first"):
        assert not is_seen(contained, f"triton/0/{triton.sets.key}/{child}")


def test_in_a_container_a_set_of_one_writer_for_any_device(triton, inside):
    """The group names the container's own paths, also where the container uses another device's directory."""
    writer, reader = triton.pair("contained-mixed")
    put_of_two_writers(triton, writer.cache / "triton" / "0")
    writer.sync()
    contained = inside(reader)
    wait_until(lambda: groups(contained) == {group_of(triton.sets.key)}, 20, "the set in the container")
    with Hand(reader, within=contained) as torch:
        for device in ("0", "5"):
            cache = contained.cache / "triton" / device
            found = torch("get_group", cache=cache, key=triton.sets.key, name=f"{NAME}.json")
            assert found == {name: str(cache / triton.sets.key / name) for name in triton.sets.children("first")}
            assert triton.sets.owners(load(triton, torch, cache)) == {"first"}
    assert made_by(reader) == set(), "a compile in place of a hit"


@pytest.fixture(scope="module")
def pair(cpu, hand):
    """(writer and reader, the reader's container)"""
    made = Pair(cpu, hand, "contained-files")
    with Contained(made.reader) as container:
        yield made, container


def arrives(container, name):
    wait_until(lambda: container.is_there(name), 15, f"{name} in the container")


def test_in_a_container_no_graph_that_is_cut_off(cpu, pair):
    pair, container = pair
    (name,) = cpu.of_a(GRAPH)
    whole = (cpu.a.cache / name).read_bytes()
    name = of_another_key(name, "u")
    cuts = list(range(0, len(whole), PAGE))
    for cut in (*cuts[:3], cuts[-1]):
        pair.write(name, whole[:cut])
        assert not is_seen(container, name), cut
    pair.write(name, whole)
    arrives(container, name)
    assert container.contents([name]) == {name: whole.hex()}


def test_in_a_container_no_temporary_name(cpu, pair):
    pair, container = pair
    left, name = leave_behind(pair, cpu, "q")
    arrives(container, name)
    assert not left & set(container.ask("result = compare.names(cache)"))


@pytest.mark.parametrize("family", [GRAPH, AUTOGRAD])
def test_in_a_container_no_content_that_does_not_match_its_name(cpu, pair, family):
    pair, container = pair
    name, content = with_another_bit(cpu, family, "r")
    pair.write(name, content)
    assert not is_seen(container, name)


def test_in_a_container_no_timings_under_the_name_of_another_system(pair):
    pair, container = pair
    digest, text = timings()
    wrong = f"cache/{'0' * 64}"
    pair.write(wrong, text)
    pair.write(f"cache/{digest}", text)
    arrives(container, f"cache/{digest}")
    assert not is_seen(container, wrong)


# ---- needless misses

def copied_interpreter(node, installation):
    """A virtual environment with a copy of the interpreter, over the packages of the installation."""
    home = node.root / "venv"
    subprocess.run([installation.python.resolve(), "-m", "venv", "--copies", "--without-pip", home], check=True, timeout=120)
    (site,) = home.glob("lib/python3.*/site-packages")
    (site / "packages.pth").write_text(f"{installation.site}\n")
    return home / "bin" / "python"


ELSEWHERE = Path("/installation")


@pytest.fixture(scope="module")
def jobs(cpu, installation):
    """{name: (container, what its node listed before, its job)}, of jobs that all run at once."""
    path = few_tools(cpu.directory / "contained-tools")
    without = Facts.learn(cpu.cluster.python, PATH=path)
    assert without.values["compiler"] is None
    put_stub_compiler(Path(path) / "g++", shutil.which("g++"))
    made = {}
    for name, facts, words in (("plain", None, {}), ("interpreter", None, {}), ("moved", None, {}), ("no-compiler", without, {"PATH": path})):
        node = cpu.node(f"contained-{name}", facts)
        node.catch_up(cpu.a)
        if name == "interpreter":
            words = {"python": copied_interpreter(node, installation)}
        if name == "moved":
            words = {"python": ELSEWHERE / installation.python.relative_to(installation.root)}
        container = Contained(node, {installation.root: ELSEWHERE} if name == "moved" else None)
        made[name] = container, with_all_of_a(cpu, node), container.begin(ONE_KERNEL, **words)
    yield made
    for container, _, _ in made.values():
        container.close()


def test_a_job_in_a_container_hits(cpu, jobs):
    """Four lines in one: another path of the mount, another user and home, another host name, another order of the environment."""
    container, before, job = jobs["plain"]
    told = container.ask("result = [os.getpid(), os.getuid(), os.uname().nodename, os.stat('/').st_dev, os.listdir(host)]",
                         host=str(container.node.cache))
    assert told[:2] == [1, 12345] != [os.getpid(), os.getuid()] and told[2] != socket.gethostname()
    assert told[3] != os.stat("/").st_dev and told[4] == [], "a root of its own, without the host's path"
    second_node_hits(cpu, container.node, job, before)


@pytest.mark.parametrize("image", ["interpreter", "no-compiler"])
def test_a_container_of_another_image_hits(cpu, jobs, image):
    """Its interpreter at another path; without a compiler that could compile."""
    container, before, job = jobs[image]
    second_node_hits(cpu, container.node, job, before)


def test_a_container_with_torch_at_another_path_hits(cpu, jobs):
    """But for the kernel that torch itself names after the paths of its installation."""
    container, before, job = jobs["moved"]
    out = job.wait().json
    hits(out)
    assert out["digest"] == cpu.cold["digest"]
    new = (lasting(container) - before) & made_by(container.node)
    assert {name.split(".", 1)[1] for name in new} == {"main.cpp", "main.so"} and len(new) == 2, new
    assert container.node.compilers.counts().get("link") == 1


def test_a_container_before_a_gpu_hits(cuda, installation):
    """An image without ptxas and compiler, behind a newer patch level of the driver, and two devices in another order."""
    path = few_tools(cuda.directory / "contained-tools")
    other = {"FAKE_CUDA_MEM_MB": "81540", "FAKE_CUDA_COUNT": "2", "CUDA_VISIBLE_DEVICES": "1,0"}
    facts = Facts.learn(cuda.cluster.python, **cuda.sees_gpu, **H100, **other, PATH=path)
    node = cuda.node("contained-gpu", facts.with_details("gpu", "driver_version=580.126.09"))
    nothing = cuda.directory / "nothing"
    nothing.mkdir()
    with Contained(node, {nothing: installation.ptxas}) as container:
        second_node_hits_before_a_gpu(cuda, node, container, **other, PATH=path)
        assert container.ask("result = os.listdir(there)", there=str(installation.ptxas)) == []
