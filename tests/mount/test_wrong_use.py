# SPDX-License-Identifier: Apache-2.0
"""More bad input: ports and databases of a server that the URL does not fit, and `unmount` from within."""
import os
import re
import signal
import subprocess
import time

from inductorfs_testing import artefacts, certificates, places
from inductorfs_testing.ports import free_port
from inductorfs_testing.processes import PATIENCE, run
from inductorfs_testing.redis_server import RedisServer
from test_bad_input import mount, not_mounted, refused, server

PROGRAM = places.program()


def test_server_without_the_database(cluster, place):
    done = mount(cluster, place, remote=f"{cluster.redis.url}?db=99")
    refused(done, "has no database 99: give another one in the URL, or raise `databases` of the server", code=2)
    not_mounted(place)


def test_tls_to_a_port_without_it_and_the_other_way_round(cluster, place, tmp_path):
    with server(None) as url:  # as a plain Redis, which waits for the end of the line
        done = mount(cluster, place, remote=url.replace("redis://", "rediss://"))
        assert done.code == 0 and "TLS: the server does not answer in time; if its port speaks without TLS, use redis://; " in done.err, done.err
        place.unmount()
    authority = certificates.Authority(tmp_path)
    certificate, key = authority.sign("server", "IP:127.0.0.1")
    port = free_port()
    settings = ("--tls-port", port, "--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", authority.ca_file,
                "--tls-auth-clients", "no")
    with RedisServer(settings=settings):
        done = mount(cluster, place, remote=f"redis://127.0.0.1:{port}")
        assert done.code == 0 and "(if the port wants TLS, use rediss://)" in done.err, done.err
        place.unmount()


def test_the_asking_unmount_is_no_user_of_the_mount(cluster, place):
    """Called in the mount; nobody but the shell that calls it is there."""
    place.start(*cluster.options())
    held = run(["sh", "-c", f"cd {place.cache} && {PROGRAM} unmount .; exit $?"], place.env(), 30)
    assert held.code == 1 and re.search(r"is in use by pid \d+ \(sh -c [^)]*, working directory\); end that", held.err), held.err
    done = run([PROGRAM, "unmount", "."], place.env(), 30, directory=place.cache)
    assert (done.code, done.err) == (0, ""), done.err
    not_mounted(place)


def test_unmount_says_what_it_waits_for(cluster, place):
    """The supervisor replaces the worker that hangs, and the next one unmounts."""
    place.start(*cluster.options("--hang-timeout", "5"))
    worker = place.worker()
    os.kill(worker, signal.SIGSTOP)
    started = time.monotonic()
    with subprocess.Popen([PROGRAM, "unmount", place.cache], env=place.env(), stderr=subprocess.PIPE, text=True) as asking:
        line = asking.stderr.readline()
        assert time.monotonic() - started < 5 * PATIENCE
        assert line.startswith(f"inductorfs: waiting for the end of the mount: {place.cache}: its worker (pid {worker}) does not answer; "
                               "the supervisor replaces one that hangs after --hang-timeout"), line
        assert asking.wait(60) == 0, asking.stderr.read()
    not_mounted(place)


def test_unmount_of_a_worker_that_hangs_for_ever_ends_with_a_remedy(cluster, place):
    place.start(*cluster.options("--hang-timeout", "0"))
    marker = artefacts.write_graph(place.cache, "key", "kept").relative_to(place.cache)
    worker = place.worker()
    os.kill(worker, signal.SIGSTOP)
    done = run([PROGRAM, "unmount", place.cache], place.env(), 90)
    waiting, error = done.err.splitlines()
    assert done.code == 1 and "waiting for the end of the mount" in waiting and 55 < done.seconds < 80, (done.err, done.seconds)
    remedy = f"if its worker hangs, run kill -9 {worker} and inductorfs unmount again; no file is lost"
    assert error == f"inductorfs: the mount has not ended within 60 s: {place.cache}: {remedy}"
    os.kill(worker, signal.SIGKILL)
    assert run([PROGRAM, "unmount", place.cache], place.env(), 60).code == 0
    not_mounted(place)
    place.start(*cluster.options())
    assert (place.cache / marker).read_text() == "kept"


def test_an_unmount_that_is_quick_says_nothing(cluster, place):
    place.start(*cluster.options())
    done = run([PROGRAM, "unmount", place.cache], place.env(), 60)
    assert (done.code, done.out, done.err) == (0, "", "")
