# SPDX-License-Identifier: Apache-2.0
"""`inductorfs doctor` on real mounts with seeded faults: each is found, with its remedy."""
import fcntl
import json
import os
import sys

import pytest
from inductorfs_testing import artefacts, mounts, places
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
    assert has(found["ok"], f"lies in {node.cache}")
    in_memory = run(["stat", "-f", "-c", "%T", node.store], seconds=10).out.strip() == "tmpfs"
    assert has(found["warning"], "lies in memory") if in_memory else has(found["ok"], "lies on a local disk"), found
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


def doctor(node, *words, before=(), **variables):
    """As ask(), without a mount."""
    done = run([*before, PROGRAM, "doctor", "--json", *words], {**node.env(), **variables}, 30)
    assert done.err == "", done.err
    return [f"{one['kind']}: {one['what']} -> {one['remedy']}" for one in json.loads(done.out)]


def test_serving_engines_that_lead_elsewhere_are_found(cluster, tmp_path):
    node = cluster.node("a", options=("--writers", "all"))
    code, found = ask(node, TORCHINDUCTOR_CACHE_DIR=str(node.cache), VLLM_CACHE_ROOT=str(tmp_path), VLLM_DISABLE_COMPILE_CACHE="1",
                      TORCHINDUCTOR_AUTOGRAD_CACHE="0")
    assert code == 1
    assert has(found["BAD"], f"VLLM_CACHE_ROOT={tmp_path} lies in no mount", f"export VLLM_CACHE_ROOT={node.cache}/vllm")
    assert has(found["BAD"], "VLLM_DISABLE_COMPILE_CACHE=1", "unset it") and has(found["BAD"], "TORCHINDUCTOR_AUTOGRAD_CACHE=0", "unset it")
    code, found = ask(node, TORCHINDUCTOR_CACHE_DIR=str(node.cache), VLLM_CACHE_ROOT=str(node.cache / "vllm"))
    assert code == 0, found


@pytest.mark.parametrize(("path", "of", "variable"), [
    (".cache/vllm", "vLLM", "VLLM_CACHE_ROOT"), (".triton/cache", "Triton", "TRITON_CACHE_DIR"), (".cache/flashinfer", "FlashInfer", "FLASHINFER"),
    (".cache/sglang", "SGLang", "SGLANG"), (".cache/tvm-ffi", "tvm-ffi", "ninja"), (".nv/ComputeCache", "the CUDA driver", "no mount shares it"), (".deep_gemm", "DeepGEMM", "DG_JIT_CACHE_DIR"), (".tilelang/cache", "TileLang", "TILELANG_CACHE_DIR")])
def test_caches_that_escape_are_found_with_their_sizes(cluster, place, path, of, variable):
    cache = place.home / path / "a" / "b"
    cache.mkdir(parents=True)
    (cache / "kernel.cubin").write_bytes(bytes(3 << 20))
    (cache / "of others").symlink_to("/usr")  # not followed: the sum would be far more
    assert has(doctor(place), f"note: a cache of {of} lies outside of all mounts: {place.home}/{path} has 3.0 MiB", variable)


def test_that_vllm_replaces_the_variable_of_torch_is_said(cluster):
    node = cluster.node("a", options=("--writers", "all"))
    cache = node.home / ".cache" / "vllm"
    cache.mkdir(parents=True)
    (cache / "model").write_bytes(bytes(2 << 20))
    found = ask(node, TORCHINDUCTOR_CACHE_DIR=str(node.cache))[1]
    assert has(found["warning"], f"vLLM uses no mount here, although TORCHINDUCTOR_CACHE_DIR={node.cache} does", f"VLLM_CACHE_ROOT={node.cache}/vllm"), found
    found = ask(node, TORCHINDUCTOR_CACHE_DIR=str(node.cache), VLLM_CACHE_ROOT=str(node.cache / "vllm"))[1]
    assert not has(found.get("warning", []), "vLLM uses no mount"), found


@pytest.mark.usefixtures("root")
def test_an_engine_that_may_not_write_is_found(cluster):
    """A container to which the mount was given as readOnly."""
    node = cluster.node("a", options=("--writers", "all"))
    (node.cache / "vllm").mkdir()
    script = f"mount --bind {node.cache} {node.cache}; mount -o remount,bind,ro {node.cache}; exec \"$@\""
    for variable, path in (("VLLM_CACHE_ROOT", "vllm"), ("SGLANG_CACHE_DIR", "not/made"), ("DG_JIT_CACHE_DIR", "deep_gemm")):
        variables = {variable: node.cache / path, "TORCHINDUCTOR_CACHE_DIR": node.cache}
        assert not has(doctor(node, node.cache, **variables), "read-only")
        found = doctor(node, node.cache, before=["unshare", "-m", "sh", "-c", script, "sh"], **variables)
        assert has(found, f"BAD: {variable}={node.cache}/{path} is on a read-only file system", "without ro", "--read-only"), found


