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

from test_broken_files import MODEL, name_of

# What engines take from each other; without Triton and torch's own, which other rings test.
ENGINES = re.compile(r"/rank_0_0/(model$|backbone/(vllm_compile_cache\.py|artifact_[^/]*)$)")
KINDS = ("model", "vllm_compile_cache.py")


def seen(pod, **environment):
    """vLLM's own files that a process of the pod is shown, without those of unpacked artifacts."""
    return {name for name in pod.look(**environment)["seen"] if ENGINES.search(name)}


def kinds(names):
    return {name.rsplit("/", 1)[1] for name in names} & set(KINDS)


@pytest.fixture(scope="module")
def usual(second, cold):
    """The control: what fits is shown."""
    names = seen(second)
    assert kinds(names) == set(KINDS), names
    return names


def largest_model(pod):
    return max((path.read_bytes() for path in pod.files(MODEL.format("*"))), key=len)


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


@pytest.mark.parametrize("facet", OTHER_HOSTS)
def test_what_is_in_no_key_parts_hosts(pods, usual, facet):
    pod = pods.pod(f"other-{facet}", "--fingerprint", facts(pods, facet, *OTHER_HOSTS[facet]))
    assert seen(pod) == set()


def test_equal_facts_from_a_file_part_nobody(pods, usual):
    """Else the test before says nothing."""
    pod = pods.pod("equal", "--fingerprint", facts(pods))
    assert seen(pod) == usual


@pytest.mark.parametrize("variables", [{"TRITON_DEFAULT_FP_FUSION": "0"}, {"ATEN_CPU_CAPABILITY": "avx2"}], ids=lambda one: next(iter(one)))
def test_variables_in_no_key_part_jobs(second, usual, variables):
    assert seen(second, **variables) == set()


def test_other_binaries_of_vllm_part_images(pods, usual):
    pod = pods.pod("other-library", image="other library")
    assert seen(pod) == set()


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
    [factors] = pod.files("torch_compile_cache/*/rank_0_0/backbone/cache_key_factors.json")
    engine.go(0)
    wait_until(lambda: is_json(factors), 60, "the whole file", pause=0.1)
    engine.kill()
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
