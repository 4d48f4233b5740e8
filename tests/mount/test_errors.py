# SPDX-License-Identifier: Apache-2.0
"""Errors of commands: one form in JSON, one table of exit codes, and the name that was meant."""
import json
import re

import pytest
from inductorfs_testing import artefacts, places
from inductorfs_testing.processes import run
from inductorfs_testing.users import as_user

PROGRAM = places.program()
AWAY = ("--remote", "redis://127.0.0.1:1")
NO_URL = ("--remote", "http://127.0.0.1")
LONG = "a" * 100_000


def ask(place, *words):
    return run([PROGRAM, *words], place.env(), 60)


def is_error(done, code):
    """The one form: nothing else on standard output, and the same in one line on standard error."""
    assert done.code == code, (done.code, done.out, done.err)
    told = json.loads(done.out)
    assert set(told) == {"error", "code"} and told["error"] and re.fullmatch("[a-z_]+", told["code"]), done.out
    assert done.err == f"inductorfs: {told['error']}\n", done.err
    return told


@pytest.mark.parametrize("words", [
    ("status", "DIR"), ("sync", "DIR"), ("stats", "DIR"), ("jobs", "DIR"), ("why-miss", "DIR"), ("warm", "DIR"), ("upgrade", "DIR"),
    ("explain", "DIR/x"), ("nodes", "DIR"), ("freeze", "DIR"), ("purge", "--all", "DIR"),
    ("nodes", *AWAY), ("freeze", *AWAY), ("purge", "--all", *AWAY), ("export", *AWAY, "DIR/x"), ("import", *AWAY, "/dev/null"),
], ids=" ".join)
def test_what_failed_is_told_in_one_form(place, words):
    is_error(ask(place, *(word.replace("DIR", str(place.cache)) for word in words), "--json"), 1)


@pytest.mark.parametrize("words", [
    ("status", "--jsn"), ("statu",), ("status", "a", "b"), ("sync",), ("sync", "--timeout", "x", "DIR"), ("warm", "--limit", "x", "DIR"),
    ("upgrade",), ("purge", "DIR"), ("purge", "--all", "--scope", "0123456789", "DIR"), ("purge", "--digest", "x", "DIR"),
    ("doctor", "--config", "DIR/none"), ("fingerprint", "--config", "DIR/none"), ("export", "--config", "DIR/none", "DIR/x"),
    ("nodes", "--config", "DIR/none"), ("nodes",), ("nodes", *NO_URL), ("purge", "--all", *NO_URL), ("export", *NO_URL, "DIR/x"),
    ("import", *NO_URL, "/dev/null"), ("nodes", *AWAY, "DIR"), ("check", "--store", "DIR"), ("purge", "--family", "triton_kernl", *AWAY), ("status", LONG),
    ("fingerprint", "--compare", "DIR/none"), ("fingerprint", "--compare", "DIR/../x"), ("fingerprint", "--fingerprint", "DIR/none"),
    ("import", *AWAY, "DIR/none"),
], ids=lambda words: " ".join(words)[:60])
def test_wrong_words_are_told_in_one_form(place, words):
    (place.root / "x").write_text("x")
    done = ask(place, *(word.replace("DIR", str(place.cache)) for word in words), "--json")
    assert is_error(done, 2)["code"] == "invalid"
    assert len(done.err) < 1000


def test_wrong_words_without_json_print_nothing_to_standard_output(place):
    done = ask(place, "status", "--jsn")
    assert done.code == 2 and done.out == "" and "did you mean --json?" in done.err


def test_a_file_of_metrics_that_cannot_be_written_is_a_wrong_option(place):
    (place.root / "x").write_text("x")
    for words, told in ((place.root / "none/x", "make it first"), (place.root / "x/y", "Not a directory")):
        done = ask(place, "metrics", "--output", words)
        assert (done.code, done.out) == (2, "") and told in done.err, done.err


def test_a_store_that_check_cannot_read_is_a_wrong_option(cluster, place):
    place.start(*cluster.options())
    place.unmount()
    place.store.chmod(0o700)
    told = as_user(65534, 0o022, ask, place, "check", "--store", place.store, "--json")
    assert "Permission denied" in is_error(told, 2)["error"] and "not a store" not in told.err
    (place.store / "format").write_text((place.store / "format").read_text().replace("\n", "000\n"))
    assert "upgrade inductorfs" in is_error(ask(place, "check", "--store", place.store, "--json"), 2)["error"]


