# SPDX-License-Identifier: Apache-2.0
"""Where options come from: a file, a variable, the command line; and what `config`, `status` and `metrics` say of them and of all mounts."""
import json
import os
import re
from pathlib import Path

import pytest
from inductorfs_testing import artefacts, certificates, environments, places
from inductorfs_testing.processes import run
from inductorfs_testing.users import as_user
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


def test_also_on_the_command_line_is_in_force_whatever_weaker_sources_say(cluster, place, file):
    """The file says no-also, and so does the variable."""
    elsewhere = place.root / "elsewhere"
    options = [word for word in cluster.options("--also", f"precompiled_headers={elsewhere}") if word != "--no-also"]
    done = run([PROGRAM, "mount", place.cache, "--config", file, *options], with_variables(place, INDUCTORFS_NO_ALSO="true"), 30)
    assert (done.code, done.err) == (0, "")
    assert str(elsewhere) in [also["path"] for also in place.status()["also"]]
    shown = run([PROGRAM, "config", "show", "--config", file, "--also", "a=/x"], with_variables(place, INDUCTORFS_NO_ALSO="true"), 20)
    assert "# no-also: not in force, because of also (command line)\n" in shown.out
    again = place.root / "again.toml"
    again.write_text(shown.out)
    assert run([PROGRAM, "config", "check", "--config", again], place.env(), 20).code == 0


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


@pytest.mark.parametrize("words", [
    ["--remote", "http://h"], ["--remote", "localhost:6379"], ["--remote", "redis://"], ["--remote", "redis://h/abc"],
    ["--remote", "redis://127.0.0.1:99999"], ["--remote", "redis://127.0.0.1:1", "--password-file", "/no/password"],
    ["--remote", "rediss://127.0.0.1:1", "--ca-file", "/no/ca"], ["--fingerprint", "/no/facts"],
    ["--store", "/proc/x"], ["--store", "IN_A_MOUNT"], pytest.param(["--store", "OPEN/store"], marks=pytest.mark.usefixtures("root")),
    pytest.param(["--store", "OPEN"], marks=pytest.mark.usefixtures("root")),
    ["--remote", "rediss://127.0.0.1:1", "--ca-file", "TEXT"], ["--remote", "rediss://127.0.0.1:1", "--cert-file", "TEXT"],
    ["--remote", "rediss://127.0.0.1:1", "--cert-file", "CERTIFICATE", "--key-file", "TEXT"],
    ["--remote", "rediss://127.0.0.1:1", "--cert-file", "CERTIFICATE"], ["--remote", "rediss://127.0.0.1:1", "--key-file", "KEY"],
    ["--remote", "rediss://127.0.0.1:1", "--cert-file", "CERTIFICATE", "--key-file", "ANOTHER_KEY"],
    ["--remote", "redis://127.0.0.1:1", "--ca-file", "CERTIFICATE"], ["--remote", "unix:///none", "--cert-file", "CERTIFICATE", "--key-file", "KEY"],
])
def test_config_check_refuses_what_mount_refuses(cluster, place, words):
    """Although no server answers."""
    named = {"OPEN": place.root / "open", "TEXT": place.root / "text"}
    named["OPEN"].mkdir()
    named["OPEN"].chmod(0o777)
    named["TEXT"].write_text("no PEM\n")
    if "IN_A_MOUNT" in words:
        named["IN_A_MOUNT"] = cluster.quick("outer").cache / "store"
    if any(word in ("CERTIFICATE", "KEY") for word in words):
        authority = certificates.Authority(place.root)
        named["CERTIFICATE"], named["KEY"] = authority.sign("node", "IP:127.0.0.1")
        named["ANOTHER_KEY"] = authority.sign("other", "IP:127.0.0.1")[1]
    words = [str(named.get(word.split("/")[0], word)) + ("/store" if word == "OPEN/store" else "") for word in words]
    said = []
    for command in (["config", "check"], ["mount", place.cache]):
        done = run([PROGRAM, *command, *(() if "--store" in words else ("--store", place.store)), *words], place.env(), 30)
        assert done.code == 2 and done.err.count("\n") == 1, (command, done)
        said.append(done.err)
    assert said[0] == said[1]


@pytest.mark.parametrize("option", ["--ca-file", "--cert-file", "--key-file"])
def test_config_check_misses_files_although_no_remote_is_named(place, option):
    done = run([PROGRAM, "config", "check", "--store", place.store, option, "/no/file"], place.env(), 30)
    assert done.code == 2 and "/no/file: it does not exist" in done.err, done


def test_a_password_without_a_server_is_a_mistake(place):
    for command in (["config", "check"], ["mount", place.cache]):
        done = run([PROGRAM, *command, "--store", place.store, "--password-file", "/etc/hostname"], place.env(), 30)
        assert done.code == 2 and "--password-file /etc/hostname without --remote" in done.err and done.err.count("\n") == 1, done


