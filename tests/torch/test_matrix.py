# SPDX-License-Identifier: Apache-2.0
"""Images x places x users on two nodes whose mounts were told of nothing, with the variables that `inductorfs env` prints for each user: who hits what another node has compiled, who
must not, and nobody fails.

Images: torch 2.15 twice, of equal content at two paths, torch 2.9, and torch 2.15 with a changed module. Places: the host; a container with
a root, processes, mounts, a host name and users of its own, which sees the mount at another path. Users: root, whose directory is the mountpoint,
and two others, each with a directory of his own below it; and all three in one of root's. INDUCTORFS_MATRIX_CELLS=all runs every cell, else about one for each row and column
runs. INDUCTORFS_MATRIX names a file for the table."""
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from inductorfs_testing import documented, places
from inductorfs_testing.fixtures import Cluster, lack
from inductorfs_testing.images import IMAGES, Images
from inductorfs_testing.processes import Failed, Job
from inductorfs_testing.rooted_container import RootedContainer

HOST, CONTAINER = PLACES = ("host", "container")
# {user: his number in the container}
USERS = {0: RootedContainer.USER, 1000: 0, 1001: 1001}
HIT, MISS = "hit", "miss"
JOB = {"TORCHINDUCTOR_COMPILE_THREADS": "2"}
SHARED = "shared"


@dataclass(frozen=True)
class Step:
    """A job, and whether it must find its graph and its Triton kernel. Before it both nodes have published what they have."""
    node: str
    image: str
    place: str
    user: int
    graph: str = HIT
    kernel: str = HIT
    shared: bool = False
    number: int = 0  # of the graph

    @property
    def id(self):
        root = SHARED if self.shared else "own"
        return f"{self.node}-{self.image}-{self.place}-{self.user}-{root}-{self.number}-{self.graph}-{self.kernel}".replace(" ", "-")


@dataclass
class Outcome:
    """What a step's job has told; an error where it failed."""
    graph: str = ""
    kernel: str = ""
    digests: tuple = ()
    built: int = 0  # C++ compiles
    seconds: float = 0
    error: str = ""
    why: str = field(default="", repr=False)  # what the node says of itself, where it was not as it must be


# Root first: what it has must be no hit for the users who follow. With the same Triton the changed torch takes the other's kernels.
COLD = [Step(node, image, place, user, MISS, HIT if image == "2.15 patched" else MISS)
        for user, node, place in ((0, "a", HOST), (1000, "a", CONTAINER), (1001, "b", HOST)) for image in ("2.15", "2.9", "2.15 patched")]
WARM = [Step("a" if user == 1001 else "b", image, place, user) for image in IMAGES for place in PLACES for user in USERS]
# In one directory of root's, where all may write: a graph that nobody has in a directory of his own. The kernel is shared by all of root's.
TOGETHER = [Step("a", "2.15", HOST, 1000, MISS, HIT, True, 1), Step("b", "2.15 again", CONTAINER, 1001, HIT, HIT, True, 1),
            Step("b", "2.15 patched", HOST, 0, MISS, HIT, True, 1), Step("b", "2.9", CONTAINER, 1000, MISS, HIT, True, 1),
            Step("a", "2.9", HOST, 1001, HIT, HIT, True, 1), Step("a", "2.15 patched", CONTAINER, 1000, HIT, HIT, True, 1)]
SHORT = [Step("a", "2.15", HOST, 0, MISS, MISS), Step("a", "2.9", HOST, 1000, MISS, MISS),
         # The first image ends, and the second begins in the same directory.
         Step("b", "2.15 patched", HOST, 0, MISS, HIT), Step("b", "2.15 again", CONTAINER, 0), Step("b", "2.9", CONTAINER, 1000),
         Step("b", "2.15", HOST, 1001, MISS, MISS), Step("a", "2.15 patched", CONTAINER, 0), Step("a", "2.15 again", HOST, 1001)]
ALL = os.environ.get("INDUCTORFS_MATRIX_CELLS") == "all"
STEPS = COLD + WARM + TOGETHER if ALL else SHORT