def test_each_mount_that_cannot_be_upgraded_has_its_error(cluster, place):
    place.start(*cluster.options())
    done = ask(place, "upgrade", "--json", "--program", place.root / "none", place.cache)
    is_error(done, 2)
    done = ask(place, "upgrade", "--all", "--json", "--program", place.root / "none")
    mine = [one for one in json.loads(done.out) if one["mountpoint"] == str(place.cache)]
    assert done.code == 1 and [set(one) for one in mine] == [{"mountpoint", "upgraded", "error", "code"}], done.out


def test_a_dead_mount_is_not_upgraded_and_that_is_told(cluster, place):
    place.start(*cluster.options())
    place.kill_daemon()
    done = ask(place, "upgrade", "--all", "--program", place.root / "none")  # which upgrades nobody, of other tests either
    assert "inductorfs: warning: not upgraded: " in done.err and str(place.cache) in done.err, done.err
    ask(place, "unmount", "--lazy", place.cache)


def test_who_asks_by_a_mount_learns_which_server_is_away(cluster, place):
    place.remote = "redis://127.0.0.1:1"
    place.start(*cluster.options())
    for words in (("nodes",), ("purge", "--all"), ("freeze",)):
        told = is_error(ask(place, *words, place.cache, "--json"), 1)["error"]
        assert "remote redis://127.0.0.1:1 does not answer: " in told and "check host, port and network" in told, told


@pytest.fixture(name="filled")
def a_filled_node(cluster):
    node = cluster.quick("a")
    artefacts.write_graph(node.cache, "key", "for all" * 9)
    node.sync()
    return node


SELECTORS = {
    "warm": ("warm", "DIR"), "purge of the mount": ("purge", "DIR"), "purge": ("purge", "--remote", "URL"),
    "export": ("export", "--remote", "URL", "FILE"),
}
SELECTIONS = {
    "an unknown family": ("--family", "nothing_near"), "a misspelt family": ("--family", "fxgrap"), "a bad pattern": ("--pattern", "a//b"),
    "a short scope": ("--scope", "0123"), "an unknown scope": ("--scope", "0123456789"),
}


@pytest.mark.parametrize("selection", SELECTIONS)
def test_a_selection_that_names_nothing_is_a_wrong_option_to_every_command(cluster, filled, selection):
    for name, words in SELECTORS.items():
        spelt = [word.replace("DIR", str(filled.cache)).replace("URL", cluster.redis.url).replace("FILE", str(filled.root / "x")) for word in words]
        done = ask(filled, *spelt, *SELECTIONS[selection])
        assert (name, done.code) == (name, 2), done.err
        assert SELECTIONS[selection][0] in done.err, (name, done.err)
        if selection == "a misspelt family":
            assert "did you mean fxgraph?" in done.err, (name, done.err)
    for words in (("purge", "--remote", cluster.redis.url), ("export", "--remote", cluster.redis.url, filled.root / "x")):
        assert ask(filled, *words, "--torch", "0.0.1").code == 2


def test_a_wrong_password_is_a_wrong_option_and_a_server_that_is_away_is_not(cluster, filled):
    (filled.root / "password").write_text("wrong\n")
    cluster.redis.command("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+@all")
    url = cluster.redis.url.replace("unix://", "unix://reader@")
    for words in (("nodes",), ("purge", "--all"), ("freeze",), ("export", filled.root / "x"), ("import", "/dev/null")):
        wrong = ask(filled, *words, "--remote", url, "--password-file", filled.root / "password")
        assert (words[0], wrong.code) == (words[0], 2) and "WRONGPASS" in wrong.err, wrong.err
        gone = ask(filled, *words, "--remote", url, "--password-file", filled.root / "none")
        assert (words[0], gone.code) == (words[0], 2) and "does not exist" in gone.err, gone.err
        away = ask(filled, *words, *AWAY)
        assert (words[0], away.code) == (words[0], 1), away.err


def test_what_is_too_long_for_the_daemon_is_told(place, cluster):
    place.start(*cluster.options())
    for words in (("explain", place.cache / LONG), ("status", f"/{LONG}"), ("sync", f"/{LONG}"), ("upgrade", f"/{LONG}")):
        done = ask(place, *words)
        assert done.code == 2 and "it is too long: a path has at most 4095 bytes" in done.err and len(done.err) < 500, done.err[:500]
    for words in (("warm", "--pattern", LONG), ("purge", "--pattern", LONG), ("upgrade", "--program", LONG)):
        done = ask(place, *words, place.cache)
        assert done.code == 2 and "too long" in done.err and "at most " in done.err and len(done.err) < 1000, done.err[:500]
    done = ask(place, "mount", place.root, "--store", f"/{LONG}")
    assert done.code == 2 and "it is too long: at most 4095 bytes" in done.err and len(done.err) < 1000, done.err[:500]
    assert place.status()["pid"] in place.daemons()
