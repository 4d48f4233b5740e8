# SPDX-License-Identifier: Apache-2.0
"""The cold compiles that all tests of this ring share: one process runs them all."""
import pytest

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
