# SPDX-License-Identifier: Apache-2.0
"""Real vLLM (engine.py) in two pods that share nothing but Redis: the second one compiles nothing, in each mode in which vLLM keeps its caches."""
import pytest

from serving_pods import LOADED, MODES, Outcome

# A directory that torch writes file by file cannot be told from a half of it, so it stays on its node. torch's caches hit.
UNPACKED_COMPILES = {"num_inductor_compiles": 3}


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


@pytest.mark.parametrize("mode", LOADED)
def test_the_second_pod_loads_all_and_compiles_nothing(cold, warm, mode):
    outcome = warm[mode]
    assert outcome.compiled == {}, report(outcome)
    assert outcome.loaded == LOADED[mode], report(outcome)
    assert outcome.told["tokens"] == cold[mode][0].told["tokens"]


def test_what_stays_on_its_node_is_made_from_torchs_caches(cold, warm):
    outcome = warm["unpacked"]
    assert outcome.compiled == UNPACKED_COMPILES, report(outcome)
    assert outcome.told["torch"]["inductor.fxgraph_cache_hit"] == 3, report(outcome)
    assert outcome.told["tokens"] == cold["unpacked"][0].told["tokens"]


def test_files_that_only_their_maker_may_read_are_the_readers(first, second, warm):
    """vLLM makes `model` and modelinfos by tempfile, with mode 0600, and each pod has another user."""
    mine, theirs = first.look()["seen"], second.look()["seen"]
    assert None not in theirs.values(), theirs
    for name in mine:
        if name.endswith("/model") or name.startswith("modelinfos/"):
            assert theirs[name] == mine[name] > 0, name


def test_a_restart_finds_what_the_pod_had(second, warm):
    outcome = second.run("mega")
    assert outcome.compiled == {} and outcome.loaded == LOADED["mega"], report(outcome)
