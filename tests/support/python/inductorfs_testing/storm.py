# SPDX-License-Identifier: Apache-2.0
"""Two nodes on small disks of their own, to which everything happens in turn: kills, upgrades, full disks, and what their server
can do (tests/cluster/test_storm.py). One thing at a time, so that what `sync` says is held against the server at once."""
import errno
import json
import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

from . import artefacts, chaos_worker, compare, places
from .disks import Ext4, fill, give_back, take_inodes
from .mounts import appears
from .processes import Failed, run, wait_until

# A storm kills workers more often than a crash limit allows; in safe mode nothing would be published.
UNLIMITED = ("--crash-limit", "0")
MEGABYTES, INODES = 96, "16384"
SYNC_SOON, SYNC_BOUND = 5, 60  # seconds; the longest back-off is 30 s
APPEARS_BOUND = 45.0
SETTLE_EVERY = 12  # steps
SAMPLE = 250       # of what has been checked on a node before
GROUP = "__grp__k.json"
RESERVE = ("reserve", "reserve.1", "reserve.2", "reserve.3")  # src/store/directory.cc; an older program keeps the first alone
TOLD = 80


@dataclass(eq=False)
class Made:
    """A file, or a Triton set, which is named by its group file."""
    name: str
    host: "Host"
    seed: str = ""          # of a set
    shared_key: bool = False  # the other node may have been first
    acknowledged: bool = False
    poor: bool = False      # its disk was full then
    filled: int = 0         # how often its disk had been full
    away: int = 0           # which absence of the server it was written in
    losses: int = 0         # of the server's, when it was written, or last acknowledged
    seen: set = field(default_factory=set)  # hosts on which it was found right


class Host:
    """A node with its disk."""

    def __init__(self, cluster, name, remote):
        self.name, self.cluster = name, cluster
        self.disk = Ext4(cluster.directory / f"disk of {name}", MEGABYTES, ("-N", INODES))
        self.disk.mount()
        self.node = cluster.host(name, remote=remote, start=False)
        self.node.store = self.disk.path / "store"
        self.mounted, self.full, self.filled = False, None, 0
        self.private = {}

    def command(self, program, *words, seconds=60):
        return run(["nsenter", f"--net=/run/netns/{self.node.host}", program, *words], self.node.env(), seconds)

    def mount(self, program):
        """Refused only on a full disk whose reserve the start before has used."""
        has_reserve = all((self.node.store / name).exists() for name in RESERVE)
        done = self.command(program, "mount", self.node.cache, "--store", self.node.store, "--log", self.node.log, "--remote",
                            self.node.remote, *self.cluster.options(*UNLIMITED))
        self.mounted = done.code == 0
        if self.mounted:
            return
        if not self.full or has_reserve or "space" not in done.err:
            raise Failed(f"{self.name} cannot be mounted again: {done.code}: {done.err}{self.node.log_tail()}")

    def on_disk(self, name):
        return os.path.lexists(self.node.store / "files" / "view" / name)

    def close(self):
        self.node.stop()
        self.disk.__exit__()


