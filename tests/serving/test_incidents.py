# SPDX-License-Identifier: Apache-2.0
"""What users of vLLM have reported of shared caches, one test each: wrong reuse is a miss, and a needless miss a hit where the name allows it.

| reported | test |
|---|---|
| one name for two GPUs (club-3090#572), and for whatever else is in no key | test_what_is_in_no_key_parts_hosts |
| another hash in each pod, by VLLM_NIXL_SIDE_CHANNEL_HOST (dynamo#10695) | test_pods.py: each pod has another one |
| the same by VLLM_P2P_SIDE_CHANNEL_HOST, still in the name | test_kills.py: test_the_variable_that_parts_two_pods_is_named |
| `model` of 0 bytes (vllm#35061) | test_an_empty_model_is_never_shown, test_its_repair_is, test_broken_files.py |
| engines that clobber one unpacked directory (vllm#24601) | test_pods.py: each node has its own |
| one key, another graph (vllm#53366, #50891, #55383) | test_an_operator_takes_one_hash_from_all_nodes |

Not here: kernels with get_raw_stream(0) (SkyRL#2183) need two GPUs; FlashInfer's mtimes (PR 3556) need its compiler."""
import functools
import json
import re

import pytest
from inductorfs_testing import places
from inductorfs_testing.processes import run

from broken_files import ARTIFACT, INDEX

# What engines take from each other; without Triton and torch's own, which other rings test.
ENGINES = re.compile(r"/rank_0_0/(model$|backbone/(vllm_compile_cache\.py|artifact_[^/]*)$)")
KINDS = ("model", "vllm_compile_cache.py")


def kinds(names):
    return {name.rsplit("/", 1)[1] for name in names} & set(KINDS)


@functools.cache
def facts_of_this_host():
    done = run([places.program(), "fingerprint", "--json", "--python", places.venv_python("vllm-0.32")], seconds=120)
    assert done.code == 0, done.err
    return done.out


def facts(pods, facet=None, pattern="", replacement=""):
    """A file for --fingerprint: this host, but for one fact if it is given."""
    facets = json.loads(facts_of_this_host())["facets"]
    if facet:
        value = re.sub(pattern, replacement, facets[facet]["value"], flags=re.MULTILINE)
        assert value != facets[facet]["value"], facets[facet]
        facets[facet].update(value=value, source="another host")
    path = pods.cluster.directory / f"{facet}.json"
    path.write_text(json.dumps({"facets": facets}))
    return path


OTHER_HOSTS = {"gpu": (r"\Anone\Z", "name=NVIDIA GeForce RTX 5090\ncapability=12.0"), "cuda": (r"^driver=none$", "driver=580.1"),
               "cpu-isa": (r"^avx512=(yes|no)$", lambda found: "avx512=no" if found[1] == "yes" else "avx512=yes")}
# Of other hardware, and for all else as a mount that is told of nothing.
TOLD = ("--writers", "learned", "--fingerprint")
VARIABLES = {"TRITON_DEFAULT_FP_FUSION": "0", "ATEN_CPU_CAPABILITY": "default"}


def made_by_engines(pod):
    """The names of what engines have made that other nodes may have: indexes that name directories, and what they name, stay here."""
    names = {str(path.relative_to(pod.root)) for path in pod.files("torch_compile_cache/**/*") if path.is_file()}
    names = {name for name in names if ENGINES.search(name)}
    alone = {name for name in names if name.endswith(INDEX) and not (pod.root / name).with_name(ARTIFACT).is_file()}
    return names - alone


@pytest.fixture(scope="module")
def sights(pods, first, cold, kills):
    """(names of what engines made in the first pod, {who looks: which of them such a process finds on another node}). All look at once, and ask for
    each name, so that no answer depends on how much of the cluster's index the node has read. Jobs with variables are those of a mount that is told
    of nothing: one that is told of facts has one environment, and looks at no reader (docs/semantics/environments.md), but for TOLD."""
    names = made_by_engines(first)
    usual = pods.pod("equal")
    jobs = {"equal": usual.begin_look(ask=names), "equal, told": pods.pod("equal-told", *TOLD, facts(pods)).begin_look(ask=names),
            "library": pods.pod("other-library", image="other library").begin_look(ask=names)}
    for facet, change in OTHER_HOSTS.items():
        jobs[facet] = pods.pod(f"other-{facet}", *TOLD, facts(pods, facet, *change)).begin_look(ask=names)
    for variable, value in VARIABLES.items():
        jobs[variable] = usual.begin_look(ask=names, **{variable: value})
    found = {}
    for who, job in jobs.items():
        told = job.wait(300).json
        found[who] = {name for name, there in told["asked"].items() if there} | (names & set(told["seen"]))
    return names, found


@pytest.mark.parametrize("who", ["equal", "equal, told"])
def test_equal_hosts_see_all(sights, who):
    """Else the tests below say nothing."""
    names, found = sights
    assert kinds(names) == set(KINDS)
    assert found[who] == names


@pytest.mark.parametrize("facet", OTHER_HOSTS)
def test_what_is_in_no_key_parts_hosts(sights, facet):
    assert sights[1][facet] == set()


@pytest.mark.parametrize("variable", VARIABLES)
def test_variables_in_no_key_part_jobs(sights, variable):
    assert sights[1][variable] == set()


def test_other_binaries_of_vllm_part_images(sights):
    assert sights[1]["library"] == set()


def test_an_empty_model_is_never_shown(sight):
    """As after a crash of the host: the name is there, with nothing in it."""
    orders, asked, listed = sight
    assert asked[orders.only("empty first")] is None and orders.only("empty first") not in listed


def test_its_repair_is(repaired):
    """Another node may not keep that it was not there."""
    orders, seen = repaired
    assert seen.get(orders.only("empty first")) == len(orders.models[-1])


def test_an_operator_takes_one_hash_from_all_nodes(sight, repaired):
    orders, _, listed = sight
    wrong, right = orders.only("wrong graph"), orders.only("right graph")
    assert {wrong, right} <= listed
    _, seen = repaired
    assert wrong not in seen and right in seen
