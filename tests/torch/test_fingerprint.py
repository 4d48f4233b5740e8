# SPDX-License-Identifier: Apache-2.0
"""The daemon's fingerprint against what torch and Triton say of themselves, on this host and before the stand-in GPU."""
import os

import pytest
from inductorfs_testing import places
from inductorfs_testing.fixtures import need
from inductorfs_testing.processes import run

SCRIPT = places.REPOSITORY / "tests" / "fingerprint" / "against_torch.py"
NOGPU = places.NOGPU / "nogpu_compile.py"


def compare(version, directory, daemon, job):
    python = places.venv_python(version)
    done = run([places.program(), "fingerprint", "--json", "--python", python], {**os.environ, **daemon}, seconds=120)
    assert done.code == 0, done.err
    facts = directory / "fingerprint.json"
    facts.write_text(done.out)
    done = run([python, SCRIPT, facts], {**os.environ, **job}, seconds=300)
    assert done.code == 0, done.out + done.err


@pytest.mark.parametrize("version", ["2.15", "2.9"])
def test_fingerprint_says_what_torch_says(version, tmp_path):
    need()
    compare(version, tmp_path, {}, {})


@pytest.mark.parametrize("version, include, level", [("2.15", "cu13", "13020"), ("2.9", "cuda_runtime", "12080")])
def test_fingerprint_says_what_torch_says_of_a_gpu(version, include, level, tmp_path):
    """Its system hash too, whose form without a device is another in each of the two."""
    need()
    headers = places.site_packages(version) / "nvidia" / include / "include"
    done = run([places.venv_python(version), NOGPU, "--print-env", "--lib", tmp_path, "--cuda-include", headers],
               seconds=120)
    assert done.code == 0, done.err
    compare(version, tmp_path, {"LD_LIBRARY_PATH": str(tmp_path), "FAKE_CUDA_VERSION": level},
            {"LD_PRELOAD": str(tmp_path / "libcuda.so.1"), "TRITON_LIBCUDA_PATH": str(tmp_path),
             "FAKE_CUDA_VERSION": level})
