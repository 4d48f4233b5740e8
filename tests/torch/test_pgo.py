# SPDX-License-Identifier: Apache-2.0
"""What a run of a named job learned of its sizes (torch/_dynamo/pgo.py) is there for its next run, on whichever node."""
import os

import pytest
from inductorfs_testing import places
from inductorfs_testing.fixtures import Cluster

PGO = places.WORKLOADS / "pgo.py"
ROWS = ("4,3", "5,3", "6,3")
COLUMNS = ("4,3", "4,5", "4,6")
JOB = {"TORCH_COMPILE_JOB_ID": "train"}
STATE = "dynamo/code_state_train_None_.pkl"


@pytest.fixture(scope="module", params=["2.15", "2.9"])
def nodes(request):
    with Cluster(torch=request.param, patient=True, declared=request.param == "2.9") as cluster:
        a, b = cluster.node("a"), cluster.node("b")
        learned = a.run(PGO, *ROWS, **JOB).json
        assert learned["compiled"] == 2, "for the first size, then for any: else this file says nothing"
        a.sync()
        b.catch_up(a)
        yield {"cluster": cluster, "a": a, "b": b, "learned": learned}


def test_the_next_run_on_another_node_compiles_once(nodes):
    assert nodes["b"].run(PGO, *ROWS, **JOB).json == {"compiled": 1, "results": nodes["learned"]["results"]}


def test_another_job_learns_for_itself(nodes):
    assert nodes["b"].run(PGO, *ROWS, TORCH_COMPILE_JOB_ID="other").json["compiled"] == 2


def test_a_job_without_a_name_leaves_nothing(nodes):
    before = sorted(os.listdir(nodes["b"].cache / "dynamo"))
    assert nodes["b"].run(PGO, *ROWS).json["compiled"] == 2
    assert sorted(os.listdir(nodes["b"].cache / "dynamo")) == before


def test_the_latest_state_counts_for_a_new_node(nodes):
    """What node b adds to the state that node a made."""
    b = nodes["b"]
    assert b.run(PGO, *COLUMNS, **JOB).json["compiled"] == 2
    b.sync()
    c = nodes["cluster"].node("c")
    c.catch_up(b)
    if c.declared:  # else it shows nothing before its first job
        assert (c.cache / STATE).read_bytes() == (b.cache / STATE).read_bytes()
    assert c.run(PGO, *COLUMNS, **JOB).json["compiled"] == 1
