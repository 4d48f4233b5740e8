# SPDX-License-Identifier: Apache-2.0
"""The worlds of the incident tests: one job for the CPU, and jobs before a stand-in GPU, compiled cold and published."""
import os

from inductorfs_testing import compare, places
from inductorfs_testing.fixtures import stand_in_gpu
from inductorfs_testing.processes import wait_until

from incident_hosts import Facts, World, listed, made_by

VERSION = "2.15"
ONE_KERNEL = places.WORKLOADS / "one_kernel.py"
# The C++ jobs go without precompiled headers, which tests/torch/test_cpu_jobs.py has: 10 s and 150 MB less.
CPU_JOB = {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0", "TORCHINDUCTOR_COMPILE_THREADS": "2"}
GPU_JOB = {"TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
H100, H200 = {"FAKE_CUDA_NAME": "NVIDIA H100 80GB HBM3"}, {"FAKE_CUDA_NAME": "NVIDIA H200", "FAKE_CUDA_MEM_MB": "144384"}


class CpuWorld(World):
    """Node a has compiled one graph for the CPU and published it; while it did, both mounts were looked at."""

    def __init__(self, cluster, facts):
        super().__init__(cluster, facts)
        self.a, self.b = self.node("a"), self.node("b")
        self.temporary = {"a": set(), "b": set()}
        job = self.a.begin(ONE_KERNEL)
        wait_until(lambda: self._look() and not job.running, 300, "the cold compile", pause=0.03)
        self.cold = job.wait().json
        self.compiled = self.a.compilers.counts()
        self.a.sync()
        self.b.catch_up(self.a)

    def _look(self):
        for node in (self.a, self.b):
            for directory, directories, files in os.walk(node.cache):
                names = (os.path.relpath(os.path.join(directory, name), node.cache) for name in directories + files)
                self.temporary[node.name] |= {name for name in names if compare.PRIVATE.search(name)}
        return True

    def of_a(self, pattern):
        """Names of what node a made, by glob."""
        names = {str(path.relative_to(self.a.cache)) for path in self.a.cache.glob(pattern)}
        found = sorted(names & made_by(self.a))
        assert found, f"node a made no {pattern}"
        return found


class CudaWorld(World):
    """Nodes before a stand-in GPU, an H100 where nothing else is said. Three nodes have done the same job, one after the
    other, and each has published what it may: `unfused` under another TRITON_DEFAULT_FP_FUSION than its mount declares,
    `h200` before another device, then `a`."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.library = cluster.directory / "cuda"
        self._headers = stand_in_gpu(VERSION, self.library, cluster.python)
        self.sees_gpu = {"LD_LIBRARY_PATH": str(self.library)}
        super().__init__(cluster, Facts.learn(cluster.python, **self.sees_gpu, **H100))
        self.h200_facts = self.facts.of(Facts.learn(cluster.python, **self.sees_gpu, **H200), "gpu")
        self.unfused = self.node("unfused")
        self.h200 = self.node("h200", self.h200_facts, environment=H200)
        self.a = self.node("a")
        first = (self.unfused, self.h200)
        jobs = [self.begin(self.unfused, TRITON_DEFAULT_FP_FUSION=0), self.begin(self.h200)]
        self.first = {node.name: job.wait().json for node, job in zip(first, jobs, strict=True)}
        for node in first:
            node.sync()
        self.before = listed(self.a)
        self.cold = self.job(self.a)
        self.a.sync()

    def begin(self, node, **environment):
        return node.begin(places.STAND_IN, "--lib", self.library, "--cuda-include", self._headers, "--cache", node.cache,
                          "--work", "dynamic", **{**self.sees_gpu, **environment})

    def job(self, node, **environment):
        return self.begin(node, **environment).wait().json
