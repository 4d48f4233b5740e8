# SPDX-License-Identifier: Apache-2.0
"""Jobs of two environments that work in one cache root at the same time (`--writers learned`), on two nodes: the jobs of test_cpu_jobs.py and
a storm as in test_triton_storm.py, side by side, for INDUCTORFS_ENVIRONMENTS_SECONDS. No wrong artefact, no error.

The first pair are two images. The second pair differ in variables that are in none of the keys, so that both ask for the same names: on a
plain directory the job without vector instructions loads the other's graph and fails, and Triton's kernels come with the other's files."""
import os
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest
from inductorfs_testing import places
from inductorfs_testing.fixtures import Cluster

SECONDS = float(os.environ.get("INDUCTORFS_ENVIRONMENTS_SECONDS", "0"))
STORM, JOBS, LOOK, ONE_KERNEL = (places.WORKLOADS / f"{name}.py" for name in ("storm", "cpu_jobs", "look_through", "one_kernel"))
GRAPHS = {"train": 2, "inference": 1, "dynamic": 1}
PROCESSES, KERNELS = 2, 8
# {pair: {environment: (torch, variables)}}
SCALAR = {"ATEN_CPU_CAPABILITY": "default", "TRITON_STORE_BINARY_ONLY": "1"}
PAIRS = {"variables": {"vector": ("2.15", {}), "scalar": ("2.15", SCALAR)}, "images": {"new": ("2.15", {}), "old": ("2.9", {})}}
NO_HEADERS = {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0", "TORCHINDUCTOR_COMPILE_THREADS": "2"}


@dataclass
class Round:
    """What the jobs of one round have told: {(environment, node): what cpu_jobs.py printed}, {environment: what storm.py printed}."""
    pair: str
    job: str
    salt: int
    first: dict = field(default_factory=dict)
    second: dict = field(default_factory=dict)
    storms: dict = field(default_factory=dict)


class Work:
    """Two nodes and the rounds of work on them."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.nodes = [cluster.node(name) for name in "ab"]
        for pair in PAIRS:
            for node in self.nodes:
                (node.cache / pair).mkdir()

    def begin(self, node, pair, environment, workload, *words):
        version, variables = PAIRS[pair][environment]
        node.python = places.venv_python(version)
        return node.begin(workload, *words, TORCHINDUCTOR_CACHE_DIR=node.cache / pair, **NO_HEADERS, **variables)

    def round(self, pair, number):
        """Both environments at once in one root: the same jobs on one node, then on the other, and meanwhile a storm of each on both nodes."""
        job = ("dynamic", "inference", "train")[number // len(PAIRS) % 3]
        told = Round(pair, job, number + 1)
        storms = {environment: self._storm(pair, environment, number) for environment in PAIRS[pair]}
        first = self.nodes[number // len(PAIRS) % 2]
        second = next(node for node in self.nodes if node is not first)
        told.first = self._jobs(first, told)
        first.sync(120)
        told.second = self._jobs(second, told)
        told.storms = {environment: storm.wait(900).json for environment, storm in storms.items()}
        return told

    def _jobs(self, node, told):
        jobs = {environment: self.begin(node, told.pair, environment, JOBS, "--jobs", told.job, "--salt", told.salt)
                for environment in PAIRS[told.pair]}
        return {environment: job.wait().json for environment, job in jobs.items()}

    def _storm(self, pair, environment, number):
        """Its processes are named after the environment."""
        nodes = [f"--node={environment}{node.name}={node.cache / pair / 'triton' / '0'}" for node in self.nodes]
        return self.begin(self.nodes[0], pair, environment, STORM, *nodes, "--processes", PROCESSES, "--rounds", 1, "--first", number,
                          "--scratch", self.cluster.directory / f"scratch-{pair}-{environment}-{number}")

    def look(self, node, pair, environment):
        """As a process of that environment, for what either environment has made on either node."""
        made = [path for one in self.nodes for shape in ("fxgraph/*/f*", "triton/0/*")
                for path in (one.store / "files" / "view" / pair).glob(f".inductorfs-environment-*/{shape}")]
        assert made, "the store keeps them elsewhere"
        directories = {os.path.join(*path.parts[-3:]) for path in made}
        return self.begin(node, pair, environment, LOOK, node.cache / pair, *sorted(directories)).wait().json


@pytest.fixture(scope="module")
def work():
    with Cluster(torch="2.15", patient=True) as cluster:
        made = Work(cluster)
        pairs = list(PAIRS) if SECONDS else ["variables"]
        made.rounds, begin = [], time.monotonic()
        while not made.rounds or time.monotonic() - begin < SECONDS:
            number = len(made.rounds)
            made.rounds.append(made.round(pairs[number % len(pairs)], number))
        for node in made.nodes:
            node.sync(120)
        yield made


def each(work):
    """(round, environment)"""
    return [(told, environment) for told in work.rounds for environment in PAIRS[told.pair]]


def test_each_compiles_for_itself(work):
    for told, environment in each(work):
        counters = told.first[environment]["counters"]
        assert counters.get("inductor.fxgraph_cache_miss") == GRAPHS[told.job], (told, environment)
        assert "inductor.fxgraph_cache_hit" not in counters, (told, environment)


def test_each_hits_its_own_on_the_other_node(work):
    for told, environment in each(work):
        counters = told.second[environment]["counters"]
        assert counters.get("inductor.fxgraph_cache_hit") == GRAPHS[told.job], (told, environment)
        assert not [name for name in counters if "miss" in name or "bypass" in name], (told, environment)


def test_results_are_equal_to_the_bit(work):
    for told, environment in each(work):
        assert told.second[environment]["results"] == told.first[environment]["results"], (told, environment)


def test_what_a_job_runs_is_code_of_its_own_environment(work):
    for told, environment in each(work):
        for out in (told.first[environment], told.second[environment]):
            assert out["torch"].startswith(PAIRS[told.pair][environment][0] + ".")
            assert (out["vectorized"] > 0) == (environment != "scalar"), (told, environment)


def test_no_storm_fails_or_loads_what_another_environment_has_made(work):
    for told, environment in each(work):
        out = told.storms[environment]
        assert (out["errors"], out["mixed"]) == ([], []), (told, environment)
        assert sum(map(len, out["keys"].values())) == KERNELS
        assert {writer[:len(environment)] for writer in out["writers"]} == {environment}, (told, environment)
        if environment == "scalar":
            assert out["kinds"] == ["cubin source"], out["kinds"]  # the source is never read from the cache
        else:
            assert all("ttir" in kinds for kinds in out["kinds"]), out["kinds"]
    for told in work.rounds:
        if told.pair == "variables":
            assert told.storms["vector"]["keys"] == told.storms["scalar"]["keys"], "else the storms did not meet"


def equal_to(pair, environment):
    """Those of both pairs that are the same environment, which share wherever they are: {(pair, environment)}."""
    return {(other, one) for other in PAIRS for one in PAIRS[other] if PAIRS[other][one] == PAIRS[pair][environment]}


def test_every_file_that_is_seen_fits(work):
    made = Counter()
    for told, environment in each(work):
        made[told.pair, environment] += GRAPHS[told.job]
    for (pair, environment), graphs in made.items():
        equal = equal_to(pair, environment)
        for node in work.nodes:
            found = work.look(node, pair, environment)
            assert graphs <= len(found["graphs"]) <= sum(made[one] for one in equal), (pair, environment, node.name, found)
            writers = {writer.rstrip("-0123456789")[:-1] for writer in found["writers"]}
            assert environment in writers and writers <= {one for _, one in equal}, (pair, environment, node.name, found)
            vector, scalar = (sum(counts) for counts in zip(*found["graphs"].values(), strict=True))
            assert (vector if environment == "scalar" else scalar) == 0, (pair, environment, node.name, found)
            assert ("ttir" in found["kinds"]) == (environment != "scalar"), (pair, environment, node.name, found)


def test_both_environments_are_told_of_and_nothing_is_private(work):
    for node in work.nodes:
        files = node.status()["file_system"]
        # The storm's processes have no torch: an environment each of their own. Root "" is that of torch's default directory.
        named = {(root["path"], root["environment"]) for root in files["first_roots"]
                 if root["path"] in PAIRS and "torch 2." in root.get("environment", "")}
        assert len(named) == 2 * len({told.pair for told in work.rounds}), files["first_roots"]
        told = [line for line in node.log.read_text().splitlines() if "seal.foreign" in line or "host.job_unknown" in line]
        assert files["foreign"] == 0, (told, files)
        assert told == []


def test_the_next_image_hits_within_its_first_compile(work):
    """A rolling update: a node runs a job of one image, whose last process ends; then one of the image that other nodes have used already."""
    node = work.cluster.node("c")
    (node.cache / "images").mkdir()
    old = work.begin(node, "images", "old", ONE_KERNEL).wait().json
    assert old["counters"].get("inductor.fxgraph_cache_miss") == 1, "nobody has compiled it"
    told = next(told for told in work.rounds if told.pair == "variables")
    new = work.begin(node, "images", "new", JOBS, "--jobs", told.job, "--salt", told.salt).wait().json
    assert new["counters"].get("inductor.fxgraph_cache_hit") == GRAPHS[told.job], new
    assert not [name for name in new["counters"] if "miss" in name], new
    assert new["results"] == told.first["vector"]["results"]
