# SPDX-License-Identifier: Apache-2.0
"""Real vLLM (engine.py) in two pods that share nothing but Redis: the second one compiles nothing, in each mode in which vLLM keeps its caches."""
import json

import pytest

from serving_pods import LOADED, MODES, Outcome

def report(outcome: Outcome):
    return f"{outcome.told.get('vllm')}\n{outcome.told.get('torch')}\n{outcome.made}\n{outcome.log[-3000:]}"


@pytest.mark.parametrize("mode", MODES)
def test_engines_that_are_cold_at_once_in_one_root_all_answer(cold, mode):
    for outcome in cold[mode]:
        assert outcome.code == 0, outcome.log
    assert len({str(outcome.told["tokens"]) for outcomes in cold.values() for outcome in outcomes}) == 1


@pytest.mark.parametrize("mode", MODES)
def test_the_first_pod_compiles(cold, mode):
    """Else the other tests of this file say nothing."""
    assert cold[mode][0].compiled["num_inductor_compiles"] == 3, report(cold[mode][0])


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode in LOADED])
def test_the_second_pod_loads_all_and_compiles_nothing(cold, warm, mode):
    """As another user, who would not be let to a file of mode 0600: vLLM makes `model` and modelinfos by tempfile."""
    outcome = warm[mode]
    assert outcome.compiled == {}, report(outcome)
    assert outcome.loaded == LOADED[mode], report(outcome)
    assert outcome.told["tokens"] == cold[mode][0].told["tokens"]


def test_the_time_that_it_did_not_compile_is_told(cold, second, warm):
    """As torch wrote it into the graphs of `model` and of the artifacts."""
    stats = json.loads(second.node.cli("stats", second.node.cache, "--json").out)
    assert 0 < stats["saved_s"] < sum(outcome.seconds for outcomes in cold.values() for outcome in outcomes), stats
