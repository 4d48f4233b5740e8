# SPDX-License-Identifier: Apache-2.0
"""`inductorfs doctor` on real mounts with seeded faults: each is found, with its remedy."""
import json

from inductorfs_testing import artefacts, places
from inductorfs_testing.processes import run, wait_until

PROGRAM = places.program()


def ask(node, **variables):
    """(exit code, {kind: [what -> remedy]})"""
    done = run([PROGRAM, "doctor", node.cache, "--json"], {**node.env(), **variables}, 30)
    found = {}
    for one in json.loads(done.out):
        found.setdefault(one["kind"], []).append(f"{one['what']} -> {one['remedy']}")
    return done.code, found


def has(lines, *parts):
    return any(all(part in line for part in parts) for line in lines)


def test_a_mount_with_which_all_is_well_has_nothing_bad(cluster):
    node = cluster.node("a", options=("--writers", "all"))
    code, found = ask(node, TORCHINDUCTOR_CACHE_DIR=str(node.cache / "team"))
    assert code == 0 and "BAD" not in found, found
    assert has(found["ok"], "/dev/fuse") and has(found["ok"], f"{node.cache} answers") and has(found["ok"], "redis.sock answers, Redis")
    assert has(found["ok"], f"lies in {node.cache}") and has(found["ok"], "lies on a local disk")
    text = node.cli("doctor", node.cache).out
    assert text.startswith("ok       /dev/fuse can be opened\n") and text.splitlines()[-1].startswith("0 bad, "), text


def test_caches_that_lie_elsewhere_are_found(cluster, tmp_path):
    node = cluster.node("a", options=("--writers", "all"))
    code, found = ask(node, TORCHINDUCTOR_CACHE_DIR=str(tmp_path), TRITON_CACHE_DIR=str(tmp_path), TORCHINDUCTOR_FORCE_DISABLE_CACHES="1")
    assert code == 1
    assert has(found["BAD"], f"TORCHINDUCTOR_CACHE_DIR={tmp_path} lies in no mount", f"inductorfs env {node.cache}")
    assert has(found["BAD"], "TRITON_CACHE_DIR", "unset it") and has(found["BAD"], "TORCHINDUCTOR_FORCE_DISABLE_CACHES", "unset it")


def test_a_server_that_is_away_is_found(cluster):
    node = cluster.node("a", options=("--writers", "all"))
    cluster.redis.kill()
    artefacts.write_graph(node.cache, "key", "value")  # somebody has to ask the server
    wait_until(lambda: not node.status()["remote"]["reachable"], 30, "the mount has noticed")
    code, found = ask(node)
    assert code == 1 and has(found["BAD"], "redis.sock is not reachable", "check host, port, password"), found


def test_a_mount_that_shares_nothing_is_found(cluster, place):
    place.start(*cluster.options("--writers", "matching"), "--store-limit", "64M")
    artefacts.write_graph(place.cache, "key", "value")  # by a program without torch
    place.sync()
    code, found = ask(place)
    assert code == 0, found
    assert has(found["warning"], "artefacts stay on this host: ", "inductorfs status"), found
    assert has(found["warning"], "its store holds 64.0 MiB", "--store-limit")


def test_a_mount_without_a_daemon_is_found(cluster):
    node = cluster.node("a", options=("--writers", "all"))
    node.kill_daemon()
    code, found = ask(node)
    assert code == 1 and has(found["BAD"], f"{node.cache} cannot be asked", "unmount --lazy"), found
