#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workers are killed at random moments while real torch and Triton work on their mounts.

  cpu   the jobs of workloads/cpu_jobs.py: cold on node a, warm on a, then on node b, which has only the cluster
  storm   workloads/storm.py: processes on two nodes compile the same Triton keys at once, then load them all again

Round after round with new nodes and an empty cluster, until so many workers were killed. An error is: an exit code, a
traceback, a result or a key that differs from the one of a plain directory, what was lost on the node that has made it,
a Triton set of more than one writer, a worker that ended by itself, or a probe beside the job that saw one. Stalls are
those of the probe, a look-up and a read each few milliseconds. Exit code 1 when there was an error.

  bench_takeover_torch.py cpu|storm [--kills 30] [--least S] [--most S] [--torch 2.15] [--processes 4] [--turns 6] [--warm 3]
                          [--per-job 150] [--keep DIR]
"""
import argparse
import json
import os
import random
import re
import shutil
import sys
import threading
import time
from pathlib import Path

from bench_takeover import HEALTHY, quantile, stalls

from inductorfs_testing import places, triton_sets
from inductorfs_testing.fixtures import Cluster
from inductorfs_testing.load import SHORT
from inductorfs_testing.processes import Failed, run

JOBS, STORM = places.WORKLOADS / "cpu_jobs.py", places.WORKLOADS / "storm.py"
PROBE_PAUSE = 0.005
PROBE_CONTENT = os.urandom(4096)
# What a library prints when it has swallowed an error of a file.
TROUBLE = re.compile(r"Traceback|Transport endpoint|Input/output error|Stale file handle|OSError|BrokenPipe")
COMPILES = ("compile", "link", "header")


class Probe:
    """Asks the mount for a name that is not there and for bytes that the kernel does not keep. One thread of its own."""

    def __init__(self, cache: Path):
        self._cache, self._file = cache, cache / "probe"
        self._file.write_bytes(PROBE_CONTENT)
        self.slow, self.errors, self.operations = [], [], 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _ask(self):
        if os.path.lexists(self._cache / f"probe {self.operations}"):
            return "a name that was never made"
        with open(self._file, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return "" if file.read() == PROBE_CONTENT else "other bytes"

    def _run(self):
        while not self._stop.wait(PROBE_PAUSE):
            begin = time.monotonic()
            try:
                wrong = self._ask()
            except OSError as error:
                wrong = str(error)
            took = time.monotonic() - begin
            self.operations += 1
            if took > SHORT:
                self.slow.append((begin, took))
            if wrong:
                self.errors.append(f"probe: {wrong}")

    def finish(self):
        self._stop.set()
        self._thread.join()
        return {"slow": self.slow, "errors": self.errors, "operations": self.operations}


def stacks(node):
    """What each process of the mount is at: by gdb where there is one, else the state of its threads."""
    said = [node.cli("status", node.cache).err]
    for pid in node.processes():
        if shutil.which("gdb"):
            said.append(run(["gdb", "-p", pid, "-batch", "-ex", "thread apply all bt 14"], seconds=120).out)
        else:
            said += [f"{pid} {task}: {(task / 'wchan').read_text()}" for task in Path(f"/proc/{pid}/task").iterdir()]
    return "\n".join(said)


class Killer:
    """Runs jobs and kills workers meanwhile. Needs external synchronisation."""

    def __init__(self, options):
        self.options = options
        self.chance = random.Random(options.seed)
        self.kills, self.processes, self.rounds = 0, 0, 0
        self.took, self.errors, self.notes = [], [], {}

    @property
    def wanted(self):
        return self.kills < self.options.kills

    def note(self, what, number=1):
        self.notes[what] = self.notes.get(what, 0) + number

    def fault(self, where, what):
        self.errors.append(f"round {self.rounds}, {where}: {what}")
        print(self.errors[-1], flush=True)

    def run(self, nodes, job, where):
        """Kills workers of these nodes, one after another, until the job has ended; its result."""
        probes, begins = {node.name: Probe(node.cache) for node in nodes}, {node.name: [] for node in nodes}
        while job.running:
            node = self.chance.choice(nodes)
            rest = time.monotonic() + self.chance.uniform(self.options.least, self.options.most)
            while job.running and time.monotonic() < rest:
                time.sleep(0.01)
            kills = sum(len(some) for some in begins.values())
            if job.running and self.wanted and kills < self.options.per_job:
                begins[node.name].append(time.monotonic())
                self.kill(node, where)
        done = job.wait()
        for node in nodes:
            result = probes[node.name].finish()
            if begins[node.name]:
                self.took += stalls(begins[node.name], [result])
            for error in result["errors"]:
                self.fault(f"{where}, node {node.name}", error)
            self.note("operations of probes", result["operations"])
            self.count(node, len(begins[node.name]), where)
        if done.code != 0 or TROUBLE.search(done.err):
            self.fault(where, f"exit code {done.code}\n{done.out[-2000:]}\n{done.err[-6000:]}")
        return json.loads(done.out.strip().splitlines()[-1]) if done.code == 0 else None

    def kill(self, node, where):
        killed = node.kill_worker()
        self.kills += 1
        try:
            node.next_worker(killed)
        except Failed:
            self.fault(f"{where}, node {node.name}", f"no worker answers after {killed}\n{stacks(node)}{node.log_tail(60)}")
            raise

    def count(self, node, kills, where):
        """Nothing but this has killed workers, and the supervisor those that a host out of breath kept from giving a sign of
        life: that is no error of a worker, and the job must not see one either."""
        restarts, hung = node.status()["takeover"]["restarts"], node.log.read_text().count("supervisor.worker_hung")
        before, hung_before = getattr(node, "counted", (0, 0))
        node.counted = restarts, hung
        self.note("workers replaced because they seemed to hang", hung - hung_before)
        if restarts - before != kills + hung - hung_before:
            self.fault(f"{where}, node {node.name}", f"{restarts - before} restarts after {kills} kills")

    def keep(self, cluster, before):
        """What tells of the round's errors."""
        if self.options.keep and len(self.errors) > before:
            shutil.copytree(cluster.directory, Path(self.options.keep) / f"round {self.rounds}", dirs_exist_ok=True,
                            ignore=lambda directory, names: {"cache", "exchange"} & set(names))

    def until_done(self, round_of):
        while self.wanted:
            self.rounds += 1
            before = len(self.errors)
            with Cluster(torch=self.options.torch, declared=True) as cluster:
                try:
                    round_of(cluster)
                except Failed as why:
                    self.fault("given up", why)
                finally:
                    self.keep(cluster, before)
            print(f"round {self.rounds}: {self.kills} kills, {self.processes} processes, {len(self.errors)} errors", flush=True)