@pytest.mark.parametrize(("python", "told"), [("/nope", "does not exist"), ("/usr", "is a directory: name the interpreter in it, as bin/python"),
                                              ("FILE", "cannot be run")])
def test_config_check_tries_the_interpreter(place, python, told):
    if python == "FILE":
        python = place.root / "file"
        python.touch(0o644)
    done = run([PROGRAM, "config", "check", "--store", place.store, "--python", python], place.env(), 30)
    assert done.code == 2 and f"--python {python}: {told}" in done.err, done


def test_what_is_hardly_meant_is_a_warning(cluster, place):
    secret = place.root / "password"
    secret.write_text("any")
    secret.chmod(0o644)
    done = run([PROGRAM, "config", "check", "--store", place.store, "--store-limit", "900T", "--remote", cluster.redis.url, "--password-file", secret],
               place.env(), 30)
    assert done.code == 0 and "chmod 600 it" in done.err and "less than --store-limit 900.0 TiB" in done.err and done.err.count("\n") == 2, done
    done = run([PROGRAM, "mount", place.cache, "--store", place.store, "--no-also", "--store-limit", "900T"], place.env(), 30)
    assert done.code == 0 and "less than --store-limit 900.0 TiB" in done.err, done
    place.unmount()


@pytest.mark.parametrize(("words", "code"), [
    (["import", "--remote", "REMOTE", "/no/archive"], 2), (["export", "--remote", "REMOTE", "/no/archive"], 1),
    (["metrics", "--output", "/no/archive"], 2), (["import", "--remote", "REMOTE", "/dev/null"], 1),
])
def test_a_path_that_is_not_there_is_named(cluster, place, words, code):
    """Those with 1 by a directory for temporary files, which no word names."""
    words = [cluster.redis.url if word == "REMOTE" else word for word in words]
    done = run([PROGRAM, *words], {**place.env(), "TMPDIR": "/no/temporary"}, 30)
    assert done.code == code and done.err.count("\n") == 1, done
    assert "not_found" not in done.err and ("/no/archive" in done.err or "/no/temporary" in done.err), done


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
    """As its own library parses it."""
    environments.bare(cluster.directory / "bare")
    options = ("--writers", "all", "--python", cluster.directory / "bare/bin/python")
    a, b = cluster.node("a", options=options), cluster.node("b", options=options)
    name = artefacts.write_graph(a.cache, "key", "value").relative_to(a.cache)
    a.sync()
    b.catch_up(a)
    assert (b.cache / name).read_text() == "value"
    found = figures(text_format(a.cli("metrics").out))
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
    ours = (str(a.cache), str(b.cache))  # other tests mount beside this one
    assert {key for key in found if key[1] in ours} == {key for key in written if key[1] in ours}
    assert {mountpoint for _, mountpoint in figures(text_format(b.cli("metrics", b.cache).out))} == {str(b.cache)}


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
    undone = script.replace('"team x")"', '"team x")"; eval "$(' + f'{PROGRAM} env --unset {node.cache}/no/mount)"')
    assert run(["sh", "-c", undone], node.env(), 20).out == "\n\n", "and out of it again"
    assert node.cli("env", node.root).code == 1
    assert node.cli("env", node.cache, "--root", "../x").code == 2
    assert "the mkdir of the directories, which it does not run" in " ".join(node.cli("env", "--help").out.split())


def test_answers_about_a_mountpoint_that_is_not_utf_8(cluster, place):
    """Nothing aborts: what is only shown is shown with U+FFFD, and what a program would take for the path is refused."""
    cache = os.fsdecode(os.fsencode(place.root) + b"/odd \xff")
    os.mkdir(cache)
    assert run([PROGRAM, "mount", cache, "--store", place.store, "--log", place.log, *cluster.options()], place.env(), 30).code == 0
    try:
        for name in ("k8s", "json", "docker", "systemd"):
            done = run([PROGRAM, "env", cache, "--format", name], place.env(), 20)
            assert done.code == 2 and done.err.count("\n") == 1, done
            assert set(json.loads(done.out)) == {"error", "code"} if name == "json" else done.out == ""
            assert f"a path that is not UTF-8 cannot be written as {name}: {place.root}/odd \\xff: --format sh can" in done.err, done.err
        script = 'eval "$("$1" env "$2")"; rmdir "$2/vllm"'
        assert run(["sh", "-c", script, "sh", PROGRAM, cache], place.env(), 20).code == 0
        for command in ("status", "stats", "jobs", "why-miss", "doctor", "explain", "sync", "nodes"):
            done = run([PROGRAM, command, cache, "--json"], place.env(), 30)
            assert done.code in (0, 1) and json.loads(done.out) is not None, (command, done)
            assert run([PROGRAM, command, cache], place.env(), 30).code in (0, 1), command
        assert json.loads(run([PROGRAM, "status", cache, "--json"], place.env(), 30).out)["mountpoint"].endswith("/odd \ufffd")
    finally:
        assert run([PROGRAM, "unmount", cache], place.env(), 30).code == 0