def test_what_vllm_would_end_of_is_found_in_a_mount(cluster):
    node = cluster.node("a", options=("--writers", "all"))
    tag = node.cache / "vllm" / "torch_compile_cache" / "0123456789" / "rank_0_0" / "backbone"
    tag.mkdir(parents=True)
    name = "artifact_compile_range_1_128_subgraph_0"
    (tag / "vllm_compile_cache.py").write_text(f"{{((1, 128), 0, 'inductor'): {{'graph_handle': ('{name}', '{tag}/{name}')}}}}\n")
    code, found = ask(node, TORCHINDUCTOR_CACHE_DIR=str(node.cache), VLLM_CACHE_ROOT=str(node.cache / "vllm"))
    assert code == 1 and has(found["BAD"], f"vllm_compile_cache.py names {name}, which is not there: vLLM ends", f"rm -r {tag}"), found
    (tag / name).write_bytes(b"bytes")
    assert ask(node, TORCHINDUCTOR_CACHE_DIR=str(node.cache), VLLM_CACHE_ROOT=str(node.cache / "vllm"))[0] == 0


def test_what_torch_keeps_in_its_default_directory_is_found(place):
    place.default_cache.mkdir(parents=True)
    (place.default_cache / "file").write_bytes(bytes(2 << 20))
    assert has(doctor(place), f"note: a cache of torch lies outside of all mounts: {place.default_cache} has 2.0 MiB", "TORCHINDUCTOR_CACHE_DIR")


def test_a_missing_place_of_headers_is_found(cluster):
    node = cluster.quick("a")  # --no-also
    assert has(ask(node)[1]["warning"], f"{node.default_cache}/precompiled_headers shows no mount", "--also precompiled_headers=")
    other = cluster.node("b", options=("--writers", "all"))
    assert not has(ask(other)[1].get("warning", []), "precompiled_headers shows no mount")


def test_an_interpreter_without_torch_is_found(place, tmp_path):
    """By the option, and by the file of a mount that is planned."""
    wrong = tmp_path / "bin" / "python3"
    wrong.parent.mkdir()
    wrong.symlink_to(sys.executable)
    (tmp_path / "pyvenv.cfg").write_text(f"home = {os.path.dirname(sys.executable)}\n")
    assert has(doctor(place, "--python", wrong), "BAD: nothing that torch makes will be shared", "--python")
    file = place.root / "node.toml"
    file.write_text(f'python = "{place.root}/none"\n')
    assert has(doctor(place, "--config", file), "BAD: ", f"{place.root}/none", "--python")


@pytest.mark.usefixtures("root")
def test_a_store_that_is_too_small_is_found(cluster, place):
    with mounts.tmpfs(cluster.directory / "disk", "size=8m") as disk:
        found = doctor(place, "--store", disk / "not" / "made", "--store-limit", "1G")
        assert has(found, f"warning: the disk of the store {disk}/not/made has 8.0 MiB, less than --store-limit 1.0 GiB", "larger disk"), found


