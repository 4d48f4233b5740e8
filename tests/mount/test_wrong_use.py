# SPDX-License-Identifier: Apache-2.0
"""More bad input: ports and databases of a server that the URL does not fit, and `unmount` from within."""
import re
import socket

from inductorfs_testing import certificates, places
from inductorfs_testing.processes import run
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
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
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
