# SPDX-License-Identifier: Apache-2.0
"""pytest fixtures for the rings that use a real mount. What a ring needs and lacks is loud: a failure where CI is set,
else a skip with the reason."""
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from . import node as node_module
from . import places
from .node import Node
from .processes import run
from .redis_server import RedisServer


def lack(reason):
    """The ring cannot run here."""
    if os.environ.get("CI"):
        pytest.fail(f"this ring may not be skipped in CI: {reason}", pytrace=False)
    pytest.skip(reason)


def need(*programs):
    for program in programs:
        if not shutil.which(program):
            lack(f"{program} is missing (scripts/deps installs it)")
    if node_module.BACKING == "mount":
        if not os.path.exists("/dev/fuse"):
            lack("there is no /dev/fuse")
        if not places.program().exists():
            lack(f"{places.program()} is not built")


CUDA_HEADERS = {"2.15": "cu13", "2.9": "cuda_runtime"}


def stand_in_gpu(version, library, python=None):
    """Builds the stand-in libcuda.so.1 in this directory; the directory of cuda.h and cuda_runtime_api.h, which come with the environment."""
    headers = places.site_packages(version) / "nvidia" / CUDA_HEADERS[version] / "include"
    if not (headers / "cuda_runtime_api.h").exists():
        lack(f"{headers} holds no cuda_runtime_api.h")
    done = run([python or places.venv_python(version), places.STAND_IN, "--print-env", "--lib", library, "--cuda-include", headers], seconds=120)
    assert done.code == 0, done.err
    return headers


class Cluster:
    """A Redis and the nodes that share it and nothing else. close() ends all of them."""

    def __init__(self, torch=None, redis_settings=(), environment=None, parent=None, patient=False, declared=False):
        """`parent`: where its directory is made. `patient`, `declared`: see Node."""
        need("redis-server")
        self.directory = Path(tempfile.mkdtemp(prefix="inductorfs-cluster-", dir=parent))
        self.torch = torch
        self.python = places.venv_python(torch) if torch else None
        self._environment = environment
        self._patient, self._declared = patient, declared
        self.redis = RedisServer(settings=redis_settings)
        self._nodes = []

    def start(self):
        try:
            self.redis.start()
        except BaseException:
            self.close()  # __exit__ is not called for what did not start
            raise
        return self

    def node(self, name, start=True, remote=True, options=(), environment=None, **keywords):
        """A further node, mounted unless start is False. remote: True for this cluster's Redis, None, or a URL."""
        node = Node(self.directory / name, remote=self.redis.url if remote is True else remote, python=self.python,
                    exchange=self.directory / "exchange", environment={**(self._environment or {}), **(environment or {})},
                    **{"patient": self._patient, "declared": self._declared, **keywords})
        self._nodes.append(node)
        return node.start(*options) if start else node

    def close(self):
        for node in reversed(self._nodes):
            node.stop()
        self.redis.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()


@pytest.fixture
def cluster():
    """A cluster without Python: for tests that only use files."""
    with Cluster() as made:
        yield made


@pytest.fixture
def redis_server():
    need("redis-server")
    with RedisServer() as server:
        yield server
