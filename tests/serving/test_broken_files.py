# SPDX-License-Identifier: Apache-2.0
"""Files of vLLM that are not whole, or not where vLLM has them today, are never shown on another node; those that are whole are, or this file
would say nothing. They are made from what real vLLM wrote (conftest.py: cold). The engines of test_pods.py start beside them."""
import re
import subprocess

import pytest

from broken_files import BROKEN
from serving_pods import LONG, ROOT


def test_whole_ones_are_shown(sight):
    orders, asked, listed = sight
    sizes = {path: len(content) for path, content, _ in orders.all if path in orders.by_kind["whole"]}
    assert {path: asked[path] for path in sizes} == sizes
    assert set(sizes) <= listed


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_ones_are_neither_found_nor_listed(sight, kind):
    """An artifact that is shown without its index is one that no engine asks for."""
    orders, asked, listed = sight
    paths = {path for path in orders.by_kind[kind] if "/artifact_" not in path}
    assert {path for path in paths if asked[path] is not None} == set()
    assert paths & listed == set()


def test_an_engine_dies_of_a_root_that_is_read_only(pods, first, cold):
    """vLLM's behaviour, not the mount's: it writes to its cache's root without asking. Therefore a mount is never read-only for a job."""
    frozen = pods.cluster.directory / "frozen"
    frozen.mkdir()
    subprocess.run(["mount", "--bind", first.node.cache / ROOT, frozen], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", frozen], check=True)
        pod = pods.pod("read-only", like=first, binds={frozen: "/frozen"})
        pod.variables["VLLM_CACHE_ROOT"] = "/frozen/vllm"
        told = {mode: pod.begin(mode).wait() for mode in (("mega", "index") if LONG else ("mega",))}
    finally:
        subprocess.run(["umount", "-l", frozen], check=True)
    for mode, outcome in told.items():
        assert outcome.code != 0 and re.search("Read-only file system|Failed to reload cache entry from disk", outcome.log), (mode, outcome.log)
