# SPDX-License-Identifier: Apache-2.0
"""The daemon's fingerprint against what torch and Triton say of themselves, on this host and before the stand-in GPU."""
import json
import os
import shutil

import pytest
from inductorfs_testing import places
from inductorfs_testing.fixtures import need, stand_in_gpu
from inductorfs_testing.processes import run

SCRIPT = places.REPOSITORY / "tests" / "fingerprint" / "against_torch.py"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def compare(version, directory, daemon, job):
    python = places.venv_python(version)
    done = run([places.program(), "fingerprint", "--json", "--python", python], {**os.environ, **daemon}, seconds=120)
    assert done.code == 0, done.err
    facts = directory / "fingerprint.json"
    facts.write_text(done.out)
    # torch would start with another number of threads, which it would not on its own.
    environment = {name: value for name, value in os.environ.items() if name not in THREADS}
    done = run([python, SCRIPT, facts], {**environment, **job}, seconds=300)
    assert done.code == 0, done.out + done.err


@pytest.mark.parametrize("version", ["2.15", "2.9"])
def test_fingerprint_says_what_torch_says(version, tmp_path):
    need()
    compare(version, tmp_path, {}, {})


@pytest.mark.parametrize("version, level", [("2.15", "13020"), ("2.9", "12080")])
def test_fingerprint_says_what_torch_says_of_a_gpu(version, level, tmp_path):
    """Its system hash too, whose form without a device is another in each of the two."""
    need()
    stand_in_gpu(version, tmp_path)
    compare(version, tmp_path, {"LD_LIBRARY_PATH": str(tmp_path), "FAKE_CUDA_VERSION": level},
            {"LD_PRELOAD": str(tmp_path / "libcuda.so.1"), "TRITON_LIBCUDA_PATH": str(tmp_path),
             "FAKE_CUDA_VERSION": level})


LARGE = 16 << 20


def copy_without_record(version, directory):
    """The interpreter of an environment with this torch that has no RECORD and has not run, as a distribution installs
    it: its large libraries are links to another directory."""
    base, site = places.venv(version), places.site_packages(version)
    target = directory / site.relative_to(base)
    target.mkdir(parents=True)
    (directory / "bin").mkdir()
    (directory / "bin" / "python").symlink_to((base / "bin" / "python").resolve())
    shutil.copy2(base / "pyvenv.cfg", directory)
    for entry in site.iterdir():
        if entry.name == "torch":
            shutil.copytree(entry, target / entry.name, ignore=shutil.ignore_patterns("__pycache__"),
                            copy_function=copy_or_link)
        elif entry.name.startswith("torch-") and entry.suffix == ".dist-info":
            shutil.copytree(entry, target / entry.name, ignore=shutil.ignore_patterns("RECORD"))
        elif entry.name != "__pycache__":
            (target / entry.name).symlink_to(entry)
    return directory / "bin" / "python"


def copy_or_link(source, target):
    if os.stat(source).st_size < LARGE:
        return shutil.copy2(source, target)
    return os.symlink(source, target)


def torch_fact(python, cache):
    done = run([places.program(), "fingerprint", "--json", "--cache", cache, "--python", python], seconds=120)
    assert done.code == 0, done.err
    return json.loads(done.out)["facets"]["torch"], done.seconds


@pytest.fixture(name="place")
def fixture_place(tmp_path):
    """For half a gigabyte, which pytest would keep."""
    yield tmp_path
    shutil.rmtree(tmp_path)


def test_a_torch_without_record_is_known_by_its_files(place):
    need()
    wheel, _ = torch_fact(places.venv_python("2.15"), place / "wheel.cache")
    one, two = (copy_without_record("2.15", place / name) for name in ("one", "two"))
    fact, cold = torch_fact(one, place / "one.cache")
    assert fact["known"], fact
    assert "known_by=" in fact["details"] and "known_by=" not in wheel["details"]
    assert fact["value"] == wheel["value"], "the same files are the same torch, whoever installed them"
    assert torch_fact(two, place / "two.cache")[0]["value"] == fact["value"]

    # It runs, and what it writes meanwhile is not of its content.
    facts = place / "fingerprint.json"
    facts.write_text(run([places.program(), "fingerprint", "--json", "--python", one], seconds=120).out)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = run([one, SCRIPT, facts], environment, seconds=300)
    assert done.code == 0, done.out + done.err
    assert list((place / "one").rglob("torch/__pycache__/*.pyc"))
    assert torch_fact(one, place / "one.cache")[0]["value"] == fact["value"]
    again, cached = torch_fact(one, place / "one.cache")
    assert again["value"] == fact["value"]
    print(f"torch without RECORD: {cold * 1000:.0f} ms cold, {cached * 1000:.0f} ms cached")

    # A header that C++ kernels are made with is in no key of torch's.
    (header,) = two.parents[1].glob("lib/*/site-packages/torch/include/torch/csrc/inductor/cpp_prefix.h")
    header.write_bytes(header.read_bytes().replace(b"#include", b"#inclUde", 1))
    patched, _ = torch_fact(two, place / "two.cache")
    assert patched["known"] and patched["value"] != fact["value"]
    code = one.parents[1] / "lib" / header.parents[6].name / "site-packages" / "torch" / "_tensor.py"
    code.write_bytes(code.read_bytes() + b"#")
    patched, _ = torch_fact(one, place / "one.cache")
    assert patched["known"] and patched["value"] != fact["value"]
