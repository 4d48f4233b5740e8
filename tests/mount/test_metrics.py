# SPDX-License-Identifier: Apache-2.0
"""`inductorfs metrics --http` as a socket unit starts it, and the rules and the dashboard against a real Prometheus."""
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from inductorfs_testing import artefacts, places
from inductorfs_testing.fixtures import lack
from inductorfs_testing.mounts import appears
from inductorfs_testing.ports import free_port
from inductorfs_testing.processes import run, wait_until
from inductorfs_testing.users import as_user

PROGRAM = places.program()
TREE = Path(__file__).resolve().parents[2]
RULES = TREE / "packaging" / "monitoring" / "inductorfs.rules.yml"
DASHBOARD = TREE / "packaging" / "monitoring" / "grafana-dashboard.json"
# `inductorfs metrics` waits 2 s for a mount that does not answer, and another test may have one.
SCRAPE = "4s"
FAMILIES = ("inductorfs_lookup_wait_seconds", "inductorfs_fuse_request_seconds", "inductorfs_publish_seconds")


def answers(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 2):
        return True
    return False


@contextlib.contextmanager
def running(command, port, log):
    """A server of these tests, ended at the end."""
    with open(log, "wb") as out:
        child = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        wait_until(lambda: child.poll() is not None or answers(port), 30, f"{command[0]} to listen")
        assert child.poll() is None, log.read_text()[-2000:]
        yield port
    finally:
        child.terminate()
        child.wait(20)


@contextlib.contextmanager
def endpoint(directory):
    """As systemd serves inductorfs-metrics.socket: a process for each connection, which is its standard input and output."""
    if not shutil.which("systemd-socket-activate"):
        lack("systemd-socket-activate is missing (scripts/deps installs systemd)")
    port = free_port()
    command = ["systemd-socket-activate", "--accept", "--inetd", "-l", f"127.0.0.1:{port}", PROGRAM, "metrics", "--http"]
    with running(command, port, directory / "activate.log"):
        yield port


def ask(port, request, patience=20):
    """All that comes in answer to these bytes: (status line, headers, body)."""
    with socket.create_connection(("127.0.0.1", port), patience) as client:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(request)
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    line, *headers = head.decode().split("\r\n")
    return line, dict(header.split(": ", 1) for header in headers), body


def get(port, version="1.1", method="GET", target="/metrics"):
    """With what Prometheus says that it takes."""
    return ask(port, f"{method} {target} HTTP/{version}\r\nHost: x\r\nAccept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n\r\n".encode())


def series(text, name, mountpoint):
    """Values of the samples of this name, of one mount, in their order."""
    return [float(value) for value in re.findall(rf'^{name}{{mountpoint="{re.escape(str(mountpoint))}"[^}}]*}} (\S+)$', text, re.MULTILINE)]


def writer_and_reader(cluster):
    """What the reader reads it fetches then, not before."""
    return cluster.quick("a"), cluster.quick("b", "--prefetch", "0")


def storm(writer, reader, number, count=10):
    """Writes on one node, and reads on the other what it has not yet."""
    made = [artefacts.write_graph(writer.cache, f"graph {number} {index}", f"{number} {index} pickle" * 500).relative_to(writer.cache) for index in range(count)]
    writer.sync()
    for name in made:
        assert appears(reader.cache / name).read_text().startswith(f"{number} ")


@pytest.mark.usefixtures("root")
def test_a_user_without_any_rights_gets_the_figures_of_roots_mounts(cluster):
    """inductorfs-metrics@.service runs as one (DynamicUser=)."""
    node = cluster.quick("a")
    asked = as_user(54321, 0o077, run, [PROGRAM, "metrics"], {"PATH": "/usr/bin:/bin"}, 60)
    assert asked.code == 0 and series(asked.out, "inductorfs_remote_configured", node.cache) == [1], asked.out + asked.err
    assert series(asked.out, "inductorfs_remote_memory_bytes", node.cache) > [100_000]
    assert series(asked.out, "inductorfs_remote_memory_limit_bytes", node.cache) == [0]
    assert series(asked.out, "inductorfs_remote_evicted_keys_total", node.cache) == [0]
    assert "without a maxmemory" in node.cli("status", node.cache).out


