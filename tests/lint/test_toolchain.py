# SPDX-License-Identifier: Apache-2.0
"""The compilers that the rings with real torch have in PATH: each call is counted, and a precompiled header or an object is made once."""
import ctypes
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/support/python"))
from inductorfs_testing.toolchain import CountingCompilers  # noqa: E402


def header_of(node, text):
    """(the bytes of a precompiled header of this text that a job of the node makes, the kinds of its calls)"""
    compilers = CountingCompilers(node / "tools", node / "compilers.log")
    header = node / "tmp" / "header.h"
    header.parent.mkdir()
    header.write_text(text)
    subprocess.run([node / "tools" / "g++", "-x", "c++-header", header, "-O1", "-g1", "-o", f"{header}.gch"], cwd=header.parent, check=True, timeout=60)
    return Path(f"{header}.gch").read_bytes(), compilers.counts()


def hits(cache):
    told = subprocess.run(["ccache", "--print-stats"], env={**os.environ, "CCACHE_DIR": str(cache)}, capture_output=True, text=True, check=True)
    return dict(line.split("\t") for line in told.stdout.splitlines())["direct_cache_hit"]


def test_a_precompiled_header_is_made_once_and_every_call_is_counted(tmp_path, monkeypatch):
    cache = tmp_path / "outside" / "headers"
    monkeypatch.setenv("INDUCTORFS_VENVS", str(cache.parent))
    monkeypatch.setenv("INDUCTORFS_HEADER_CACHE", "yes")
    first = header_of(tmp_path / "one" / "a", "int one();\n")
    assert hits(cache) == "0"
    assert header_of(tmp_path / "two" / "b", "int one();\n") == first == (first[0], {"header": 1})
    assert hits(cache) == "1"
    assert header_of(tmp_path / "three" / "a", "int two();\n")[0] != first[0] and hits(cache) == "1"


def library_of(node, text):
    """(what the function of a library says that a job of the node makes in one call, the kinds of its calls, what it left behind)"""
    compilers = CountingCompilers(node / "tools", node / "compilers.log")
    source, temporary = node / "cache" / "kernel.cpp", node / "tmp"
    for directory in (source.parent, temporary):
        directory.mkdir()
    source.write_text(f'extern "C" int kernel() {{ return {text}; }}\n')
    library = source.with_name("kernel.so")
    done = subprocess.run([node / "tools" / "g++", source, "-O1", "-g1", "-march=native", "-shared", "-fPIC", "-lm", "-o", library],
                          env={**os.environ, "TMPDIR": str(temporary)}, cwd=node, timeout=60, check=False)
    says = ctypes.CDLL(str(library)).kernel() if done.returncode == 0 else done.returncode
    return says, compilers.counts(), [path.name for path in (*temporary.iterdir(), *source.parent.iterdir())]


def test_an_object_is_made_once_and_each_library_is_linked(tmp_path, monkeypatch):
    cache = tmp_path / "outside" / "headers"
    monkeypatch.setenv("INDUCTORFS_VENVS", str(cache.parent))
    monkeypatch.setenv("INDUCTORFS_HEADER_CACHE", "yes")
    of = (42, {"link": 1}, ["kernel.cpp", "kernel.so"])
    first, again = (library_of(tmp_path / name / "a", "42") for name in ("one", "two"))
    assert [(*told[:2], sorted(told[2])) for told in (first, again)] == [of, of]
    assert hits(cache) == "1"
    assert library_of(tmp_path / "three" / "a", "43")[0] == 43 and hits(cache) == "1"
    assert library_of(tmp_path / "four" / "a", "nothing") == (1, {"link": 1}, ["kernel.cpp"]), "the compiler's own exit code"


def test_without_the_variable_each_is_made(tmp_path, monkeypatch):
    monkeypatch.delenv("INDUCTORFS_HEADER_CACHE", raising=False)
    _, counts = header_of(tmp_path / "one" / "a", "int one();\n")
    assert counts == {"header": 1} and "ccache" not in (tmp_path / "one" / "a" / "tools" / "g++").read_text()
