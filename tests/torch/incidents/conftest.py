# SPDX-License-Identifier: Apache-2.0
"""The cold compiles that all incident tests share: one process runs them all."""
import pytest
from inductorfs_testing.fixtures import Cluster, need

from incident_hosts import Facts, Hand, Installation
from incident_triton import TritonWorld
from incident_worlds import CPU_JOB, GPU_JOB, VERSION, CpuWorld, CudaWorld


@pytest.fixture(scope="session")
def installation():
    """An installation of its own, which a test may change for a while."""
    need("redis-server")
    with Installation(VERSION, also=("triton",)) as made:
        yield made


@pytest.fixture(scope="session")
def cpu(installation):
    with Cluster(torch=VERSION, environment=CPU_JOB, patient=True, declared=True) as cluster:
        cluster.python = installation.python
        yield CpuWorld(cluster, Facts.learn(installation.python))


@pytest.fixture(scope="session")
def hand(cpu):
    """Torch and Triton, to be told what to do, on a node of the CPU's world that takes no other part."""
    with Hand(cpu.node("by-hand")) as made:
        yield made


@pytest.fixture(scope="session")
def cuda(installation):
    with Cluster(torch=VERSION, environment=GPU_JOB, patient=True, declared=True) as cluster:
        cluster.python = installation.python
        yield CudaWorld(cluster)


@pytest.fixture(scope="session")
def triton():
    with Cluster(torch=VERSION, patient=True, declared=True) as cluster:
        world = TritonWorld(cluster)
        yield world
        world.close()
