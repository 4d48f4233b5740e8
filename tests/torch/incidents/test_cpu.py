# SPDX-License-Identifier: Apache-2.0
"""The lines of the incident table about the CPU, the compiler, torch's content, and all that may differ without harm."""
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from inductorfs_testing import compare
from inductorfs_testing.processes import Job, run

from incident_worlds import ONE_KERNEL, VERSION
from incident_binaries import Caller, older_cpu
from incident_cpu import (CHANGES, GRAPHS, KERNEL, NATIVE, build_with_a_newer_glibc, other_torch, put_stub_compiler,
                          second_node_hits)
from incident_hosts import (Facts, Hand, Installation, builds, explain, few_tools, hits, listed, of_an_older_cpu, refused,
                            sees_only)


def test_first_node_compiles(cpu):
    """Else the other tests of this file say nothing."""
    assert cpu.cold["counters"]["inductor.fxgraph_cache_miss"] == 1
    assert cpu.compiled["link"] >= 2  # the kernel and at least one probe of a vector ISA
    assert cpu.cold["result"][-1] == 2 * 3.5 + 1.25


# ---- wrong reuse

def test_library_of_avx512_on_a_host_with_avx2(cpu, tmp_path):
    """The `.so` is called on an emulated CPU of the generation before: it dies of SIGILL. Its name says `native`, so that
    a plain directory hands it over."""
    (name,) = cpu.of_a(KERNEL)
    caller = Caller(tmp_path / "caller")
    assert caller.call(cpu.a.cache / name).out == "1.25 893.75\n"
    assert caller.call(caller.portable_kernel(), older_cpu()).out == "1.25 893.75\n"
    assert caller.call(cpu.a.cache / name, older_cpu()).code == -signal.SIGILL

    reader = cpu.node("avx2", of_an_older_cpu(cpu.facts))
    sees_only(reader, cpu.a, NATIVE | GRAPHS)
    told = explain(reader, name)
    assert told["visible"] is False and told["scope"] != explain(cpu.a, name)["scope"]
    assert "cpu" in reader.cli("explain", reader.cache / name).out


def test_vec_isa_probe_of_another_cpu(cpu, hand, tmp_path):
    """torch 2.14 and later believe the marker beside the probe's `.so` and load nothing: in a copied directory an ISA
    whose probe cannot be loaded at all is one that this host has."""
    markers = cpu.of_a("[a-z2-7][a-z2-7]/c*.so.load_ok")
    reader = cpu.node("another-cpu", cpu.facts.edited("cpu", (r"^flags=", "flags=another ")))
    sees_only(reader, cpu.a, NATIVE)
    for marker in markers:
        assert not os.path.lexists(reader.cache / marker)
        assert not os.path.lexists(reader.cache / marker.removesuffix(".load_ok"))

    plain = cpu.plain("probed-elsewhere", cpu.a)
    for marker in markers:
        (plain.cache / marker.removesuffix(".load_ok")).write_bytes(b"no library at all")
    assert "avx2" in cpu.cold["isa"]
    with Hand(plain) as torch:
        assert torch("probe", isa="VecAVX2") is True


def test_library_that_needs_a_newer_glibc(cpu, hand, tmp_path):
    """Two gates: hosts of another glibc do not share binaries, and a binary that asks for a later one than this host has
    is not published even where the facts are equal. Loaded all the same, it fails as it does in torch."""
    reader = cpu.node("older-glibc", cpu.facts.edited("libc", (r"^version=.*", "version=2.28")))
    sees_only(reader, cpu.a, NATIVE)

    writer, other, version = build_with_a_newer_glibc(cpu, hand, "newer-glibc", tmp_path / "newer.so")
    failure = hand.attempt("dlopen", path=tmp_path / "newer.so").get("error", "")
    assert f"version `{version}' not found" in failure, failure
    sees_only(other, writer, NATIVE - {"vec_isa_marker"})
    assert any(version in line for line in refused(writer)), refused(writer)


@pytest.mark.parametrize("change", CHANGES)
def test_torch_of_equal_version_and_other_content(cpu, installation, change):
    """The keys hold torch's Python code; a C++ kernel's name holds neither that nor the headers it was built with. On a
    plain directory a job after the change of a header compiles nothing: it runs what the old torch's headers gave."""
    with other_torch(installation, change) as facts:
        assert facts.values["torch"] != cpu.facts.values["torch"]
        line = next(line for line in cpu.facts.values["torch"].splitlines() if line.startswith("version="))
        assert line in facts.values["torch"].splitlines()
        reader = cpu.node(f"other-{change}", facts)
        assert reader.status()["catalog"]["synced"] is True
        assert listed(reader) == set()
        if change == "header":
            plain = cpu.plain("stale", cpu.a)
            hits(plain.run(ONE_KERNEL).json)
            assert builds(plain) == 0


