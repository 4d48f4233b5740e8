# SPDX-License-Identifier: Apache-2.0
"""Where options come from: a file, a variable, the command line; and what `config`, `status` and `metrics` say of them and of all mounts."""
import json
import os

import pytest
from inductorfs_testing import artefacts, places
from inductorfs_testing.processes import run
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as text_format

PROGRAM = places.program()


def with_variables(place, **variables):
    return {**place.env(), **variables}


@pytest.fixture(name="file")
def a_file(place):
    path = place.root / "node.toml"
    path.write_text(f'store = "{place.store}"\nstore-limit = "80M"\nthreads = 3\nno-also = true\n')
    return path


def test_a_variable_comes_before_the_file_and_the_command_line_before_both(cluster, place, file):
    words = [PROGRAM, "mount", place.cache, "--config", file, "--threads", "2", *cluster.options()]
    done = run(words, with_variables(place, INDUCTORFS_STORE_LIMIT="96M", INDUCTORFS_THREADS="5"), 30)
    assert (done.code, done.err) == (0, "")
    assert place.status()["store"]["size_limit"] == 96 << 20
    shown = run([PROGRAM, "config", "show", "--origin", "--config", file, "--threads", "2"],
                with_variables(place, INDUCTORFS_STORE_LIMIT="96M", INDUCTORFS_THREADS="5"), 20).out.splitlines()
    assert 'store-limit = "96M"  # variable INDUCTORFS_STORE_LIMIT' in shown
    assert 'threads = "2"  # command line' in shown
    assert f"no-also = true  # {file}" in shown
    assert any(line.startswith("# quiet-time: ") for line in shown)


def test_what_config_shows_is_a_configuration(place, file):
    file.write_text(f'store = "{place.store}"\n[environment]\nTRITON_DEFAULT_FP_FUSION = 0\n')
    shown = run([PROGRAM, "config", "show", "--config", file, "--also", 'a=/x "y"', "--also", "b=/z"], place.env(), 20)
    again = place.root / "again.toml"
    again.write_text(shown.out)
    done = run([PROGRAM, "config", "show", "--config", again], place.env(), 20)
    assert (done.code, done.out) == (0, shown.out)


@pytest.mark.parametrize(("variables", "text", "told"), [
    ({"INDUCTORFS_STORE_LIMIT": "1"}, "", "variable INDUCTORFS_STORE_LIMIT: give at least 64M"),
    ({"INDUCTORFS_NO_ALSO": "yes"}, "", "variable INDUCTORFS_NO_ALSO: give true or false"),
    ({"INDUCTORFS_REMOTE": ""}, "", "give a URL"),
    ({}, "store_limit = 1\n", "did you mean store-limit?"),
    ({}, "[families.triton]\npatern = \"x\"\n", "did you mean pattern?"),
    ({}, "store-limit = \"63M\"\n", "give at least 64M"),
])
def test_a_wrong_option_has_one_exit_code_wherever_it_stands(place, variables, text, told):
    file = place.root / "node.toml"
    file.write_text(text)
    for words in (["mount", place.cache], ["config", "check"]):
        done = run([PROGRAM, *words, "--config", file], with_variables(place, **variables), 20)
        assert done.code == 2 and told in done.err and done.err.count("\n") == 1, (words, done.code, done.err)


def test_status_lists_all_mounts_and_finds_that_of_a_path(cluster):
    a, b = cluster.node("a"), cluster.node("b")
    (a.cache / "team").mkdir()
    inside = json.loads(a.cli("status", a.cache / "team" / "absent", "--json").out)
    assert inside["mountpoint"] == str(a.cache)
    listed = json.loads(a.cli("status", "--json").out)
    assert {str(a.cache), str(b.cache)} <= {mount["mountpoint"] for mount in listed}
    text = a.cli("status").out
    assert f"{a.cache}\n    remote unix://" in text and f"{b.cache}\n" in text


def test_a_question_that_fails_answers_in_json_too(place):
    for command in ("status", "explain"):
        done = run([PROGRAM, command, place.root, "--json"], dict(os.environ), 20)
        assert done.code == 1 and json.loads(done.out)["code"] == "not_found", done.out
        assert json.loads(done.out)["error"] in done.err and "lists all mounts" in done.err


def figures(families):
    """{(sample, mountpoint): value}"""
    return {(sample.name, sample.labels["mountpoint"]): sample.value for family in families for sample in family.samples}


def test_metrics_are_what_prometheus_reads(cluster, tmp_path):
    """In both of its formats, as its own library parses them."""
    a, b = cluster.node("a", options=("--writers", "all")), cluster.node("b", options=("--writers", "all"))
    name = artefacts.write_graph(a.cache, "key", "value").relative_to(a.cache)
    a.sync()
    b.catch_up(a)
    assert (b.cache / name).read_text() == "value"
    found = figures(open_metrics(a.cli("metrics").out))
    file = tmp_path / "inductorfs.prom"
    assert run(["sh", "-c", f"umask 077; exec {PROGRAM} metrics --output {file}"], a.env(), 30).code == 0
    written = figures(text_format(file.read_text()))
    assert file.stat().st_mode & 0o777 == 0o644
    for told in (found, written):
        assert told["inductorfs_up", str(a.cache)] == told["inductorfs_up", str(b.cache)] == 1
        assert told["inductorfs_published_groups_total", str(a.cache)] == 1
        assert told["inductorfs_fetched_blobs_total", str(b.cache)] == 1
        assert told["inductorfs_remote_reachable", str(a.cache)] == 1
        assert told["inductorfs_fuse_seconds_total", str(a.cache)] > 0
    assert set(found) == set(written)
    assert {mountpoint for _, mountpoint in figures(open_metrics(b.cli("metrics", b.cache).out))} == {str(b.cache)}


def test_env_leads_both_caches_into_the_mount(cluster):
    """As a shell evaluates it; what is made there is of the families."""
    node = cluster.node("a", options=("--writers", "all"))
    (node.cache / "team x").mkdir()
    script = f'eval "$({PROGRAM} env {node.cache} --root "team x")"; printf "%s\\n%s\\n" "$TORCHINDUCTOR_CACHE_DIR" "$TRITON_CACHE_DIR"'
    done = run(["sh", "-c", script], node.env(), 20)
    root, triton = done.out.splitlines()
    assert (root, triton) == (str(node.cache / "team x"), str(node.cache / "team x" / "triton_cache")), done.err
    name = artefacts.code("x")
    assert f"canonical     {name}\n" in node.explain(f"team x/{name}")
    assert "triton_kernel" in node.explain(f"team x/triton_cache/{artefacts.triton_key('x')}/__grp__k.json")
    assert (node.cache / "team x" / "sglang" / "jit").is_dir(), "vLLM reads before it makes a directory"
    own = json.loads(node.cli("env", node.cache, "--format", "json").out)["variables"]
    assert own["TORCHINDUCTOR_CACHE_DIR"] == str(node.cache), "it is this user's own"
    assert node.cli("env", node.root).code == 1
    assert node.cli("env", node.cache, "--root", "../x").code == 2
