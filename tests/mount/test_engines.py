# SPDX-License-Identifier: Apache-2.0
"""Programs with one torch and several vLLMs in one mount: what an engine makes is its own, what torch makes is everybody's. The packages
are such that nobody can run them."""
import json
from pathlib import Path

import pytest
from inductorfs_testing import documented, environments
from inductorfs_testing.environments import Writer
from inductorfs_testing.processes import wait_until

LEARNED = ("--writers", "learned")


@pytest.fixture(name="packages")
def environments_with_engines(cluster):
    """An environment with a vLLM, the same at another place, one whose vLLM has another byte, and one without vLLM."""
    cluster.directory.chmod(0o755)
    engines = {"one": "engine", "same": "engine", "other": "ENGINE", "none": None}
    return {name: environments.make(cluster.directory / name, engine) for name, engine in engines.items()}


def engine_of(node, directory):
    done = node.cli("fingerprint", "--json", "--python", directory / "bin/python")
    assert done.code == 0, done.err
    return json.loads(done.out)["facets"]["engine"]


def test_what_an_engine_makes_comes_to_equal_engines_only(cluster, packages):
    a, b = (cluster.node(name, options=LEARNED) for name in ("a", "b"))
    with Writer(a.cache, packages["one"]) as one:
        model, code = one.write_model("model"), one.write("code")
    a.sync()
    with Writer(b.cache, packages["same"]) as same:
        assert same.read("fxgraph/none") is None  # as torch asks first
        wait_until(lambda: same.read(model) is not None, 20, "the model of an equal engine")
        wait_until(lambda: same.read(code) == "code", 20, "what depends on torch alone")
    for name in ("other", "none"):
        with Writer(b.cache, packages[name]) as different:
            assert different.read("fxgraph/none") is None
            wait_until(lambda: different.read(code) == "code", 20, "what depends on torch alone")
            assert different.read(model) is None, name
    assert any("vllm 0.32.0" in root.get("environment", "") for root in b.status()["file_system"]["first_roots"])


@pytest.mark.parametrize("told", [False, True])
def test_a_variable_in_no_key_parts_readers_where_nothing_is_declared(cluster, packages, told):
    """In the directories of the documents. A mount that is told of an environment has that one, and looks at no reader."""
    a, b = cluster.node("a", options=LEARNED), cluster.node("b", options=("--python", cluster.directory / "one/bin/python") if told else LEARNED)
    roots = [Path(documented.variables(node.cache, node.plain_env(), words=" --root serving")["VLLM_CACHE_ROOT"]) for node in (a, b)]
    with Writer(roots[0], packages["one"]) as one:
        model, code = one.write_model("model"), one.write("code")
    a.sync()
    with Writer(roots[1], packages["one"]) as equal, Writer(roots[1], packages["one"], variables={"TRITON_DEFAULT_FP_FUSION": "0"}) as other:
        for job in (equal, other):
            assert job.read("fxgraph/none") is None  # as torch asks first
            wait_until(lambda: job.read(code) == "code", 20, "what depends on no variable")
        wait_until(lambda: equal.read(model) is not None, 20, "the model")
        assert (other.read(model) is not None) == told


def test_a_mount_with_an_engine_publishes_nothing_of_another(cluster, packages):
    options = ("--writers", "matching", "--python", cluster.directory / "one/bin/python")
    a, b = (cluster.node(name, options=options) for name in ("a", "b"))
    with Writer(a.cache, packages["other"]) as other, Writer(a.cache, packages["same"]) as same:
        foreign, code = other.write_model("foreign"), other.write("code")
        model = same.write_model("model")
    a.sync()
    wait_until((b.cache / model).exists, 20, "the model of the mount's engine")
    wait_until((b.cache / code).exists, 20, "what depends on torch alone")
    assert not (b.cache / foreign).exists()
    assert "serving engine" in a.explain(foreign), a.explain(foreign)


def test_a_mount_without_an_engine_misses_none(cluster, packages):
    options = ("--writers", "all", "--python", cluster.directory / "none/bin/python")
    a = cluster.node("a", options=options)
    status = a.status()
    assert all("engine" not in family["why"] for family in status["private_families"]), status["private_families"]
    with Writer(a.cache, packages["one"]) as one:
        model = one.write_model("model")
    assert "no serving engine is installed beside torch" in a.explain(model), a.explain(model)


def test_a_changed_byte_is_another_engine(cluster, packages):
    node = cluster.node("a", options=LEARNED)
    one, same, other, none = (engine_of(node, cluster.directory / name) for name in packages)
    assert one["known"] and one["value"].startswith("vllm=0.32.0 "), one
    assert same["value"] == one["value"] != other["value"]
    assert none["known"] and none["value"] == "none"
    (packages["none"] / "vllm-0.32.0.dist-info").mkdir()
    (packages["none"] / "vllm-0.32.0.dist-info/direct_url.json").write_text('{"url": "file:///src", "dir_info": {"editable": true}}')
    editable = engine_of(node, cluster.directory / "none")
    assert not editable["known"] and "editable mode" in editable["problem"], editable
    assert "vllm_model" in editable["makes_private"] and "fxgraph" not in editable["makes_private"]