@pytest.mark.usefixtures("root")
def test_stores_of_mounts_that_have_ended_are_named(cluster, place):
    cluster.directory.chmod(0o755)
    place.root.chmod(0o755)
    stores = place.root / "cache" / "inductorfs" / "store"
    for name in ("used", "left\nover", "no store"):
        (stores / name).mkdir(parents=True)
        (stores / name / "lock").touch()
    for name in ("used", "left\nover"):
        (stores / name / "format").touch()
    with (stores / "used" / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = doctor(place, before=("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"), XDG_CACHE_HOME=str(place.root / "cache"))
    assert has(found, "note: 1 store has no mount on this host: ", f"{stores}/left\\x0aover", "du -sh"), found
    assert not has(found, "/used") and not has(found, "no store"), found


@pytest.mark.usefixtures("root")
def test_a_store_that_mount_refuses_or_a_reboot_empties_is_found(cluster, place):
    opened = place.root / "open"
    opened.mkdir()
    opened.chmod(0o777)
    outer = cluster.quick("outer")
    for store, told in (("/proc/x", "--store /proc/x cannot be made"), (outer.cache / "store", f"{outer.cache}/store lies in {outer.cache}"),
                        (opened / "store", f"{opened} is writable by others"), (opened, f"{opened} is writable by others")):
        found = doctor(place, "--store", store)
        assert has(found, "BAD: ", told, "name another --store"), found
        assert not has(found, f"the store {store} lies"), found
    with mounts.tmpfs(cluster.directory / "memory", "size=100m") as memory:
        assert has(doctor(place, "--store", memory / "store"), "warning: ", "lies in memory (tmpfs)", "--store on a local disk")


def test_a_limit_that_mount_refuses_or_one_job_fills_is_found(place):
    assert has(doctor(place, "--store-limit", "1"), "BAD: ", "store-limit", "give at least 64M")
    found = doctor(place, "--store-limit", "64M")
    assert has(found, "warning: a store with this --store-limit holds 64.0 MiB at most", "larger --store-limit"), found
    assert not has(found, "give at least"), found


@pytest.mark.usefixtures("root")
def test_a_user_who_may_not_mount_for_others_and_may_not_write_is_found(cluster, place):
    os.chmod(cluster.directory, 0o755)
    program = places.copy_programs(cluster.directory)
    place.start(*cluster.options())
    os.chmod(place.root, 0o755)
    nobody = ["unshare", "-m", "sh", "-c", "mount -t tmpfs tmpfs /etc; exec \"$@\"", "sh", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    done = run([*nobody, program, "doctor", "--json", "--allow-other", place.cache], place.env(), 30)
    found = [f"{one['kind']}: {one['what']} -> {one['remedy']}" for one in json.loads(done.out)]
    assert done.code == 1 and has(found, "BAD: /etc/fuse.conf does not let users mount", "echo user_allow_other >> /etc/fuse.conf"), found
    assert has(found, f"BAD: {place.cache} cannot be used by uid 65534", "chmod 1777"), found
    # The remedy, as it stands there.
    mine, others = place.cache / "mine", place.cache / "others"
    for made in (mine, others):
        made.mkdir()
        os.chmod(made, 0o700)
    os.chown(mine, 65534, 65534)
    blind = mine / "blind"
    blind.mkdir(mode=0o300)
    os.chown(blind, 65534, 65534)
    cases = ((mine, None), (mine / "not" / "made", None), (others, "written"), (blind, "read"), ("", None))
    for directory, wrong in cases:
        for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            done = run([*nobody, program, "doctor", "--json", place.cache], {**place.env(), "TORCHINDUCTOR_CACHE_DIR": str(mine), name: str(directory)}, 30)
            bad = [one["what"] for one in json.loads(done.out) if one["kind"] == "BAD"]
            if directory == "" and name == "TORCHINDUCTOR_CACHE_DIR":
                assert len(bad) == 1 and bad[0].startswith(f"{place.cache} cannot be used by uid 65534"), "as if it were not set"
                continue
            assert bad == ([f"{name}={directory} may not be {wrong} by uid 65534"] if wrong else []), (done.out, done.err)


@pytest.mark.usefixtures("root")
def test_a_mount_whose_disk_is_smaller_than_its_limit_is_found(cluster, place):
    with mounts.tmpfs(cluster.directory / "small", "size=100m") as disk:
        place.store = disk / "store"
        place.start(*cluster.options())
        found = doctor(place, place.cache)
        assert has(found, f"warning: the disk of the store {disk}/store has 100.0 MiB, less than --store-limit 20.0 GiB", "lower --store-limit"), found
        place.stop()


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(("propagation", "told"), [("--make-private", True), ("--make-shared", False)])
def test_private_propagation_is_found(cluster, place, propagation, told):
    with mounts.tmpfs(place.root / "outer") as outer:
        run(["mount", propagation, outer], seconds=10)
        cache = outer / "cache"
        cache.mkdir()
        done = run([PROGRAM, "mount", cache, "--store", place.store, "--log", place.log, *cluster.options()], place.env(), 30)
        assert done.code == 0, done.err
        try:
            found = doctor(place, cache)
            assert has(found, f"note: {cache} is mounted with private propagation", "HostToContainer") == told, found
        finally:
            assert run([PROGRAM, "unmount", cache], place.env(), 30).code == 0


@pytest.mark.usefixtures("root")
def test_the_remedy_for_private_propagation_works_as_it_stands_there(cluster, place):
    with mounts.tmpfs(place.root / "outer") as outer:
        run(["mount", "--make-private", outer], seconds=10)
        above = outer / "no;mount$point"
        cache = above / "cache"
        cache.mkdir(parents=True)
        mount = [PROGRAM, "mount", cache, "--store", place.store, "--log", place.log, *cluster.options()]
        assert run(mount, place.env(), 30).code == 0
        remedies = []
        try:
            remedies = [line for line in doctor(place, cache) if "private propagation" in line]
        finally:
            assert run([PROGRAM, "unmount", cache], place.env(), 30).code == 0
        (remedy,) = remedies
        command = remedy.split("unmount, run ")[1].split(", mount again")[0]
        done = run(["sh", "-c", command], place.env(), 30)
        assert done.code == 0, (command, done.err)
        try:
            assert run(mount, place.env(), 30).code == 0
            found = doctor(place, cache)
            assert run([PROGRAM, "unmount", cache], place.env(), 30).code == 0
            assert not has(found, "private propagation"), found
        finally:
            assert run(["umount", above], place.env(), 30).code == 0


@pytest.mark.usefixtures("root")
def test_a_daemon_in_a_pid_namespace_of_its_own_is_found(cluster, place):
    """As a container without hostPID has it: mount and doctor are both in there."""
    words = " ".join(str(word) for word in [PROGRAM, "mount", place.cache, "--store", place.store, "--log", place.log, *cluster.options()])
    script = f"{words} && {PROGRAM} doctor --json {place.cache}; {PROGRAM} unmount {place.cache}"
    done = run(["unshare", "--pid", "--fork", "--mount", "--mount-proc", "sh", "-c", script], place.env(), 60)
    found = [f"{one['kind']}: {one['what']} -> {one['remedy']}" for one in json.loads(done.out)]
    assert has(found, f"warning: {place.cache} is served in a PID namespace of its own", "hostPID"), (found, done.err)