class World:
    """Two mounts of root on one Redis, and a container on each. Use as a context."""

    def __init__(self):
        self._images, self._cluster = Images(), Cluster(torch="2.15", patient=True)
        self._containers, self._variables, self._jobs = {}, {}, 0

    def __enter__(self):
        self._images.__enter__()
        try:
            self._cluster.start()
            self._cluster.directory.chmod(0o755)
            (self._cluster.directory / "bin").mkdir()
            places.copy_programs(self._cluster.directory / "bin")
            self.nodes = {name: self._node(name) for name in "ab"}
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for container in self._containers.values():
            container.close()
        self._cluster.close()
        self._images.__exit__()

    def _node(self, name):
        node = self._cluster.node(name, start=False)
        node.root.chmod(0o755)
        (node.root / "compilers.log").chmod(0o666)
        node.cache.chmod(0o1777)
        shutil.copytree(places.WORKLOADS, node.root / "workloads")
        node.start()
        for user in USERS:
            self._directory(node.root / f"home-{user}", user, 0o700)
        self._directory(node.cache / SHARED, 0, 0o1777)
        return node

    @staticmethod
    def _directory(path, user, mode):
        path.mkdir()
        path.chmod(mode)
        os.chown(path, user, user)

    def run(self, step):
        for node in self.nodes.values():
            node.sync()
        node = self.nodes[step.node]
        node.compilers.clear()
        outcome = Outcome()
        try:
            told = self._begin(node, step).wait(300).json
        except Failed as failed:
            outcome.error = str(failed)
        else:
            counters = told["counters"]
            graphs = [counters.get(f"inductor.fxgraph_cache_{kind}", 0) for kind in ("hit", "miss")]
            outcome.graph = {(1, 0): HIT, (0, 1): MISS}.get(tuple(graphs), str(counters))
            outcome.kernel = MISS if told["stages"] else HIT
            outcome.digests = (told["digest"], told["cubin"])
            outcome.seconds = told["seconds"]
        outcome.built = sum(count for kind, count in node.compilers.counts().items() if kind in ("compile", "link"))
        if outcome.error or (outcome.graph, outcome.kernel) != (step.graph, step.kernel):
            files = node.status()["file_system"]
            outcome.why = "\n".join([*map(str, files["first_roots"]), node.log_tail(40)])
        return outcome

    def _begin(self, node, step):
        self._jobs += 1
        name = f"{self._jobs:02}-{step.id}"
        command = [self._images.python(step.image), node.root / "workloads" / "matrix_job.py", "--graph", step.number]
        if step.place == CONTAINER:
            env = self._env(node, step, RootedContainer.AT, HOME="/scratch", USER=f"someone{step.user}")
            job = self._container(node).begin(command, env, node.root / "jobs", name, user=USERS[step.user])
        else:
            env = self._env(node, step, node.cache, **self._home(node, step.user))
            job = Job([*become(step.user), *command], env, node.root / "jobs", name)
        node._jobs.append(job)
        return job

    @staticmethod
    def _home(node, user):
        home = node.root / f"home-{user}"
        return {"HOME": str(home), "TMPDIR": str(home), "USER": f"user{user}" if user else "root"}

    def _env(self, node, step, at, **more):
        """Of a job that sees the mount at this path."""
        variables = documented.at(self._documented(node, step.user), node.cache, at)
        if step.shared:
            variables.update(TORCHINDUCTOR_CACHE_DIR=at / SHARED, TRITON_CACHE_DIR=at / SHARED / "triton" / "0")
        return node.env(**{**variables, **JOB, **self._images.variables, **more})

    def _documented(self, node, user):
        if (node.name, user) not in self._variables:
            self._variables[node.name, user] = documented.variables(node.cache, {**node.plain_env(), **self._home(node, user)}, become(user),
                                                                    self._cluster.directory / "bin")
        return self._variables[node.name, user]

    def _container(self, node):
        if node.name not in self._containers:
            self._containers[node.name] = RootedContainer(node.cache, users={there: here for here, there in USERS.items() if here})
        return self._containers[node.name]


def become(user):
    """A command that runs another one as this user."""
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []


@pytest.fixture(scope="module")
def outcomes():
    if os.geteuid() != 0:
        lack("jobs of several users, containers and overlays: root only")
    with World() as world:
        yield {step: world.run(step) for step in STEPS}


def report(step, outcome):
    return f"{step}\n{outcome}\n{outcome.why}"


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.id)
def test_a_job_hits_what_fits_and_nothing_else(outcomes, step):
    outcome = outcomes[step]
    assert not outcome.error, report(step, outcome)
    assert (outcome.graph, outcome.kernel) == (step.graph, step.kernel), report(step, outcome)


def test_results_are_equal_byte_for_byte(outcomes):
    """Of equal images; and the changed one computes something else, so that its code in another's place would be seen."""
    found = {}
    for step, outcome in outcomes.items():
        if not outcome.error:
            key = step.image.replace(" again", ""), step.number
            found.setdefault(key, set()).add(outcome.digests[0])
    assert {key: len(digests) for key, digests in found.items()} == dict.fromkeys(found, 1)
    for (image, number), digests in found.items():
        if image == "2.15 patched" and ("2.15", number) in found:
            assert digests.isdisjoint(found["2.15", number]), number


def test_kernels_that_were_hits_are_equal_byte_for_byte(outcomes):
    made = {(step.user, step.image.split()[0]): outcome.digests[1] for step, outcome in outcomes.items() if outcome.kernel == MISS}
    for step, outcome in outcomes.items():
        if outcome.kernel == HIT and not step.shared:
            assert outcome.digests[1] == made[step.user, step.image.split()[0]], step


def test_the_host_takes_the_libraries_that_the_host_of_an_equal_image_has_made(outcomes):
    for step, outcome in outcomes.items():
        if step in WARM and step.image != "2.15 again" and (step.user, step.place) in ((0, HOST), (1001, HOST)):
            assert outcome.built == 0, report(step, outcome)


def table(outcomes):
    """A line for each image and place, a column for each user, for each kind of steps."""
    def cell(step):
        outcome = outcomes[step]
        if outcome.error:
            return "**failed**"
        kernel = "" if outcome.kernel == outcome.graph else f" (Triton: {outcome.kernel})"
        text = f"{outcome.graph}{kernel}, C++ {'built' if outcome.built else 'taken'}, {outcome.seconds:.1f} s"
        return text if (outcome.graph, outcome.kernel) == (step.graph, step.kernel) else f"**{text}**"

    lines = ["| node, image, place | root | uid 1000 | uid 1001 |", "|---|---|---|---|"]
    rows = {}
    for step in outcomes:
        kind = "one root" if step.shared else "first" if MISS in (step.graph, step.kernel) else "second"
        rows.setdefault((kind, step.image, step.place), {}).setdefault(step.user, []).append(f"{step.node}: {cell(step)}")
    for (kind, image, place), users in rows.items():
        lines.append(f"| {kind}, {image}, {place} | " + " | ".join("; ".join(users.get(user, ["-"])) for user in USERS) + " |")
    return "\n".join(lines)


def test_the_table(outcomes, capsys):
    text = table(outcomes)
    with capsys.disabled():
        print("\n" + text)
    if file := os.environ.get("INDUCTORFS_MATRIX"):
        Path(file).write_text(text + "\n")
    assert not re.findall(r"\*\*.*?\*\*", text)
