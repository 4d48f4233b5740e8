# SPDX-License-Identifier: Apache-2.0
"""The mount's worker, or the engine, is killed (kill -9) in the middle of each write of vLLM's own files. The engine goes on, or the next one
starts, and another node is shown nothing that is half."""
import pytest

from serving_pods import LOADED

# In the order in which vLLM makes them. The other side of each pair: mega has no artifacts, and artifacts no model.
FACTORS, GRAPH, INDEX = (f"half:*/rank_0_0/backbone/{name}" for name in ("cache_key_factors.json", "computation_graph.py", "vllm_compile_cache.py"))
ARTIFACTS = [f"rename:*/rank_0_0/backbone/artifact_compile_range_1_128_subgraph_{number}" for number in (0, 2)]
MODEL = ["rename:*/rank_0_0/model.*.tmp", "rename:*/rank_0_0/model"]
POINTS = {"mega": [FACTORS, GRAPH, *MODEL], "index": [FACTORS, *ARTIFACTS, INDEX, GRAPH, *MODEL], "artifacts": [FACTORS, *ARTIFACTS, INDEX, GRAPH]}
MODE = "index"  # has them all


def named(number):
    """Another name for all that the engine makes, so that nothing of it is there."""
    return {"VLLM_P2P_SIDE_CHANNEL_HOST": f"198.51.100.{number}"}


def loads_all(outcome, mode):
    assert outcome.compiled == {} and outcome.loaded == LOADED[mode], (outcome.compiled, outcome.loaded, outcome.log[-2000:])


@pytest.fixture(scope="module")
def survived(pods, cold):
    """The worker is killed at each point but the last; there the engine is killed. Then the next one."""
    pod, variables, points = pods.pod("killed", "--crash-limit", "0"), named(1), POINTS[MODE]
    engine = pod.begin(MODE, holds=points, **variables)
    for number in range(len(points)):
        engine.held(number)
        if number + 1 < len(points):
            before = pod.node.kill_worker()
            pod.node.next_worker(before)
            engine.go(number)
    engine.kill()
    following = pod.run(MODE, **variables)
    pod.node.sync(120)
    return pod, variables, following


def test_the_next_engine_starts(survived, cold):
    _, _, following = survived
    assert following.told["tokens"] == cold[MODE][0].told["tokens"]
    assert following.loaded[0] == 0, "the model was not there yet, or the test says nothing"


def test_another_node_has_all_of_it_or_nothing(pods, survived, cold):
    _, variables, _ = survived
    outcome = pods.pod("after").run(MODE, **variables)
    assert outcome.loaded[0] == 1 and outcome.loaded[1] in (0, 3), (outcome.loaded, outcome.log[-2000:])
    assert outcome.told["tokens"] == cold[MODE][0].told["tokens"]
