# SPDX-License-Identifier: Apache-2.0
"""The cold compiles that all tests of this ring share: one process runs them all."""
from concurrent.futures import ThreadPoolExecutor

import pytest

from broken_files import BROKEN, REPORTED, Orders
from kills import survive
from serving_pods import IMAGES, MODES, Pods

# Each pod of a deployment has another one (VLLM_NIXL_SIDE_CHANNEL_HOST); vLLM 0.32 has it in none of its names.
HOSTS = {"first": {"VLLM_NIXL_SIDE_CHANNEL_HOST": "192.0.2.1"}, "second": {"VLLM_NIXL_SIDE_CHANNEL_HOST": "192.0.2.2"}}


@pytest.fixture(scope="session")
def pods():
    with Pods(IMAGES) as made:
        yield made


@pytest.fixture(scope="session")
def first(pods):
    return pods.pod("first")


@pytest.fixture(scope="session")
def cold(pods, first):
    """{mode: [Outcome]} of the engines of one pod, all at once in one root; the usual mode twice. What they made is published."""
    engines = {mode: [first.begin(mode, **HOSTS["first"]) for _ in range(1 + (mode == "mega"))] for mode in MODES}
    told = {mode: [engine.wait() for engine in started] for mode, started in engines.items()}
    first.node.sync(120)
    pods.hand_on_headers(first)
    return told


@pytest.fixture(scope="session")
def second(pods, cold):
    return pods.pod("second")


@pytest.fixture(scope="session")
def warm(second):
    """{mode: Outcome} of the engines of a pod on another node, all at once."""
    second.node.compilers.clear()
    engines = {mode: second.begin(mode, **HOSTS["second"]) for mode in MODES}
    return {mode: engine.good() for mode, engine in engines.items()}


@pytest.fixture(scope="session")
def kills(pods, cold):
    """What test_kills.py looks at, begun as early as it can: an engine that is held and killed leaves a processor to the tests of the other files."""
    pod, other = pods.pod("killed", "--crash-limit", "0"), pods.pod("after")
    with ThreadPoolExecutor(1) as beside:
        yield beside.submit(survive, pod, other)


@pytest.fixture(scope="session")
def survived(kills):
    return kills.result()


@pytest.fixture(scope="session")
def sight(first, cold, second):
    """What a process on the other node sees of broken files, and of whole ones: (Orders, {path: its size, or None}, the paths that it lists)."""
    orders = Orders(first)
    orders.whole()
    orders.broken()
    orders.reported()
    first.look(place=orders.all)
    first.node.sync(120)
    second.look()  # the node takes up what is published for such a process
    told = second.look(ask={path for path, _, _ in orders.all})
    assert set(orders.by_kind) == {"whole", *BROKEN, *REPORTED}
    return orders, {path: told["seen"].get(path) if there else None for path, there in told["asked"].items()}, set(told["seen"])


@pytest.fixture(scope="session")
def repaired(first, second, sight):
    """(Orders, {path: size} that a process on the other node sees) when the empty model is whole and an operator has taken the wrong one away."""
    orders, _, _ = sight
    first.look(place=[(orders.only("empty first"), orders.models[-1], "model")])
    first.node.sync(60)
    done = second.node.cli("purge", second.node.cache, "--pattern", f"**/{orders.only('wrong graph').split('/')[2]}/**", "--yes")
    assert done.code == 0, (done.out, done.err)
    return orders, second.look()["seen"]