class Storm:
    """`servers` is one of the arrangements of test_storm.py. close() ends all but the cluster, whatever state it is in. Needs external
    synchronisation."""

    def __init__(self, cluster, servers, seed, programs):
        self.cluster, self.servers, self.seed = cluster, servers, seed
        self.random = random.Random(seed)
        self.programs = programs
        self.hosts, self.made, self.told = [], [], []
        self.counts, self.excused, self.number, self.losses = {}, 0, 0, 0
        self.absence = 0
        self.heal = None  # what brings the server back, while it is away

    def start(self):
        for name in ("a", "b"):
            self.hosts.append(Host(self.cluster, name, self.servers.url))
            self.hosts[-1].mount(self.programs[0])
        return self

    def close(self):
        for host in self.hosts:
            host.close()

    def say(self, what):
        self.told.append(f"{time.monotonic():.2f} {what}")
        self.count(what.split(" ")[0])

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def other(self, host):
        return self.hosts[1 - self.hosts.index(host)]

    # ---- steps on a node

    def write(self, host):
        for _ in range(self.random.randrange(1, 5)):
            kind = self.random.choices(["file", "set", "shared set", "private"], [6, 2, 1, 2])[0]
            self.number += 1
            if not host.mounted:
                continue
            try:
                self._write(host, kind, self.number)
            except OSError as error:
                if not host.full or error.errno != errno.ENOSPC:
                    raise
                self.count("no space")
        self.say(f"write {host.name}")

    def _write(self, host, kind, number):
        cache, made = host.node.cache, None
        if kind == "private":
            name = f"own/{number % 40}"
            content = chaos_worker.content_of(f"{name} {number}")
            host.private.pop(name, None)  # if it fails the name has the one or the other
            artefacts.write_atomic(cache, name, content)
            host.private[name] = content
            return
        if kind == "file":
            made = Made(chaos_worker.name_of(self.seed, host.name, number), host)
            artefacts.write_atomic(cache, made.name, chaos_worker.content_of(made.name))
        else:
            seed = f"storm {self.seed} {host.name} {number}" if kind == "set" else f"storm {self.seed} both {number // 20}"
            made = Made(f"{chaos_worker.kernel_directory(seed)}/{GROUP}", host, seed, kind != "set")
            if self.writer_of(host, seed) is None:
                directory = cache / chaos_worker.kernel_directory(seed)
                paths = {}
                for name in artefacts.TRITON_FILES:
                    artefacts.triton_put(directory, name, chaos_worker.kernel_file(host.name, name))
                    paths[name] = str(directory / name)
                artefacts.triton_put(directory, GROUP, json.dumps({"child_paths": paths}))
            elif any(one.name == made.name for one in self.made):
                return
        made.poor, made.filled, made.losses = bool(host.full), host.filled, self.losses
        made.away = self.absence if self.heal else 0
        self.made.append(made)
        if not self.is_right(host, made):
            raise Failed(f"{host.name} lacks what it has just written: {self.explain(host, made.name)}")

    def remove(self, host):
        """Here alone, so that nobody can say afterwards where it has to be."""
        mine = [made for made in self.made if made.host is host and not made.seed]
        if not mine or not host.mounted:
            return
        made = self.random.choice(mine)
        self.say(f"remove {host.name}")
        try:
            os.unlink(host.node.cache / made.name)
        except FileNotFoundError:
            if not host.filled and not self.heal:
                raise
        self.made.remove(made)

    def read(self, host):
        """A miss is none of what a node has to itself, and was never full."""
        if not host.mounted or not self.made:
            return
        self.say(f"read {host.name}")
        for made in self.random.sample(self.made, min(8, len(self.made))):
            may_go = made.poor or made.filled != host.filled or made.shared_key
            if not self.is_right(host, made) and made.host is host and not may_go:
                raise Failed(f"{host.name} lacks its own: {self.explain(host, made.name)}")
        self.check_private(host)

    def kill_worker(self, host):
        if host.mounted:
            self.say(f"kill-worker {host.name}")
            host.node.next_worker(host.node.kill_worker(), 30)

    def kill_daemon(self, host):
        self._mount_again(host, "kill-daemon", host.node.kill_daemon)

    def remount(self, host):
        self._mount_again(host, "unmount", host.node.unmount)

    def _mount_again(self, host, word, end):
        if host.mounted:
            self.say(f"{word} {host.name}")
            end()
            host.mounted = False
        self.mount(host)

    def mount(self, host):
        program = self.random.choice(self.programs)
        host.mount(program)
        self.say(f"{'mount' if host.mounted else 'refused'} {host.name} {self.programs.index(program)}")
        if host.mounted:
            self.check_private(host)

    def upgrade(self, host):
        program = self.random.choice(self.programs)
        if not host.mounted:
            return
        self.say(f"upgrade {host.name} {self.programs.index(program)}")
        done = host.command(program, "upgrade", host.node.cache, "--program", program)
        if done.code == 0:
            served = os.readlink(f"/proc/{host.node.worker()}/exe")
            assert served == str(program), served
        elif not host.full or "goes on serving" not in done.err:
            raise Failed(f"upgrade of {host.name}: {done.code}: {done.err}{host.node.log_tail()}")

    def fill(self, host):
        self._take(host, fill)

    def fill_inodes(self, host):
        self._take(host, take_inodes)

    def _take(self, host, take):
        if not host.full:
            self.say(f"{take.__name__} {host.name}")
            host.full, host.filled = take.__name__, host.filled + 1
            take(host.disk.path)

    def free(self, host):
        if host.full:
            self.say(f"free {host.name}")
            give_back(host.disk.path)
            host.full = None

    # ---- steps of the server

    def server(self, fault):
        """Whatever is away comes back first."""
        self.server_back()
        self.say(f"{fault.__name__}")
        self.heal, self.absence = fault(self), self.absence + 1

    def server_back(self):
        if self.heal:
            self.heal, heal = None, self.heal
            heal()
            self.say("server-back")

    def lose(self):
        """From here on the server may lack what it has acknowledged."""
        self.losses += 1

    # ---- what must hold

    def sync(self, host, seconds=SYNC_SOON):
        """The word of `sync`: what was written here is in the index of the server that the cluster has, now."""
        if not host.mounted:
            return False
        done = host.node.cli("sync", host.node.cache, "--timeout", seconds, seconds=seconds + 30)
        self.say(f"sync {host.name} {done.code} {done.err.strip()[:200]}")
        # 3: since this worker began there is nothing but what a full disk has cut short, a set without its group file.
        if done.code not in (0, 1, 3) or (done.code == 0) == bool(done.err.strip()) or (done.code == 3 and not host.filled):
            raise Failed(f"sync of {host.name}: {done}")
        if done.code == 1:
            return False
        mine = [made for made in self.made if made.host is host]
        if self.heal:
            fresh = [made.name for made in mine if made.away == self.absence]
            if fresh and not self.servers.answers():
                raise Failed(f"sync of {host.name} acknowledges what no server can have: {fresh}")
        else:
            self.check_index(host, mine)
        for made in mine:
            if not made.acknowledged:
                made.acknowledged, made.losses = True, self.losses
        return True

    def sync_when_well(self, host):
        """Only what found no room is tried again some quiet times later, and sync says so at once."""
        is_done = self.sync(host, SYNC_BOUND)
        if not is_done and "or its disk is full" not in self.told[-1]:
            raise Failed(f"{host.name} cannot sync though all is well: {self.told[-1]}{host.node.log_tail()}")
        return is_done

    def check_index(self, host, mine):
        index = self.servers.index()
        for made in mine:
            if compare.canonical(made.name) in index or made not in self.made or self.is_excused(host, made):
                continue
            raise Failed(f"sync of {host.name} said 0, and the cluster lacks {made.name}: {self.explain(host, made.name)}")

    def is_excused(self, host, made):
        """It was published, given up for who wrote to the full disk, and then lost by the server; or it is private, as sync says, because its
        marks found no room; or the other node's set had been there before it."""
        was_full = made.poor or host.filled > made.filled
        gone = was_full and self.losses > made.losses and not host.on_disk(made.name)
        second = made.shared_key and self.losses > 0
        if gone or second or (made.poor and self.is_private(host, made)):
            self.excused += 1
            self.made.remove(made)
            return True
        return False

    @staticmethod
    def is_private(host, made):
        try:
            return bool(os.getxattr(host.node.cache / made.name, "user.inductorfs.private"))
        except OSError as error:
            if error.errno not in (errno.ENODATA, errno.ENOENT):
                raise
            return False

    def is_right(self, host, made):
        """False is a miss; wrong bytes are an error at any time."""
        try:
            if made.seed:
                writer = self.writer_of(host, made.seed)
                if writer and not made.shared_key and writer != made.host.name:
                    raise Failed(f"{made.name} is of {writer}, who never wrote it")
                return writer is not None
            data = (host.node.cache / made.name).read_bytes()
        except FileNotFoundError:
            return False
        if data != chaos_worker.content_of(made.name):
            raise Failed(f"{host.name} has wrong bytes of {made.name}: {len(data)}: {data[:80]!r}")
        return True

    def writer_of(self, host, seed):
        """The one writer of a whole set, or None for a miss."""
        directory = host.node.cache / chaos_worker.kernel_directory(seed)
        try:
            children = json.loads((directory / GROUP).read_bytes())["child_paths"]
        except FileNotFoundError:
            return None
        writers = set()
        for name, path in children.items():
            assert path == str(directory / name), path
            data = Path(path).read_bytes()  # a child that a visible group names is there
            writers.add(writer := chaos_worker.kernel_writer(name, data))
            if data != chaos_worker.kernel_file(writer, name):
                raise Failed(f"{host.name} has wrong bytes of {path}: {data[:80]!r}")
        if sorted(children) != sorted(artefacts.TRITON_FILES) or len(writers) != 1:
            raise Failed(f"a mixed set on {host.name}: {directory}: {writers}")
        return writers.pop()

    def check_private(self, host):
        for name, content in host.private.items():
            if (host.node.cache / name).read_bytes() != content:
                raise Failed(f"{host.name} has wrong bytes of {name}")

    def settle(self, everything=False):
        """No fault is left: all that was acknowledged is right on both nodes."""
        self.server_back()
        wait_until(self.servers.in_step, 90, "the servers", pause=0.1)
        for host in self.hosts:
            self.free(host)
            if not host.mounted:
                self.mount(host)
        for host in self.hosts:
            wait_until(lambda host=host: self.sync_when_well(host), SYNC_BOUND, f"room on {host.name}", pause=0.2)
        for host in self.hosts:
            wait_until(lambda host=host: host.node.status()["remote"]["reachable"], SYNC_BOUND, f"{host.name} to reach the server", pause=0.1)
            assert not host.node.status()["takeover"]["safe_mode"]
            self.check_private(host)
            known = [made for made in self.made if host in made.seen]
            chosen = known if everything else self.random.sample(known, min(SAMPLE, len(known)))
            for made in [made for made in self.made if host not in made.seen] + chosen:
                self.check_there(host, made)
        self.say("settled")

    def check_there(self, host, made):
        if not self.is_right(host, made):
            appears(host.node.cache / made.name, APPEARS_BOUND)
            if not self.is_right(host, made):
                raise Failed(f"{host.name} lacks {made.name}: {self.explain(host, made.name)}")
        made.seen.add(host)

    def explain(self, host, name):
        return "".join(one.node.explain(name) for one in (host, self.other(host)) if one.mounted) + host.node.log_tail()

    # ---- the storm

    def deck(self):
        """Each kind of step some times, so that a short storm has all of them."""
        on_nodes = [self.write] * 6 + [self.sync] * 4 + [self.read] * 2 + [self.upgrade] * 2 + [
            self.kill_worker, self.kill_worker, self.kill_daemon, self.remount, self.fill, self.fill_inodes, self.free, self.remove]
        cards = [(step, host) for step in on_nodes for host in self.hosts]
        cards += [(self.server, fault) for fault in self.servers.faults] + [(lambda _: self.server_back(), None)] * len(self.servers.faults)
        self.random.shuffle(cards)
        return cards

    def run(self, seconds):
        """Whole decks, until the time is over."""
        end, steps = time.monotonic() + seconds, 0
        try:
            while not steps or time.monotonic() < end:
                for step, what in self.deck():
                    step(what)
                    steps += 1
                    if steps % SETTLE_EVERY == 0:
                        self.settle()
            self.settle(everything=True)
            for host in self.hosts:
                host.node.unmount()
                sound = run([places.program(), "check", "--store", host.node.store])
                assert sound.code == 0, sound.out + sound.err
        except Exception as error:
            raise Failed(f"{type(error).__name__}: {error}\nINDUCTORFS_CHAOS_SEED={self.seed}, step {steps}, of:\n" +
                         "\n".join(self.told[-TOLD:])) from error
        acknowledged = sum(made.acknowledged for made in self.made)
        assert acknowledged > 0
        return (f"seed {self.seed}: {steps} steps {dict(sorted(self.counts.items()))}; {acknowledged} acknowledged and everywhere, "
                f"{self.excused} excused, {self.losses} losses")
