# SPDX-License-Identifier: Apache-2.0
"""Eight nodes in network namespaces, a workload on each, faults from a seed, and the promises that must hold meanwhile and
afterwards (tests/cluster/test_chaos.py)."""
import contextlib
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import artefacts, chaos_worker, compare, mounts, places
from .network import NetworkCluster
from .node import holds_files
from .processes import PATIENCE, Failed, wait_until
from .relay import Relay

OPERATION_BOUND = 5.0 * PATIENCE  # seconds; with 16 busy processes on 2 cores most of it is waiting for a turn
# A storm kills workers more often than a crash limit allows; in safe mode nothing would be published.
UNLIMITED = ("--crash-limit", "0")
LONG_FAULT = 8.0
SYNC_BOUND = 60        # the longest back-off is 30 s
APPEARS_BOUND = 45.0
SAMPLE = 60
# What a job gets from a mount whose whole daemon was killed, until it is mounted again.
GONE = (errno.ENOTCONN, errno.ECONNABORTED)


class Chaos:
    """close() ends all of it, whatever state it is in. Needs external synchronisation."""

    def __init__(self, cluster, seed, pause=0.01):
        self.cluster, self.seed, self._pause = cluster, seed, pause
        self.random = random.Random(seed)
        self.run = f"{seed}"
        self.directory = cluster.directory / "chaos"
        self.directory.mkdir()
        self.nodes, self.relayed, self._workers = [], {}, {}
        self.down = []      # (node, begin, end): no daemon
        self.unsafe = []    # (begin, end): what the server takes then it may lose
        self.damaged = False
        self.told = []      # what was done, for the report
        self.relay, self.sentinels = None, None

    # ---- the stage

    def start(self, count=8, relayed=4, sentinels=None):
        """The last `relayed` nodes reach the server through a relay, the others by its address, or by its Sentinels."""
        network, remote = self.cluster.network, sentinels.url if sentinels else None
        self.sentinels = sentinels
        if relayed:
            target = (network.address, sentinels.master().port if sentinels else self.cluster.port)
            self.relay = Relay((network.address, network.free_port()), target).start()
        for index in range(count):
            through = self.relay is not None and index >= count - relayed
            url = f"redis://{self.relay.address[0]}:{self.relay.address[1]}/0" if through else remote
            node = self.cluster.host(f"n{index}", *UNLIMITED, remote=url)
            self.nodes.append(node)
            if through:
                self.relayed[node.name] = network.address_of(node.host)
        return self

    def work(self, sets_may_go=False):
        """Two jobs on each node: what one of them reads of a set, the other may be writing."""
        for node in self.nodes:
            for name, kernels_only in ((node.name, False), (f"{node.name}b", True)):
                settings = {"cache": str(node.cache), "node": name, "run": self.run, "seed": self.seed, "kernels_only": kernels_only,
                            "peers": [peer.name for peer in self.nodes if peer is not node], "directory": str(self.directory),
                            "program": str(places.program()), "sets_may_go": sets_may_go,
                            "pause": self._pause * (2 if kernels_only else 1)}
                with open(self.directory / f"{name}.err", "wb") as errors:
                    self._workers[name] = subprocess.Popen(
                        [sys.executable, "-B", "-m", "inductorfs_testing.chaos_worker", json.dumps(settings)], cwd="/",
                        env=node.env(PYTHONPATH=Path(__file__).parents[1]), stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)

    def rest(self):
        """The end of the work; the counts of each worker."""
        for worker in self._workers.values():
            worker.send_signal(signal.SIGTERM)
        for name, worker in self._workers.items():
            try:
                worker.wait(60)
            except subprocess.TimeoutExpired:
                node = self._node_of(name)
                raise Failed(f"the job of {name} hangs: {_stack_of(worker.pid)}{node.log_tail()}")
            if worker.returncode != 0:
                raise Failed(f"the job of {name} ended with {worker.returncode}: {(self.directory / f'{name}.err').read_text()}")

    def _node_of(self, job):
        return next(node for node in self.nodes if node.name == job.rstrip("b"))

    def close(self):
        for worker in self._workers.values():
            if worker.poll() is None:
                worker.kill()
        for name, worker in self._workers.items():
            try:
                worker.wait(10)
            except subprocess.TimeoutExpired:
                self._node_of(name).stop()  # what waits for a mount that nobody serves ends with it
                worker.wait(10)
        if self.relay is not None:
            self.relay.close()

    # ---- faults; each returns how it is healed

    def say(self, what):
        self.told.append(f"{time.monotonic():.2f} {what}")

    def kill_daemon(self, node):
        """Supervisor and worker at once; the mount is dead until somebody mounts again."""
        begin = time.monotonic()
        self.say(f"kill daemon {node.name}")
        messengers = node.kill_daemon()  # whatever the mount says from now on is no daemon's word

        def heal():
            node.start(*self.cluster.options(*UNLIMITED))
            wait_until(lambda: not any(holds_files(pid) for pid in messengers), 10, "the end of the messenger before")
            self.down.append((node.name, begin, time.monotonic()))
        return heal

    def kill_worker(self, node):
        """The supervisor goes on: jobs notice nothing but a pause."""
        if node.supervisors():
            self.say(f"kill worker {node.name}")
            for pid in node.daemons():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return lambda: None

    def drop_link(self, node):
        verdict = self.random.choice([self.cluster.network.drop, self.cluster.network.refuse])
        self.say(f"{verdict.__name__} {node.name}")
        verdict(node.host)
        return lambda: self.cluster.network.accept(node.host)

    def disturb_relay(self, node, hostile=False):
        address = self.relayed[node.name]
        policies = [{"delay": self.random.uniform(0.01, 0.4)}, {"stall": True}, {"reset": True}]
        policy = {"flip": 0.5} if hostile else self.random.choice(policies)
        self.damaged = self.damaged or hostile
        self.say(f"{next(iter(policy))} {node.name} {policy}")
        self.relay.set(address, **policy)
        return lambda: self.relay.set(address)

    def stop_server(self):
        self.say("suspend redis")
        self.cluster.redis.suspend()
        return self.cluster.redis.resume

    def kill_server(self):
        self.say("kill redis")
        self.cluster.redis.kill()
        return self.cluster.redis.start

    def empty_server(self):
        self.say("empty redis")
        self.cluster.redis.kill()
        shutil.rmtree(self.cluster.redis.directory / "appendonlydir")

        def heal():
            self.unsafe.append((0.0, time.monotonic()))
            self.cluster.redis.start()
        return heal

    def flush_server(self):
        self.say("flush redis")
        self.cluster.redis.command("FLUSHALL")
        self.unsafe.append((0.0, time.monotonic()))
        return lambda: None

    def fail_over(self):
        """The master is killed or hangs until the replica is promoted; what it had not passed on by then is lost, as what an
        old master takes that does not know yet. Relayed nodes have an address that moves with the master, here: so there must be
        no failover but these."""
        if not self.sentinels.in_step():
            return lambda: None
        old, how = self.sentinels.master(), self.random.choice(["kill", "suspend"])
        self.say(f"{how} master")
        begin = time.monotonic() - 1
        (old.kill if how == "kill" else old.suspend)()

        def heal():
            promoted = self.sentinels.fail_over(old)
            self.relay.lead_to((promoted.address, promoted.port))
            (old.start if how == "kill" else old.resume)()
            wait_until(self.sentinels.in_step, 60, "the old master to follow the new one")
            self.unsafe.append((begin, time.monotonic()))
            self.say("failed over")
        return heal

    def storm(self, seconds, server_faults):
        """Faults at random until the time is over; all are healed at the end. One thing has one fault at a time."""
        end, active = time.monotonic() + seconds, []
        node_faults = [self.kill_daemon, self.kill_worker, self.kill_worker, self.drop_link]
        try:
            while time.monotonic() < end:
                now = time.monotonic()
                for item in [item for item in active if item[0] <= now]:
                    active.remove(item)
                    item[2]()
                busy = {item[1] for item in active}
                target = self.random.choice(["server", *[node.name for node in self.nodes]])
                if target not in busy and len(busy) <= len(self.nodes) // 2:
                    heal = self._strike(target, node_faults, server_faults)
                    # Some last longer than any operation may take.
                    length = LONG_FAULT if self.random.random() < 0.15 else self.random.uniform(0.2, 3.0)
                    active.append((now + length, target, heal))
                due = min([end, now + self.random.uniform(0.1, 0.6), *[item[0] for item in active]])
                wait_until(lambda due=due: time.monotonic() >= due, seconds, "the next fault")
        finally:
            for item in active:
                item[2]()
        self.say("all healed")

    def calm(self):
        """The faults are over: every job gets its work acknowledged within a bound."""
        since = time.monotonic()

        def is_acknowledged(lines):
            """Something that was written after the faults: no loss of the server's excuses it."""
            first = next((line["written"] for line in lines if "written" in line and line["at"] > since), None)
            return first is not None and any(line.get("acked", -1) >= first for line in lines)

        def waiting():
            return [node.name for node in self.nodes if not is_acknowledged(self.lines(node))]

        try:
            # The sync that runs when the faults end may have to fail first.
            wait_until(lambda: not waiting(), 1.5 * SYNC_BOUND, "sync", pause=0.3)
        except Failed:
            said = {node.name: node.cli("sync", node.cache, "--timeout", "2").err for node in self.nodes if node.name in waiting()}
            raise Failed(f"nothing new was acknowledged within {1.5 * SYNC_BOUND} s after the faults: {said}") from None

    def _strike(self, target, node_faults, server_faults):
        if target == "server":
            return self.random.choice(server_faults)()
        node = next(node for node in self.nodes if node.name == target)
        faults = [*node_faults, self.disturb_relay, self.disturb_relay] if target in self.relayed else node_faults
        return self.random.choice(faults)(node)

    # ---- promises

    def lines(self, node, suffix=""):
        """What the node's jobs told; the second job's with the suffix "b"."""
        path = self.directory / f"{node.name}{suffix}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def was_down(self, name, begin, end):
        return any(name == node and begin <= until + 0.5 and end >= since for node, since, until in self.down)

    def broken(self):
        """What the jobs saw and may never see."""
        found = []
        for node in self.nodes:
            for line in self.lines(node) + self.lines(node, "b"):
                now = line["now"]
                # A job that slept through the whole outage learns of it at its next operation.
                down = self.was_down(node.name, line.get("since", now), now)
                if "broken" in line:
                    found.append((node.name, line))
                if "error" in line and not (down and line["error"] in GONE):
                    found.append((node.name, {**line, "error": errno.errorcode.get(line["error"], line["error"])}))
                if "slow" in line and line["slow"] > OPERATION_BOUND and not self.was_down(node.name, now - line["slow"], now):
                    found.append((node.name, line))
        return found

    def promised(self):
        """(names, kernels) that sync has acknowledged and that no loss of the server's data excuses."""
        names, kernels = [], []
        for node in self.nodes:
            written, made = [], []
            for line in self.lines(node):
                if "written" in line:
                    written.append(line)
                elif "kernel" in line:
                    made.append(line)
                elif "acked" in line:
                    fresh = [one for one in written if "by" not in one and one["written"] <= line["acked"]]
                    for one in [*fresh, *[one for one in made[:line["kernels"]] if "by" not in one]]:
                        one["by"] = line["now"]
            names += [chaos_worker.name_of(self.run, node.name, line["written"]) for line in written if self.is_safe(line)]
            kernels += [line["kernel"] for line in made if self.is_safe(line)]
        if self.damaged:
            # A reader that got wrong bytes has it taken from the cluster, so that the next writer's is taken.
            there = {name.decode() for key in self.cluster.redis.keys("*:idx") for name in self.cluster.redis.command("HKEYS", key)}
            names = [name for name in names if name in there]
            kernels = []
        return names, sorted(set(kernels))

    def is_safe(self, line):
        """It was acknowledged, and the server lost nothing between then and its writing."""
        return "by" in line and not any(line["at"] <= end and line["by"] >= begin for begin, end in self.unsafe)

    def own(self, node):
        return [chaos_worker.name_of(self.run, node.name, line["written"]) for line in self.lines(node) if "written" in line]

    def check_afterwards(self):
        """All faults are healed: every node can sync, and shows what any node was told to be published."""
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            list(pool.map(lambda node: node.sync(SYNC_BOUND), self.nodes))
        names, kernels = self.promised()
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda node: self._check_node(node, names, kernels), self.nodes))
        problems = [problem for result in results for problem in result]
        if problems:
            raise Failed(f"{len(problems)} of {len(names)} names and {len(kernels)} kernels: {problems[:10]}")
        return len(names), len(kernels)

    def _check_node(self, node, names, kernels):
        chosen = random.Random(f"{self.seed} {node.name}")
        wanted, problems = set(names), []
        deadline = time.monotonic() + APPEARS_BOUND * PATIENCE
        while left := wanted - set(compare.names(node.cache)):
            if time.monotonic() > deadline:
                return [f"{node.name} does not list {name}" for name in sorted(left)]
            wait_until(lambda: True, 1)
        mine = self.own(node)
        # What was damaged on its way to this node lies in its store if nobody looked.
        some = len(names) if self.damaged and node.name in self.relayed else min(SAMPLE, len(names))
        sample = chosen.sample(names, some) + chosen.sample(mine, min(SAMPLE, len(mine))) + mine[-5:]
        for name in sample:
            try:
                mounts.appears(node.cache / name, APPEARS_BOUND)
                if (node.cache / name).read_bytes() != chaos_worker.content_of(name):
                    problems.append(f"{node.name} has wrong bytes of {name}")
            except (OSError, Failed) as error:
                problems.append(f"{node.name}: {name}: {error}")
        for seed in chosen.sample(kernels, min(SAMPLE // 4, len(kernels))):
            directory = node.cache / chaos_worker.kernel_directory(seed)
            mounts.appears(directory / "__grp__k.json", APPEARS_BOUND)
            children = artefacts.triton_read(node.cache, seed)
            writers = {chaos_worker.kernel_writer(name, data) for name, data in (children or {}).items()}
            if children is None or len(writers) != 1 or any(
                    data != chaos_worker.kernel_file(*writers, name) for name, data in children.items()):
                problems.append(f"{node.name}: {directory}: {writers}")
        if len(compare.mounts_below(node.cache)) != 1:
            problems.append(f"{node.name} has the mounts {compare.mounts_below(node.root)}")
        return problems

    def report(self):
        """One line for each worker's counts, and the slowest operation of each kind."""
        counts, slowest, errors = {}, {}, 0
        for node in self.nodes:
            for line in self.lines(node) + self.lines(node, "b"):
                errors += "error" in line
                for kind, number in line.get("counts", {}).items():
                    counts[kind] = counts.get(kind, 0) + number
                for kind, seconds in line.get("slowest", {}).items():
                    slowest[kind] = max(slowest.get(kind, 0.0), seconds)
        corrupt = sum(node.counters().get("fetch.corrupt", 0) for node in self.nodes)  # since each daemon's start
        faults = {}
        for line in self.told:
            kind = " ".join(word for word in line.split()[1:3] if not word.startswith("n"))
            faults[kind] = faults.get(kind, 0) + 1
        return (f"seed {self.seed}; operations {sum(counts.values())}: {dict(sorted(counts.items()))}; slowest "
                f"{ {kind: round(seconds, 2) for kind, seconds in slowest.items()} }; ENOTCONN and the like {errors}; "
                f"damaged frames found {corrupt}; faults {faults}")


def scratch():
    """Where tens of thousands of small files come and go in no time: memory, if it keeps extended attributes (Linux 6.6)."""
    memory = Path("/dev/shm")
    try:
        with tempfile.NamedTemporaryFile(dir=memory) as file:
            os.setxattr(file.name, "user.inductorfs", b"1")
        return memory
    except OSError:
        return None


def _stack_of(pid):
    try:
        return Path(f"/proc/{pid}/stack").read_text()
    except OSError as error:
        return str(error)


def make_cluster():
    """kill -9 of Redis keeps what it has written to its file, synced or not."""
    return NetworkCluster(("--appendfsync", "no"), parent=scratch())
