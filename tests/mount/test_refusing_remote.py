# SPDX-License-Identifier: Apache-2.0
"""A server that answers and refuses this mount, or is away, when it is mounted: a warning, and tried again, unless --require-remote is given."""
import pytest
from inductorfs_testing import artefacts, compare, mounts
from inductorfs_testing.processes import run, wait_until


@pytest.mark.parametrize(("given", "mended"), [(b"wrong\n", "server"), (None, "server"), (b"wrong\n", "file")])
def test_a_server_that_refuses_the_password_is_used_as_soon_as_it_takes_it(cluster, place, given, mended):
    """As after a change of the password and a start of the host: the mount is there, says why it shares nothing, and needs no restart."""
    cluster.redis.command("CONFIG", "SET", "requirepass", "right")
    file, more = place.root / "password", []
    if given is not None:
        file.write_bytes(given)
        more = ["--password-file", file]
    done = place.cli("mount", place.cache, "--store", place.store, "--log", place.log, "--remote", cluster.redis.url, *cluster.options(*more))
    assert done.code == 0 and "the remote refuses this mount" in done.err and "password" in done.err, done.err
    artefacts.write_graph(place.cache, "k", "value")
    told = wait_until(lambda: [line for line in place.status()["warnings"] if line.startswith("the remote cannot be used: ")], 20, "a warning")
    assert "PASS" in told[0] or "NOAUTH" in told[0], told
    if mended == "file":
        file.write_bytes(b"right\n")
    else:
        changed = run(["redis-cli", "-s", cluster.redis.socket, "-a", "right", "CONFIG", "SET", "requirepass", "wrong" if given else ""])
        assert changed.out == "OK\n", changed
    wait_until(lambda: not [line for line in place.status()["warnings"] if "remote" in line], 90, "the remote")
    place.sync()
    place.unmount()


def test_a_remote_that_is_required_and_away_is_an_error(place):
    away = ("mount", place.cache, "--store", place.store, "--remote", "redis://127.0.0.1:1/0", *mounts.QUICK, "--require-remote")
    done = place.cli(*away)
    assert done.code == 1 and "redis://127.0.0.1:1/0 does not answer" in done.err, done.err
    assert not compare.mounts_below(place.cache)
    local = place.cli(*(word for word in away if word not in ("--remote", "redis://127.0.0.1:1/0")))
    assert local.code == 2 and "--require-remote without --remote" in local.err, local.err