def mounted(cluster, name):
    return cluster.node(name, options=("--crash-limit", "0"))


def plain(options, *command):
    """What the job says on a plain directory."""
    with Cluster(torch=options.torch, declared=True) as cluster:
        node = cluster.node("plain", backing="directory")
        words = [word(node, cluster) if callable(word) else word for word in command]
        return node.run(*words, seconds=900).json


# ---- cpu

def kill_under_cpu_jobs(options):
    killer, expected = Killer(options), plain(options, JOBS)["results"]

    def job(node, where):
        node.compilers.clear()
        out = killer.run([node], node.begin(JOBS), where)
        compiled = sum(node.compilers.counts().get(kind, 0) for kind in COMPILES)
        killer.processes += 1 + sum(node.compilers.counts().values())
        if out and out["results"] != expected:
            killer.fault(where, f"another result: {out['results']}")
        return compiled

    def one(cluster):
        a = mounted(cluster, "a")
        killer.note("compilers of the cold runs", job(a, "cold on a"))
        for _ in range(options.warm):
            if compiled := job(a, "warm on a"):
                killer.fault("warm on a", f"{compiled} compilers ran: {a.compilers.calls()}")
        a.sync(120)
        b = mounted(cluster, "b")
        killer.note("compilers of warm runs on another node", job(b, "warm on b"))
        if compiled := job(b, "again on b"):
            killer.fault("again on b", f"{compiled} compilers ran: {b.compilers.calls()}")

    killer.until_done(one)
    return killer


# ---- storm

def storm(options, directory, *caches):
    return [STORM, *(f"--node={name}={cache}/triton/0" for name, cache in caches), "--processes", options.processes, "--rounds", options.turns,
            "--scratch", directory / "scratch"]


def kill_under_storm(options):
    killer = Killer(options)
    expected = plain(options, STORM, lambda node, _: f"--node=plain={node.cache}/triton/0", "--processes", 1, "--rounds", options.turns,
                     "--scratch", lambda _, cluster: cluster.directory / "scratch")["keys"]

    def job(cluster, nodes, where):
        command = storm(options, cluster.directory, *((node.name, node.cache) for node in nodes))
        out = killer.run(nodes, nodes[0].begin(*command), where)
        killer.processes += options.processes * len(nodes)
        if out is None:
            return 0
        for kind in ("errors", "mixed"):
            for one in out[kind]:
                killer.fault(where, f"{kind}: {one}")
        if out["keys"] != expected:
            killer.fault(where, f"other keys: {out['keys']}")
        return out["compiles"]

    def one(cluster):
        nodes = [mounted(cluster, name) for name in "ab"]
        killer.note("compiles of the cold storms", job(cluster, nodes, "cold"))
        for node in nodes:
            node.sync(120)
        if compiled := job(cluster, nodes, "warm"):
            killer.fault("warm", f"{compiled} compiles")
        later = mounted(cluster, "c")
        for node in (*nodes, later):
            if mixed := triton_sets.mixed_directories(node.cache):
                killer.fault(f"node {node.name}", f"mixed sets: {mixed}")
            killer.note(f"sets on {node.name}", len(triton_sets.groups(node.cache)))

    killer.until_done(one)
    return killer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=("cpu", "storm"))
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--least", type=float, default=HEALTHY, help="seconds from a takeover to the next kill, at least")
    parser.add_argument("--most", type=float, default=0.8, help="and at most")
    parser.add_argument("--torch", default="2.15")
    parser.add_argument("--processes", type=int, default=4, help="storm: of each node")
    parser.add_argument("--turns", type=int, default=6, help="storm: rounds of a storm")
    parser.add_argument("--warm", type=int, default=3, help="cpu: warm runs on the node that has compiled")
    parser.add_argument("--per-job", type=int, default=150, help="at most so many kills of workers of one job")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", help="where stores and logs of rounds with errors go")
    options = parser.parse_args()
    begin = time.monotonic()
    killer = {"cpu": kill_under_cpu_jobs, "storm": kill_under_storm}[options.workload](options)
    print(f"{options.workload}          {killer.kills} kills in {killer.rounds} rounds, {time.monotonic() - begin:.0f} s; "
          f"{killer.processes} processes")
    print(f"stall       p50 {quantile(killer.took, 0.5) * 1e3:.1f} ms, p99 {quantile(killer.took, 0.99) * 1e3:.1f} ms, "
          f"max {max(killer.took) * 1e3:.1f} ms")
    for what, number in killer.notes.items():
        print(f"{what}: {number}")
    print(f"errors      {len(killer.errors)}")
    return 1 if killer.errors else 0


if __name__ == "__main__":
    sys.exit(main())
