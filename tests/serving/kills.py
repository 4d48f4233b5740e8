# SPDX-License-Identifier: Apache-2.0
"""Kills the mount's worker, and an engine, in the middle of each write of vLLM's own files."""
from dataclasses import dataclass

from serving_pods import LOADED, Outcome, Pod

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


@dataclass
class Survival:
    """What was left when all were killed."""
    pod: Pod
    following: Outcome  # the next engine in the same pod
    elsewhere: Outcome  # and then one on another node


def survive(pod, other):
    """The worker is killed at each point but the last; there the engine is killed. Then the next engines. Runs on a thread of its own, so it makes
    no pod."""
    variables, points = named(1), POINTS[MODE]
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
    return Survival(pod, following, other.run(MODE, **variables))