@pytest.mark.usefixtures("root")
def test_env_refuses_a_directory_that_another_user_made_first(cluster):
    """In a mount of mode 1777 anybody can make the directory with a user's name, and engines unpickle what lies there."""
    victim, attacker = 54321, 54322
    node = cluster.node("a", start=False)
    for directory in (cluster.directory, node.root):
        directory.chmod(0o755)
    node.cache.chmod(0o1777)
    program = places.copy_programs(cluster.directory)
    node.start(*cluster.options())
    root = node.cache / "daemon"

    def env(*words):
        variables = {**node.env(), "LOGNAME": "daemon"}
        done = run(["setpriv", f"--reuid={victim}", f"--regid={victim}", "--clear-groups", program, "env", node.cache, "--format", "docker", *words], variables, 20)
        return done.code, done.err.removeprefix("inductorfs: ")

    def refused(path, why):
        return env() == (1, f"{path} {why}: ask root to remove it, or name another directory with --root\n")

    node.cache.chmod(0o755)
    code, error = env()
    assert code == 1 and f"{root} may not be written by uid {victim}" in error and f"chmod 1777 {node.cache}" in error
    as_root = run(["sh", "-c", error.split(" or ")[1]], node.env(), 20)
    assert as_root.code == 0 and env() == (0, ""), as_root.err + "the remedy, as it is printed"
    root.rmdir()
    node.cache.chmod(0o1777)
    assert env() == (0, ""), "nobody has made it yet"
    as_user(attacker, 0, os.mkdir, root, 0o777)
    assert refused(root, f"belongs to uid {attacker}"), env()
    assert env("--root", "daemon") == (0, ""), "the user has named it"
    root.rmdir()
    as_user(attacker, 0, os.symlink, "/tmp", root)
    assert refused(root, "is no directory"), env()
    root.unlink()
    as_user(victim, 0, os.mkdir, root, 0o777)
    assert env() == (0, "")
    as_user(attacker, 0, os.mkdir, root / "sglang", 0o777)
    assert refused(root / "sglang", f"belongs to uid {attacker}"), env()
    os.chown(root / "sglang", victim, victim)
    as_user(attacker, 0, os.mkdir, root / "sglang" / "jit", 0o777)
    assert refused(root / "sglang" / "jit", f"belongs to uid {attacker}"), env()


# ---- variables of no option

def test_a_misspelt_variable_is_told(cluster, place):
    done = run([PROGRAM, "mount", place.cache, "--store", place.store, *cluster.options()],
               with_variables(place, INDUCTORFS_REMOT=cluster.redis.url, INDUCTORFS_SERVICE_HOST="10.0.0.1"), 30)
    assert done.code == 0
    assert done.err == ("inductorfs: warning: no option has the variable INDUCTORFS_REMOT; did you mean INDUCTORFS_REMOTE?; it is ignored: "
                        "inductorfs config show lists all options\n")
    place.unmount()


def test_what_the_project_itself_uses_is_told_of_nothing(place):
    """Scripts, tests, units and containers set these, or compile with them."""
    root = Path(__file__).resolve().parents[2]
    names, macros = set(), set()
    for part in ("CONTRIBUTING.md", "README.md", ".ci", "docs", "packaging", "scripts", "src", "include", "systemd", "tests"):
        for file in [root / part] if (root / part).is_file() else (root / part).rglob("*"):
            if file.is_file() and file.suffix != ".zdict" and file.name not in ("test_options.py", "settings_test.cc", "given.cc", "given.h"):
                text = file.read_text(errors="replace")
                names |= set(re.findall(r"\bINDUCTORFS_[A-Z_]*[A-Z]\b(?!\()", text))
                macros |= set(re.findall(r"(?:define |-D)(INDUCTORFS_[A-Z_]+)", text))
    assert {"INDUCTORFS_TRY", "INDUCTORFS_WITH_GPU_KERNEL"} <= macros  # which nobody sets
    assert {"INDUCTORFS_FAIL_POINT", "INDUCTORFS_VENVS", "INDUCTORFS_CHAOS_SECONDS"} <= names
    options = {f"INDUCTORFS_{word.upper().replace('-', '_')}" for word in
               re.findall("^# ([a-z-]+):|^([a-z-]+) =", run([PROGRAM, "config", "show"], place.env(), 20).out, re.M) for word in word if word}
    others = {name: "x" for name in names - options - macros}
    done = run([PROGRAM, "config", "show"], with_variables(place, **others), 20)
    assert (done.code, done.err) == (0, ""), done.err
