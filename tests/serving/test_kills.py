# SPDX-License-Identifier: Apache-2.0
"""The mount's worker, or the engine, is killed (kill -9) in the middle of each write of vLLM's own files (kills.py). The engine goes on, or the next
one starts, and another node is shown nothing that is half."""
from kills import MODE


def test_the_next_engine_starts(survived, cold):
    assert survived.following.told["tokens"] == cold[MODE][0].told["tokens"]
    assert survived.following.loaded[0] == 0, "the model was not there yet, or the test says nothing"


def test_another_node_has_all_of_it_or_nothing(survived, cold):
    outcome = survived.elsewhere
    assert outcome.loaded[0] == 1 and outcome.loaded[1] in (0, 3), (outcome.loaded, outcome.log[-2000:])
    assert outcome.told["tokens"] == cold[MODE][0].told["tokens"]


def test_the_variable_that_parts_two_pods_is_named(survived):
    """vLLM 0.32 has its value in the name of all that it makes; cache_key_factors.json, one of which was half there, tells which value it was."""
    done = survived.pod.node.cli("why-miss", survived.pod.node.cache)
    assert "VLLM_P2P_SIDE_CHANNEL_HOST" in done.out, (done.out, done.err)
