# SPDX-License-Identifier: Apache-2.0
"""A job for tests/cluster/test_chaos.py: one process that uses a mount as torch and Triton do, checks what it sees, and
never stops at an error. Each artefact's content is a function of its name, so that every reader can check every byte.

Writes lines of JSON into a file outside of the mount: {"written": number, "at": seconds}, {"kernel": key}, {"acked": number,
"kernels": number}, {"error": ..., "since": seconds of the last answer}, {"slow": ...}, {"broken": promise, ...}, at its end
{"counts": ..., "slowest": ...}."""
import errno
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from . import artefacts

SLOW = 0.25
SYNC_EVERY = (1.5, 4.0)
SYNC_SECONDS = 5
SIZES = ((0.6, 300), (0.9, 20_000), (1.0, 200_000))


def name_of(run, node, number):
    return artefacts.code(f"chaos {run} {node} {number}")


def content_of(name):
    """Text that only this name has."""
    place = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / 2**32
    size = next(size for share, size in SIZES if place <= share)
    return f"// {name}\n".encode() + hashlib.shake_256(name.encode()).hexdigest(size // 2).encode()


def kernel_seed(run, second, index):
    return f"chaos {run} {second} {index}"


def kernel_directory(seed, device="0"):
    return f"triton/{device}/{artefacts.triton_key(seed)}"


def kernel_file(writer, name):
    filler = hashlib.shake_256(f"{writer} {name}".encode()).hexdigest(600)
    if name.endswith(".json"):
        return json.dumps({**artefacts.TRITON_METADATA, "writer": writer, "filler": filler}).encode()
    return f"{writer} {filler}".encode()


def kernel_writer(name, data):
    if name.endswith(".json"):
        return json.loads(data)["writer"]
    return data.split(b" ")[0].decode()


class Broken(Exception):
    """A promise that was not kept."""


class Job:
    """Works below the current directory, which is the mount's root: when the daemon dies, every operation says ENOTCONN,
    and none can reach the directory under the mount."""

    def __init__(self, cache, node, peers, run, directory, program, seed, sets_may_go, kernels_only):
        """`sets_may_go`: the server may lose what it has. A set that came second to the cluster's stays its writer's own for
        the life of its daemon only, and is a miss when both are gone."""
        self.sets_may_go, self.kernels_only = sets_may_go, kernels_only
        self.cache, self.node, self.peers, self.run = cache, node, peers, run
        self.directory, self.program = Path(directory), program
        self.random = random.Random(f"{seed} {node}")
        self.log = os.open(self.directory / f"{node}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.progress = {name: os.open(self.directory / f"{name}.progress", os.O_RDWR | os.O_CREAT, 0o644)
                         for name in [node, *peers]}
        self.written, self.tried, self.kernels = [], 0, []
        self.counts, self.slowest, self.over = {}, {}, False
        self.answered = time.monotonic()  # when the mount was last seen to be served
        self.sync, self.sync_at = None, 0.0
        signal.signal(signal.SIGTERM, self.end)

    def end(self, *_):
        self.over = True

    def tell(self, **what):
        os.write(self.log, (json.dumps({**what, "now": time.monotonic()}) + "\n").encode())

    # ---- the mount

    def attach(self):
        """Into the mount's root; waits for it after its daemon was killed."""
        around = os.stat(os.path.dirname(self.cache)).st_dev
        while not self.over:
            try:
                os.chdir(self.cache)
                if os.stat(".").st_dev != around:
                    self.answered = time.monotonic()
                    return
            except OSError as error:
                if error.errno not in (errno.ENOTCONN, errno.ECONNABORTED):
                    self.tell(error=error.errno, kind="attach", subject=self.cache)
            os.chdir("/")
            time.sleep(0.01)

    def attempt(self, operation):
        kind, begin = operation.__name__, time.monotonic()
        subject = []
        try:
            outcome = operation(subject)
        except Broken as broken:
            outcome = "broken"
            self.tell(broken=str(broken), kind=kind, subject=subject)
        except FileNotFoundError as absent:
            # Only where a miss is no answer: all others handle it.
            outcome = "broken"
            self.tell(broken=f"not there: {absent.filename}", kind=kind, subject=subject)
        except OSError as error:
            outcome = errno.errorcode.get(error.errno, str(error.errno))
            self.tell(error=error.errno, kind=kind, subject=subject, path=str(error.filename), since=self.answered)
            if error.errno in (errno.ENOTCONN, errno.ECONNABORTED):
                self.attach()
                return
        self.answered = time.monotonic()
        took = self.answered - begin
        self.counts[f"{kind} {outcome}"] = self.counts.get(f"{kind} {outcome}", 0) + 1
        self.slowest[kind] = max(self.slowest.get(kind, 0.0), took)
        if took > SLOW:
            self.tell(slow=took, kind=kind, subject=subject)

    def check(self, name, data):
        if data != content_of(name):
            wanted = content_of(name)
            at = next((i for i, (a, b) in enumerate(zip(data, wanted)) if a != b), min(len(data), len(wanted)))
            raise Broken(f"wrong bytes: {name}: {len(data)} of {len(wanted)}, other from {at}: {data[at:at + 20]!r}")

    # ---- what jobs do

    def write(self, subject):
        self.tried += 1
        name = name_of(self.run, self.node, self.tried)
        subject.append(name)
        artefacts.write_atomic(Path("."), name, content_of(name))
        self.written.append(self.tried)
        self.tell(written=self.tried, at=time.monotonic())
        os.pwrite(self.progress[self.node], b"%010d" % self.tried, 0)
        self.check(name, Path(name).read_bytes())  # one's own write is there at once
        return "done"

    def read_own(self, subject):
        if not self.written:
            return "nothing"
        name = name_of(self.run, self.node, self.random.choice(self.written))
        subject.append(name)
        data = Path(name).read_bytes()
        self.check(name, data)
        if os.stat(name).st_size != len(data):
            raise Broken(f"size and bytes differ: {name}")
        return "done"

    def list_own(self, subject):
        if not self.written:
            return "nothing"
        name = name_of(self.run, self.node, self.random.choice(self.written))
        subject.append(name)
        if os.path.basename(name) not in os.listdir(os.path.dirname(name)):
            raise Broken(f"not listed: {name}")
        return "done"

    def read_other(self, subject):
        peer = self.random.choice(self.peers)
        last = int(os.pread(self.progress[peer], 10, 0) or b"0")
        if not last:
            return "nothing"
        # The newest are those whose way here is the longest; a number that failed was never written by anybody.
        number = max(1, last - int(self.random.expovariate(0.05)))
        name = name_of(self.run, peer, number)
        subject.append(name)
        try:
            with open(name, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return "miss"
        self.check(name, data)
        return "hit"

    def kernel(self, subject):
        """What all nodes compile at the same time; whoever misses writes a set of his own."""
        seed = kernel_seed(self.run, int(time.monotonic()), self.random.randrange(2))
        subject.append(kernel_directory(seed))
        if self.kernel_get(seed) is not None:
            return "hit"
        directory = Path(kernel_directory(seed))
        paths = {}
        for name in artefacts.TRITON_FILES:
            artefacts.triton_put(directory, name, kernel_file(self.node, name))
            paths[name] = f"{self.cache}/{directory}/{name}"
        artefacts.triton_put(directory, "__grp__k.json", json.dumps({"child_paths": paths}))
        self.kernels.append(seed)
        self.tell(kernel=seed, at=time.monotonic())
        return "compiled" if self.own_kernel(seed) else "lost"

    def read_kernel(self, subject):
        if not self.kernels:
            return "nothing"
        seed = self.random.choice(self.kernels)
        subject.append(kernel_directory(seed))
        return "done" if self.own_kernel(seed) else "lost"

    def own_kernel(self, seed):
        if self.kernel_get(seed) is not None:
            return True
        if self.sets_may_go:
            return False
        group = f"{kernel_directory(seed)}/__grp__k.json"
        raise Broken(f"a set that was written is not there: {self.explain(group)}")

    def explain(self, name):
        done = subprocess.run([self.program, "explain", f"{self.cache}/{name}"], stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=30, cwd="/", check=False)
        return done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")

    def kernel_get(self, seed):
        """triton/runtime/cache.py: FileCacheManager.get_group; the one writer of a whole set, or None for a miss."""
        directory = Path(kernel_directory(seed))
        artefacts.make_directories(directory)
        try:
            children = json.loads((directory / "__grp__k.json").read_bytes())["child_paths"]
        except FileNotFoundError:
            return None
        writers = {}
        for name, path in children.items():
            if not path.startswith(f"{self.cache}/{directory}/"):
                raise Broken(f"the group names a path of elsewhere: {path}")
            relative = path[len(self.cache) + 1:]
            os.stat(relative)  # has_file; a child that a visible group names is there
            data = Path(relative).read_bytes()
            writer = kernel_writer(name, data)
            if data != kernel_file(writer, name):
                raise Broken(f"wrong bytes: {relative}: {data[:60]!r}")
            writers[name] = writer
        if sorted(writers) != sorted(artefacts.TRITON_FILES) or len(set(writers.values())) != 1:
            raise Broken(f"a mixed set: {directory}: {writers}")
        return writers["k.json"]

    def private(self, subject):
        """Locks and build directories, which are this host's."""
        name = f"locks/{self.random.randrange(50)}.lock"
        subject.append(name)
        artefacts.make_directories("locks")
        Path(name).write_bytes(b"held")
        if Path(name).read_bytes() != b"held":
            raise Broken(f"wrong bytes: {name}")
        os.unlink(name)
        return "done"

    # ---- beside the work

    def look_after_sync(self):
        """`inductorfs sync` now and then: what was written before it began is in the cluster when it returns 0."""
        if self.sync is None and time.monotonic() > self.sync_at:
            counts = {"acked": self.written[-1] if self.written else 0, "kernels": len(self.kernels)}
            child = subprocess.Popen([self.program, "sync", self.cache, "--timeout", str(SYNC_SECONDS)], cwd="/",
                                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.sync = child, counts
        elif self.sync is not None and self.sync[0].poll() is not None:
            child, counts = self.sync
            if child.returncode == 0:
                self.tell(**counts)
            self.counts[f"sync {child.returncode}"] = self.counts.get(f"sync {child.returncode}", 0) + 1
            self.sync, self.sync_at = None, time.monotonic() + self.random.uniform(*SYNC_EVERY)

    def work(self, pause):
        operations = [self.write, self.read_own, self.list_own, self.read_other, self.kernel, self.read_kernel, self.private]
        weights = [0, 0, 0, 0, 8, 7, 0] if self.kernels_only else [30, 20, 5, 25, 8, 7, 5]
        self.attach()
        while not self.over:
            self.attempt(self.random.choices(operations, weights)[0])
            if not self.kernels_only:
                self.look_after_sync()
            time.sleep(self.random.uniform(0, 2 * pause))
        os.chdir("/")
        if self.sync is not None:
            self.sync[0].kill()
            self.sync[0].wait()
        self.tell(counts=self.counts, slowest=self.slowest)


def main():
    settings = json.loads(sys.argv[1])
    pause = settings.pop("pause")
    Job(**settings).work(pause)


if __name__ == "__main__":
    main()
