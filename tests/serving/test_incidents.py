# SPDX-License-Identifier: Apache-2.0
"""What users of vLLM have reported of shared caches, one test each: wrong reuse is a miss, and a needless miss a hit where the name allows it.

| reported | test |
|---|---|
| one name for two GPUs (club-3090#572), and for whatever else is in no key | test_what_is_in_no_key_parts_hosts |
| another hash in each pod, by VLLM_NIXL_SIDE_CHANNEL_HOST (dynamo#10695) | test_pods.py: each pod has another one |
| the same by VLLM_P2P_SIDE_CHANNEL_HOST, still in the name | test_the_variable_that_parts_two_pods_is_named |
| `model` of 0 bytes (vllm#35061) | test_an_empty_model_is_never_shown_and_its_repair_is, test_broken_files.py |
| engines that clobber one unpacked directory (vllm#24601) | test_pods.py: each node has its own |
| one key, another graph (vllm#53366, #50891, #55383) | test_an_operator_takes_one_hash_from_all_nodes |

Not here: kernels with get_raw_stream(0) (SkyRL#2183) need two GPUs; FlashInfer's mtimes (PR 3556) need its compiler."""
import json
import re

import pytest
from inductorfs_testing import places
from inductorfs_testing.processes import run, wait_until

from test_broken_files import ARTIFACT, INDEX, MODEL, name_of

# What engines take from each other; without Triton and torch's own, which other rings test.
ENGINES = re.compile(r"/rank_0_0/(model$|backbone/(vllm_compile_cache\.py|artifact_[^/]*)$)")
FACTORS = "torch_compile_cache/*/rank_0_0/backbone/cache_key_factors.json"
KINDS = ("model", "vllm_compile_cache.py")


def kinds(names):
    return {name.rsplit("/", 1)[1] for name in names} & set(KINDS)


def largest_model(pod):
    return max((path.read_bytes() for path in pod.files(MODEL.format("*")) if path.is_file()), key=len)


def facts(pods, facet=None, pattern="", replacement=""):
    """A file for --fingerprint: this host, but for one fact if it is given."""
    done = run([places.program(), "fingerprint", "--json", "--python", places.venv_python("vllm-0.32")], seconds=120)
    assert done.code == 0, done.err
    facets = json.loads(done.out)["facets"]
    if facet:
        value = re.sub(pattern, replacement, facets[facet]["value"], flags=re.MULTILINE)
        assert value != facets[facet]["value"], facets[facet]
        facets[facet].update(value=value, source="another host")
    path = pods.cluster.directory / f"{facet}.json"
    path.write_text(json.dumps({"facets": facets}))
    return path


OTHER_HOSTS = {"gpu": (r"\Anone\Z", "name=NVIDIA GeForce RTX 5090\ncapability=12.0"), "cuda": (r"^driver=none$", "driver=580.1"),
               "cpu-isa": (r"^avx512=yes$", "avx512=no")}
VARIABLES = {"TRITON_DEFAULT_FP_FUSION": "0", "ATEN_CPU_CAPABILITY": "avx2"}


def made_by_engines(pod):
    """The names of what engines have made that other nodes may have: indexes that name directories, and what they name, stay here."""
    names = {str(path.relative_to(pod.root)) for path in pod.files("torch_compile_cache/**/*") if path.is_file()}
    names = {name for name in names if ENGINES.search(name)}
    alone = {name for name in names if name.endswith(INDEX) and not (pod.root / name).with_name(ARTIFACT).is_file()}
    return names - alone


@pytest.fixture(scope="module")
def sights(pods, first, cold):
    """(names of what engines made in the first pod, {who looks: which of them such a process finds on another node}). All look at once, and ask for
    each name, so that no answer depends on how much of the cluster's index the node has read."""
    names = made_by_engines(first)
    equal = pods.pod("equal", "--fingerprint", facts(pods))
    jobs = {"equal": equal.begin_look(ask=names), "library": pods.pod("other-library", image="other library").begin_look(ask=names)}
    for facet, change in OTHER_HOSTS.items():
        jobs[facet] = pods.pod(f"other-{facet}", "--fingerprint", facts(pods, facet, *change)).begin_look(ask=names)
    for variable, value in VARIABLES.items():
        jobs[variable] = equal.begin_look(ask=names, **{variable: value})
    found = {}
    for who, job in jobs.items():
        told = job.wait(300).json
        found[who] = {name for name, there in told["asked"].items() if there} | (names & set(told["seen"]))
    return names, found


def test_equal_hosts_see_all(sights):
    """Else the tests below say nothing."""
    names, found = sights
    assert kinds(names) == set(KINDS)
    assert found["equal"] == names


@pytest.mark.parametrize("facet", OTHER_HOSTS)
def test_what_is_in_no_key_parts_hosts(sights, facet):
    assert sights[1][facet] == set()


@pytest.mark.parametrize("variable", VARIABLES)
def test_variables_in_no_key_part_jobs(sights, variable):
    assert sights[1][variable] == set()


def test_other_binaries_of_vllm_part_images(sights):
    assert sights[1]["library"] == set()


def is_json(path):
    try:
        return bool(json.loads(path.read_bytes()))
    except ValueError:
        return False


def test_the_variable_that_parts_two_pods_is_named(pods, first, cold):
    """vLLM 0.32 has its value in the name of all that it makes; cache_key_factors.json tells which value it was."""
    pod, variable = pods.pod("side-channel"), "VLLM_P2P_SIDE_CHANNEL_HOST"
    engine = pod.begin("mega", holds=["half:*/cache_key_factors.json"], **{variable: "203.0.113.7"})
    engine.held(0)
    theirs = {path.relative_to(first.root) for path in first.files(FACTORS)}
    [factors] = [path for path in pod.files(FACTORS) if path.relative_to(pod.root) not in theirs]
    engine.go(0)
    wait_until(lambda: is_json(factors), 60, "the whole file", pause=0.1)
    engine.kill()
    pod.node.sync(60)
    done = pod.node.cli("why-miss", pod.node.cache)
    assert variable in done.out, (done.out, done.err)


def test_an_empty_model_is_never_shown_and_its_repair_is(pods, first, cold, second):
    """As after a crash of the host: the name is there, with nothing in it. Another node may not keep that it was not."""
    name, content = MODEL.format(name_of("empty first", 64)), largest_model(first)
    first.look(place=[(name, b"", "model")])
    first.node.sync(60)
    assert name not in second.look(ask=[name])["seen"]
    first.look(place=[(name, content, "model")])
    first.node.sync(60)
    assert second.look()["seen"].get(name) == len(content)


def test_an_operator_takes_one_hash_from_all_nodes(pods, first, cold, second):
    wrong, right = (MODEL.format(name_of(which, 64)) for which in ("wrong graph", "right graph"))
    content = largest_model(first)
    first.look(place=[(wrong, content, "model"), (right, content, "model")])
    first.node.sync(60)
    assert {wrong, right} <= set(second.look()["seen"])
    done = second.node.cli("purge", second.node.cache, "--pattern", f"**/{wrong.split('/')[2]}/**", "--yes")
    assert done.code == 0, (done.out, done.err)
    names = set(second.look()["seen"])
    assert wrong not in names and right in names