def test_a_scrape_is_answered_in_the_text_format(cluster, tmp_path):
    a, b = writer_and_reader(cluster)
    storm(a, b, 0)
    with endpoint(tmp_path) as port:
        line, headers, body = get(port)
        assert line == "HTTP/1.1 200 OK" and headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert int(headers["Content-Length"]) == len(body)
        line, headers, body = get(port, version="1.0")
        assert line == "HTTP/1.1 200 OK" and headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = body.decode()
        for target, method, status in (("/", "GET", 404), ("/metrics", "POST", 405), ("/metrics", "HEAD", 405)):
            assert get(port, target=target, method=method)[0].startswith(f"HTTP/1.1 {status} ")
    for family, node in zip(FAMILIES, (b, b, a), strict=True):
        buckets = series(text, f"{family}_bucket", node.cache)
        (count,), (total,) = series(text, f"{family}_count", node.cache), series(text, f"{family}_sum", node.cache)
        assert buckets == sorted(buckets) and buckets[-1] == count > 0 and total > 0, (family, buckets, count, total)
    (count,) = series(text, "inductorfs_lookup_wait_seconds_count", b.cache)
    assert count == 10, "ten files were fetched"
    assert series(text, "inductorfs_lookup_wait_seconds_count", a.cache) == [0], "a made them itself"
    assert series(text, "inductorfs_publish_seconds_count", a.cache) == series(text, "inductorfs_published_groups_total", a.cache)
    assert series(text, "inductorfs_fetches_corrupt_total", a.cache) == [0], "the zero before the first event"
    if shutil.which("promtool"):
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_histograms_begin_anew_with_another_worker(cluster):
    """As a counter reset, which rate() knows."""
    a, b = writer_and_reader(cluster)
    storm(a, b, 0)
    assert b.status()["histograms"]["lookup.wait"]["cumulative"][-1] == 10
    done = b.cli("upgrade", b.cache)
    assert done.code == 0, done.err
    assert b.status()["histograms"]["lookup.wait"]["cumulative"][-1] == 0
    storm(a, b, 1, count=3)
    assert b.status()["histograms"]["lookup.wait"]["cumulative"][-1] == 3


def test_hostile_clients_hold_nobody_up(cluster, tmp_path):
    node = cluster.quick("a")
    with endpoint(tmp_path) as port:
        slow = [socket.create_connection(("127.0.0.1", port), 20) for _ in range(4)]
        for client in slow:
            client.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert str(node.cache).encode() in get(port)[2]
        assert ask(port, b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 1_000_000)[0].startswith("HTTP/1.1 431 ")
        assert ask(port, b"\x16\x03\x01\x02\x00\x01\r\n\r\n")[0].startswith("HTTP/1.1 400 ")
        for client in slow:
            assert client.recv(100).startswith(b"HTTP/1.1 408 ")
            client.close()


def test_a_pipe_serves_as_well():
    done = subprocess.run([PROGRAM, "metrics", "--http"], input=b"GET /metrics HTTP/1.0\n\n", capture_output=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith(b"HTTP/1.1 200 OK\r\n") and done.stderr == b""


# ---- with Prometheus


class Prometheus:
    """A running Prometheus. Its rules are the tree's, which wait for seconds where those wait for minutes."""

    def __init__(self, port):
        self._url = f"http://127.0.0.1:{port}"

    def is_ready(self):
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self._url}/-/ready", timeout=20):
            return True
        return False

    def ask(self, path, **parameters):
        with urllib.request.urlopen(f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=20) as answer:
            return json.load(answer)["data"]

    def query(self, expression):
        return self.ask("query", query=expression)["result"]

    def of(self, name, mountpoint):
        """The value of one mount's series; None where there is none."""
        found = self.query(f'{name}{{mountpoint="{mountpoint}"}}')
        return float(found[0]["value"][1]) if found else None


