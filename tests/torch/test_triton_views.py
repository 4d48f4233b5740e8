# SPDX-License-Identifier: Apache-2.0
"""Triton's own cache manager in a container that sees the mount at another path."""
import os

import pytest
from inductorfs_testing import artefacts, places
from inductorfs_testing.containers import run_in_container
from inductorfs_testing.fixtures import lack
from inductorfs_testing.mounts import QuickCluster, appears

WHERE = artefacts.triton_key("kernel")
GET_GROUP = f"""
os.environ["TRITON_CACHE_DIR"] = str(cache / "triton/0")
from triton.runtime.cache import FileCacheManager
result = FileCacheManager({WHERE!r}).get_group("k.json")
result = result and {{name: Path(path).read_text() for name, path in result.items()}}
"""


@pytest.mark.parametrize("version", ["2.15", "2.9"])
def test_tritons_get_group_finds_every_child(version, tmp_path):
    if os.geteuid() != 0:
        lack("a mount namespace: root only")
    with QuickCluster() as cluster:
        writer, reader = cluster.quick("a"), cluster.quick("b")
        artefacts.triton_compile(writer.cache, "kernel", "a")
        writer.sync()
        appears(reader.cache / "triton")
        assert artefacts.triton_read(reader.cache, "kernel"), "the kernel keeps the host's names"
        found = run_in_container(reader.cache, tmp_path, GET_GROUP, python=places.venv_python(version))
        assert found is not None, "a miss"
        assert sorted(found) == sorted(artefacts.TRITON_FILES)
        assert found["k.ttir"] == "a wrote k.ttir"