# ---- needless misses

def reader_of(cpu, name, facts=None, **keywords):
    node = cpu.node(name, facts, **keywords)
    node.catch_up(cpu.a)
    return node


def test_another_mount_path_user_home_hostname_and_order_of_the_environment(cpu):
    """Four lines in one job, as in a container: any of them that counted would be a miss. The path has nothing in common with the writer's,
    not even its length. Another user id (in a user namespace where this one is not root), another login name and home."""
    node = reader_of(cpu, "a-node-with-a-long-name-and-so-with-a-long-path", environment={"USER": "someone", "LOGNAME": "someone"})
    home = node.root / "elsewhere"
    home.mkdir()
    usual = node.env(HOME=home)
    reverse = dict(reversed(usual.items()))
    assert list(reverse) != list(usual) and reverse == usual
    script = """echo elsewhere.example > /proc/sys/kernel/hostname && exec unshare --user --map-user=12345 --map-group=12345 "$@" """
    # A shell has an order of its own: `env` sets the variables last.
    elsewhere = ["unshare", "--uts", "sh", "-c", script, "sh", "env", "-i", *(f"{name}={value}" for name, value in reverse.items())]
    assert run([*elsewhere, "id", "-u"]).out == "12345\n" and run([*elsewhere, "uname", "-n"]).out == "elsewhere.example\n"
    assert run([*elsewhere, "env", "-0"]).out == "".join(f"{name}={value}\0" for name, value in reverse.items())
    second_node_hits(cpu, node, Job([*elsewhere, node.python, ONE_KERNEL], usual, node.root / "jobs", "elsewhere"))


def test_an_interpreter_at_another_path(cpu, installation):
    """A virtual environment of its own, with a copy of the interpreter, over the same packages."""
    node = cpu.node("interpreter", start=False)
    home = node.root / "venv"
    subprocess.run([installation.python.resolve(), "-m", "venv", "--copies", "--without-pip", home], check=True, timeout=120)
    (site,) = home.glob("lib/python3.*/site-packages")
    (site / "packages.pth").write_text(f"{installation.site}\n")
    python = home / "bin" / "python"
    assert not python.is_symlink()
    facts = Facts.learn(python)
    assert facts.values == cpu.facts.values
    node.python = python
    node.start("--fingerprint", facts.write(node.root / "facts.json"), "--no-also")
    node.catch_up(cpu.a)
    second_node_hits(cpu, node)


def test_torch_reinstalled_at_another_path_with_equal_content(cpu):
    """The facts are equal, so that everything is visible, and the graphs hit. What torch names after the paths of its
    own installation (-I and -L in the command line of a C++ kernel) is another name to it: that one kernel is built."""
    with Installation(VERSION, also=("triton",)) as second:
        facts = Facts.learn(second.python)
        assert facts.values == cpu.facts.values
        node = cpu.node("reinstalled", facts, start=True)
        node.python = second.python
        node.catch_up(cpu.a)
        before = compare.lasting(node.cache)
        out = node.run(ONE_KERNEL).json
        hits(out)
        assert out["digest"] == cpu.cold["digest"]
        new = compare.lasting(node.cache) - before
        assert {name.split(".", 1)[1] for name in new} == {"main.cpp", "main.so"} and len(new) == 2, new
        assert node.compilers.counts().get("link") == 1


def test_a_node_without_a_compiler(cpu):
    """torch gives up without any C++ compiler, whatever its cache holds: it asks one for its version before it looks for a
    library. One that can do no more than that is enough for a full hit, on a plain directory and here. And the mount
    shows a host without a compiler all that an equal CPU made."""
    path = few_tools(cpu.directory / "no-compiler-tools")
    plain = cpu.plain("no-compiler-plain", cpu.a)
    facts = Facts.learn(cpu.cluster.python, PATH=path)
    assert facts.values["compiler"] is None
    node = cpu.node("no-compiler", facts)
    sees_only(node, cpu.a, set())
    for place in (plain, node):
        done = place.begin(ONE_KERNEL, PATH=path).wait()
        assert done.code != 0 and "InvalidCxxCompiler" in done.err, done.err[-2000:]

    put_stub_compiler(Path(path) / "g++", shutil.which("g++"))
    second_node_hits(cpu, node, node.begin(ONE_KERNEL, PATH=path))
