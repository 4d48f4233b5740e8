# SPDX-License-Identifier: Apache-2.0
"""Many engines, for the ring long (meson.build): eight at once, one after the other killed in the middle of each write, one whose image has other
binaries, and one that has nothing but a silent Redis. What each of the files beside this one tests with fewer."""
import pytest

from broken_files import MODEL
from kills import POINTS, loads_all, named
from serving_pods import LOADED, MODES, Pods


def test_unpacked_artifacts_stay_on_their_node_and_are_made_from_torchs_caches(cold, warm):
    """A directory that torch writes file by file cannot be told from a half of it."""
    outcome = warm["unpacked"]
    assert outcome.compiled == {"num_inductor_compiles": 3}, outcome.compiled
    assert outcome.told["torch"]["inductor.fxgraph_cache_hit"] == 3, outcome.told
    assert outcome.told["tokens"] == cold["unpacked"][0].told["tokens"]


def test_a_restart_finds_what_the_pod_had(second, warm):
    loads_all(second.run("mega"), "mega")


def test_eight_are_cold_at_once():
    with Pods() as pods:
        pair = [pods.pod(name) for name in "ab"]
        engines = [pod.begin(mode) for pod in pair for mode in MODES]
        told = [engine.good() for engine in engines]
        assert len({str(outcome.told["tokens"]) for outcome in told}) == 1
        for pod in pair:
            pod.node.sync(120)
        third = pods.pod("c")
        for mode in LOADED:
            loads_all(third.run(mode), mode)


@pytest.mark.parametrize("mode", POINTS)
def test_one_after_the_other_is_killed(pods, cold, mode):
    variables, pod = named(2 + list(POINTS).index(mode)), pods.pod(f"killed-{mode}")
    for point in POINTS[mode]:
        engine = pod.begin(mode, holds=[point], **variables)
        engine.held(0)
        engine.kill()
    last = pod.run(mode, **variables)
    assert last.told["tokens"] == cold[mode][0].told["tokens"]
    pod.node.sync(120)
    outcome = pods.pod(f"after-{mode}").run(mode, **variables)
    loads_all(outcome, mode)
    assert outcome.told["tokens"] == last.told["tokens"]


def test_other_binaries_of_vllm_compile_for_themselves(pods, cold):
    outcome = pods.pod("other-library-cold", image="other library").run("mega")
    assert outcome.compiled["num_aot_compiles"] == 1, outcome.compiled


def test_redis_is_silent_from_the_start(pods, cold):
    pod = pods.pod("silent")
    pods.cluster.redis.suspend()
    try:
        outcome = pod.run("index")
    finally:
        pods.cluster.redis.resume()
    assert outcome.told["tokens"] == cold["index"][0].told["tokens"]


def test_an_empty_model_is_repaired_by_the_engine_that_finds_it(pods, cold):
    variables, pod = named(9), pods.pod("empty")
    pod.run("mega", **variables)
    model = max(pod.files(MODEL.format("*")), key=lambda path: path.stat().st_mtime)  # the cluster has those of other hashes
    size = model.stat().st_size
    pod.look(place=[(str(model.relative_to(pod.root)), b"", "model")])
    assert model.stat().st_size == 0
    again = pod.run("mega", **variables)
    assert again.loaded[0] == 0 and again.told["vllm"]["num_aot_artifacts_saved"] == 1
    assert model.stat().st_size > size / 2
    pod.node.sync(120)
    loads_all(pods.pod("after-empty").run("mega", **variables), "mega")