@contextlib.contextmanager
def prometheus(directory, target):
    for program in ("prometheus", "promtool"):
        if not shutil.which(program):
            lack(f"{program} is missing (scripts/deps installs it)")
    rules = directory / "rules.yml"
    rules.write_text(re.sub(r"for: \d+[mh]", "for: 1s", RULES.read_text()))
    settings = directory / "prometheus.yml"
    settings.write_text(json.dumps({
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}, "rule_files": [str(rules)],
        "scrape_configs": [{"job_name": "inductorfs", "scrape_interval": SCRAPE, "scrape_timeout": SCRAPE, "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}]}))
    port = free_port()
    command = ["prometheus", f"--config.file={settings}", f"--storage.tsdb.path={directory / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    with running(command, port, directory / "prometheus.log"):
        server = Prometheus(port)
        wait_until(server.is_ready, 30, "Prometheus to be ready")
        yield server


def dashboard_expressions():
    """(panel, expression) with the variables as Grafana sets them."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"].replace("$__rate_interval", "20s").replace("$node", ".*").replace("$mountpoint", ".*")


def in_background(storms):
    """Goes on until the event that it returns is set."""
    end = threading.Event()

    def go():
        number = 1
        while not end.is_set():
            storms(number)
            number += 1
            time.sleep(0.2)

    thread = threading.Thread(target=go)
    thread.start()
    return end, thread


@pytest.fixture
def monitored(cluster, tmp_path):
    """(Prometheus, writer, reader), while files are written on one node and read on the other."""
    a, b = writer_and_reader(cluster)
    with endpoint(tmp_path) as target, prometheus(tmp_path, target) as server:
        end, thread = in_background(lambda number: storm(a, b, number, count=3))
        try:
            wait_until(lambda: (server.of("inductorfs:lookup_wait_seconds:p99_5m", b.cache) or 0) > 0, 60, "rates to be known", pause=0.5)
        finally:
            end.set()
            thread.join()
        yield server, a, b


@pytest.mark.usefixtures("root")
def test_a_unit_whose_mount_is_missing_has_a_series(cluster, tmp_path):
    """In a mount namespace with an /etc of its own: other tests ask for all mounts, too."""
    a = cluster.quick("a")
    own = tmp_path / "in-ductor"
    own.mkdir()
    (tmp_path / "link").symlink_to(a.cache.parent)
    linked = tmp_path / "link" / a.cache.name

    def instance(path):
        return str(path)[1:].replace("-", r"\x2d").replace("/", "-")

    script = """set -e
        mount -t tmpfs none "$1" && mkdir "$1/up" "$1/work"
        mount -t overlay -o "lowerdir=/etc,upperdir=$1/up,workdir=$1/work" none /etc
        mkdir -p /etc/inductorfs /etc/systemd/system/multi-user.target.wants
        cd /etc/systemd/system/multi-user.target.wants
        touch "/etc/inductorfs/$4.toml" "/etc/inductorfs/$3.toml" "/etc/inductorfs/$6.toml" /etc/inductorfs/password /etc/inductorfs/no-directory.toml
        ln -s /usr/lib/systemd/system/inductorfs@.service inductorfs@opt-cache.service
        ln -s /usr/lib/systemd/system/inductorfs@.service "inductorfs@$3.service"
        exec "$2" $5"""

    def ask(command):
        words = [own, PROGRAM, instance(a.cache), instance(own), command, instance(linked)]
        return run(["unshare", "--mount", "sh", "-c", script, "sh", *words], a.env(), 60)

    text = ask("metrics").out
    assert series(text, "inductorfs_up", own) == [0]
    assert series(text, "inductorfs_up", "/no/directory") == [], "that file may be of a mount anywhere"
    assert series(text, "inductorfs_up", "/opt/cache") == [0]
    assert series(text, "inductorfs_up", a.cache) == [1]
    assert series(text, "inductorfs_up", linked) == [], "the same mount, spelled in another way"
    status = {mount["mountpoint"]: mount.get("error", "") for mount in json.loads(ask("status --json").out)}
    assert "its unit is enabled: systemctl status 'inductorfs@opt-cache.service'" in status["/opt/cache"]
    assert f"systemctl enable --now 'inductorfs@{instance(own)}.service'" in status[str(own)]
    assert status[str(a.cache)] == ""
    doctor = ask("doctor")
    assert doctor.code == 1 and "/opt/cache is not mounted" in doctor.out
    linked = a.cache / "below"
    os.kill(a.worker(), signal.SIGSTOP)
    try:
        assert series(ask("metrics").out, "inductorfs_up", linked) == [0], "a disk that does not answer holds nobody up"
    finally:
        os.kill(a.worker(), signal.SIGCONT)


def test_rules_and_dashboard_show_what_a_storm_does(monitored, cluster):
    server, a, b = monitored
    done = run(["promtool", "check", "rules", RULES], dict(os.environ), 30)
    assert done.code == 0, done.out + done.err
    for title, expression in dashboard_expressions():
        assert server.query(expression), f"the panel {title} shows no data: {expression}"
    for group in server.ask("rules")["groups"]:
        for rule in group["rules"]:
            assert rule["health"] == "ok", rule
            for name in set(re.findall(r"\binductorfs[\w:]+", rule["query"])):
                assert server.of(name, b.cache) is not None, f"{rule['name']} asks for {name}, which is not there"
    for record in re.findall(r"record: (\S+)", RULES.read_text()):
        assert server.query(record), record
    assert 0 < server.of("inductorfs:lookup_wait_seconds:p99_5m", b.cache) < 10
    assert 0 < server.of("inductorfs:publish_seconds:p95_1h", a.cache) < 60
    assert 0 < server.of("inductorfs:from_cluster:ratio_1h", b.cache) <= 1, "what b missed at first came soon after"
    assert server.of("inductorfs_keys_local_total", b.cache) == server.of("inductorfs_keys_made_total", b.cache) == 0
    assert server.of("inductorfs:from_cluster:ratio_1h", a.cache) == 0, "a made all itself"
    alerts = {alert["labels"]["alertname"] for alert in server.ask("alerts")["alerts"] if alert["labels"]["mountpoint"] in (str(a.cache), str(b.cache))}
    assert "InductorfsRemoteUnreachable" not in alerts and "InductorfsDown" not in alerts, alerts

    cluster.redis.kill()
    artefacts.write_graph(a.cache, "last", "value")  # somebody has to ask the server

    def fires(name, node):
        return any(alert["state"] == "firing" and alert["labels"]["alertname"] == name and alert["labels"]["mountpoint"] == str(node.cache)
                   for alert in server.ask("alerts")["alerts"])

    wait_until(lambda: fires("InductorfsRemoteUnreachable", a), 30, "the alert for the server", pause=0.5)
    b.kill_daemon()
    wait_until(lambda: fires("InductorfsDown", b), 30, "the alert for the daemon", pause=0.5)
