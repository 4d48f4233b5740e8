# SPDX-License-Identifier: Apache-2.0
"""One node: a temporary directory, a home, a store, a mountpoint and tools of its own. Backed by a real inductorfs mount,
or, to try a workload without one, by a plain directory whose content goes to other nodes by copying."""
import contextlib
import getpass
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

from . import compare, documented, places
from .processes import PATIENCE, Failed, Job, run, wait_until
from .toolchain import CountingCompilers

# What of this process's environment would reach into a job.
FOREIGN = re.compile(r"^(TORCH|TRITON|INDUCTORFS|PYTEST|PYTHON|LD_PRELOAD|FAKE_CUDA|NOGPU|XDG_|MESON|MALLOC_PERTURB)")
# Counters of the fuse module that count no request of the kernel, and the sum of all of them.
NO_REQUEST = {"fuse.requests", "fuse.nanoseconds", "fuse.slow", "fuse.forget", "fuse.notify_name", "fuse.notify_content",
              "fuse.notify_unknown", "fuse.lost_replies", "fuse.resumed", "fuse.resent"}
BACKING = os.environ.get("INDUCTORFS_TEST_BACKING", "mount")


def let_through(directory):
    """The worker of root's mount is a user of its own, and has to reach its store: a temporary directory is closed to all but its maker."""
    shared = Path(tempfile.gettempdir())
    for above in (directory, *directory.parents):
        if above == shared or shared not in above.parents or above.stat().st_uid != os.geteuid():
            return
        above.chmod(above.stat().st_mode | 0o011)


class Node:
    """Needs start() before use; stop() cleans up whatever state it is in. `cache` is the mountpoint. Jobs of a node with a Python come to it as
    docs/tutorial.md says: the mount is told of nothing, and their variables are those that `inductorfs env` prints."""

    def __init__(self, root: Path, remote=None, python=None, backing=None, exchange: Path = None, environment=None,
                 patient=False, declared=False):
        """`declared`: the mount is told of the Python (`--python`), which makes it one of one environment. `patient`: a lookup waits 3 s for the server, not the usual 250 ms. For tests that count hits: on a machine that compiles
        beside, the server may be without a core for longer than that, which is a miss."""
        self.root, self.remote, self.python = root, remote, python
        self.name = root.name
        self.backing = backing or BACKING
        self.patient, self.declared = patient, declared
        self._exchange = exchange  # the "cluster" of directory-backed nodes
        self._environment = dict(environment or {})
        self.cache, self.store, self.home, self.tmp = root / "cache", root / "store", root / "home", root / "tmp"
        self.log = root / "daemon.log"
        self.enter = []  # a command that runs the inductorfs command in other namespaces (containers.Sidecar)
        self.spellings = [self.cache]  # of the mountpoint, on the command lines of its daemons
        for directory in (self.cache, self.store, self.home, self.tmp):
            directory.mkdir(parents=True)
        let_through(root)
        self.compilers = CountingCompilers(root / "tools", root / "compilers.log")
        self._jobs, self._count = [], 0
        self._variables = None

    # ---- what jobs see

    @property
    def default_cache(self):
        """Where torch puts the precompiled headers, whatever TORCHINDUCTOR_CACHE_DIR says."""
        return self.tmp / f"torchinductor_{getpass.getuser()}"

    def plain_env(self):
        """The environment of this node's programs without the variables of any cache."""
        env = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
        env.update(TMPDIR=str(self.tmp), HOME=str(self.home), PATH=f"{self.root / 'tools'}{os.pathsep}{os.environ['PATH']}",
                   PYTHONNOUSERSITE="1", PYTHONDONTWRITEBYTECODE="1",
                   INDUCTORFS_END_ON_REFUSED_CALL="yes")  # of a worker, so that nothing passes beside one (base/call_filter.h)
        env.update(self._environment)
        return env

    def variables(self):
        """Those that lead a job to the mount."""
        if self.backing == "directory":
            return {"TORCHINDUCTOR_CACHE_DIR": str(self.cache), "TRITON_CACHE_DIR": str(self.cache / "triton_cache")}
        if not self.python or self.declared:  # no job of torch, or the variant: some tests add variables one by one
            return {"TORCHINDUCTOR_CACHE_DIR": str(self.cache)}
        if self._variables is None:
            self._variables = documented.variables(self.cache, self.plain_env())
        return self._variables

    def env(self, **more):
        """The environment of a job."""
        return {**self.plain_env(), **self.variables(), **self._environment, **{name: str(value) for name, value in more.items()}}

    def begin(self, *command, **environment) -> Job:
        """Starts a job: arguments for this node's Python."""
        self._count += 1
        job = Job([self.python, *command], self.env(**environment), self.root / "jobs", f"{self._count:02}")
        self._jobs.append(job)
        return job

    def run(self, *command, seconds=600, **environment):
        return self.begin(*command, **environment).wait(seconds)

    # ---- the mount

    def start(self, *options):
        if self.backing == "directory":
            self._receive()
            return self
        if not places.program().exists():
            raise Failed(f"{places.program()} is not built")
        if once := self._environment.get("INDUCTORFS_FAIL_POINT_ONCE"):  # the worker makes it
            let_through(Path(once).parent)
            Path(once).parent.chmod(0o777)
        arguments = ["--store", self.store, "--log", self.log, *options]
        if self.remote:
            arguments += ["--remote", self.remote]
        self._variables = None
        if self.declared and "--fingerprint" not in options:  # they exclude each other
            arguments += ["--python", self.python]
        if not self.python and "--writers" not in options:
            arguments += ["--writers", "all"]  # programs without torch write to a node without one
        if self.patient and "--lookup-patience" not in options:
            arguments += ["--lookup-patience", "3000"]
        done = self.cli("mount", self.cache, *arguments, seconds=60)
        if done.code != 0:
            raise Failed(f"mount of {self.name}: exit code {done.code}: {done.err}{self.log_tail()}")
        if not compare.is_mounted(self.cache):
            raise Failed(f"mount of {self.name} returned 0, but nothing is mounted: {done.out}{done.err}")
        return self

    def cli(self, *words, seconds=60):
        """Runs the inductorfs command; the first word is its subcommand."""
        return run([*self.enter, places.program(), *words], self.plain_env() if self.python else self.env(), seconds)

    def status(self):
        done = self.cli("status", self.cache, "--json")
        if done.code != 0:
            raise Failed(f"status of {self.name}: {done.err}")
        return json.loads(done.out)

    @property
    def control_socket(self):
        """Where the program's commands ask the mount's daemon (src/config/paths.cc; the environment of a node has no XDG_RUNTIME_DIR)."""
        runtime = Path("/run/inductorfs" if os.geteuid() == 0 else f"/tmp/inductorfs-{os.geteuid()}")
        return runtime / f"{hashlib.sha256(os.fsencode(self.cache)).hexdigest()[:16]}.sock"

    @property
    def guests_socket(self):
        """Where those of other users ask the daemon of root's mount."""
        return self.control_socket.with_name(self.control_socket.name + ".guests")

    def ask(self, request):
        """One request on the control socket (include/inductorfs/control/requests.h), in a fraction of the time that a command takes."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(20)
            connection.connect(str(self.control_socket))
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as answers:
                answer = json.loads(answers.readline())
        if not answer["ok"]:
            raise Failed(f"{request} of {self.name}: {answer['error']}")
        return answer["result"]

    def guest_hears(self, request):
        """The line that another user is answered. Root's mounts only."""
        asking = ("import contextlib, socket, sys\nwith socket.socket(socket.AF_UNIX) as control:\n    control.connect(sys.argv[1])\n"
                  "    with contextlib.suppress(BrokenPipeError):  # who is turned away is told before he has asked\n"
                  "        control.sendall(sys.argv[2].encode() + b'\\n')\n    sys.stdout.buffer.write(control.makefile('rb').readline())")
        return run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c", asking, self.guests_socket,
                    json.dumps(request)]).out

    def counters(self):
        return {} if self.backing == "directory" else self.status()["counters"]

    def requests(self):
        """What the kernel has asked the daemon so far, by operation (FORGET has no answer and is not among them)."""
        return {name: value for name, value in self.counters().items()
                if name.startswith("fuse.") and name not in NO_REQUEST and value}

    def sync(self, seconds=60):
        if self.backing == "directory":
            self._send()
            return
        done = self.cli("sync", self.cache, "--timeout", seconds * PATIENCE, seconds=seconds + 20)
        if done.code not in (0, 3):  # 3: all that was written stays on this host, which some tests are about
            raise Failed(f"sync of {self.name}: exit code {done.code}: {done.err}{self.log_tail()}")

    def catch_up(self, other, seconds=20):
        """Waits until this node lists what the other's shared families list (its tail of the log is rate-limited)."""
        if self.backing == "directory":
            self._receive()
            return
        if self.python and not self.declared:
            self._catch_up_as_learned(other, seconds)
            return
        wanted = compare.shared_names(other.cache)

        def missing():
            return sorted(wanted - compare.shared_names(self.cache))

        try:
            wait_until(lambda: not missing(), seconds, "catching up", pause=0.1)
        except Failed:
            left = missing()[:8]
            told = "".join(node.explain(name) for name in left[:2] for node in (other, self))
            raise Failed(f"{self.name} does not list, {seconds} s after sync, {left}\n"
                         f"{told}{other.log_tail()}{self.log_tail()}") from None

    def _catch_up_as_learned(self, other, seconds):
        """A mount that has met no environment asks the cluster when the first job comes, and a program without torch is shown no names of the
        cluster that no job has asked for. So what both know is compared."""
        def entries(node):
            return node.status()["catalog"]["entries"]

        met = any("environment" in root for root in self.status()["file_system"]["first_roots"])
        if met:
            wait_until(lambda: entries(self) == entries(other), seconds, f"{self.name} to know what {other.name} knows", pause=0.1)

    def explain(self, name):
        """What the mount says of a name, for the report of a failure."""
        done = self.cli("explain", self.cache / name)
        return f"{self.name}: {done.out}{done.err}"

    def _processes(self, name, *words):
        """Pids of the processes with this program's name whose command line goes on like this."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    line = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                except OSError:
                    continue
                if os.path.basename(line[0]) != name or line[1:1 + len(words)] != list(words):
                    continue
                if any(str(spelling) in line for spelling in self.spellings):
                    found.append(int(entry.name))
        return found

    def daemons(self):
        """Pids of the processes that serve this mountpoint: one, or none while a worker is being replaced."""
        found = self._processes("inductorfs", "worker")
        # One that a worker has just forked is called the same until it becomes the program that it is to run.
        return [pid for pid in found if parent(pid) not in found and comm(pid) != "inductorfs-mess"]

    def supervisors(self):
        """Pids of the processes that keep this mount, and start another worker when one ends."""
        found = self._processes("inductorfs-supervisor")
        return [pid for pid in found if parent(pid) not in found]  # it writes its log by children

    def messengers(self):
        """Pids of the processes that tell the kernel what to forget."""
        own = [pid for pid in self._processes("inductorfs", "worker") if comm(pid) == "inductorfs-mess"]
        return self._processes("inductorfs-messenger") + own

    def proxies(self):
        """Pids of the processes that other users' connections to the control socket come to; root's mounts only."""
        return self._processes("inductorfs-proxy")

    def examiners(self):
        """Pids of the processes that have others looked at."""
        return [pid for pid in self._processes("inductorfs", "examiner") if comm(pid) == "inductorfs-exam"]

    def examiner_children(self):
        """Pids of those that look, each at one process."""
        return [pid for pid in self._processes("inductorfs", "examiner") if comm(pid) == "inductorfs-look"]

    def mounters(self):
        """Pids of the processes that mount and unmount."""
        return [pid for pid in self._processes("inductorfs", "mounter") if comm(pid) == "inductorfs-mnt"]

    def processes(self):
        return self.supervisors() + self.messengers() + self.proxies() + self.daemons() + self.examiners() + self.mounters()

    def worker(self, seconds=20):
        """The pid of the worker that serves."""
        return wait_until(lambda: (self.daemons() or [None])[0], seconds, "a worker")

    def unmount(self, seconds=30):
        if self.backing == "directory":
            return
        done = self.cli("unmount", self.cache, seconds=seconds)
        if done.code != 0:
            raise Failed(f"unmount of {self.name}: exit code {done.code}: {done.err}{self.log_tail()}")
        wait_until(lambda: not self.processes(), 20, "the daemon's end")
        if left := compare.mounts_below(self.root):
            raise Failed(f"unmount of {self.name} left {left}")

    def kill_daemon(self):
        """A whole crash: nobody is left to serve the mount, as when the host's power goes for it alone. The pids of messengers:
        one that the kernel holds up for a job's request ends with the next mount (docs/decisions/0019)."""
        supervisors, messengers, workers = self.supervisors(), self.messengers(), self.daemons()
        for pid in supervisors + messengers + workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(holds_files(pid) for pid in supervisors + workers), 10, "the daemon's end")
        return messengers

    def kill_worker(self, number=signal.SIGKILL):
        """A crash of the worker alone, whose supervisor starts another. The pid that was killed."""
        pid = self.worker()
        os.kill(pid, number)
        return pid

    def next_worker(self, old, seconds=30):
        """Waits until another worker than `old` answers at the control socket; its pid."""
        def another():
            done = self.cli("status", self.cache, "--json", seconds=seconds)
            told = json.loads(done.out) if done.code == 0 else {}
            return told.get("pid") not in (None, old) and told["pid"]

        return wait_until(another, seconds, "the next worker")

    def stop(self):
        """Never fails and never leaves a mount or a process."""
        for job in self._jobs:
            if job.running:
                job.stop()
        if self.backing != "directory":
            try:
                if compare.mounts_below(self.root):
                    self.cli("unmount", self.cache, seconds=20)
            except Failed:
                pass
            for pid in self.processes():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            for point in reversed(compare.mounts_below(self.root)):
                run(["umount", "-l", point], seconds=20)
        shutil.rmtree(self.root, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def log_tail(self, lines=30):
        if not self.log.exists():
            return ""
        return "\n" + "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    # ---- directory backing: what a complete copy by hand does

    def _headers(self):
        return self.default_cache / "precompiled_headers"

    def _send(self):
        target = self._exchange / "cache"
        for name in compare.names(self.cache):
            if compare.PRIVATE.search(name):
                continue
            destination = target / name
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.cache / name, destination)
            if destination.name.startswith("__grp__"):
                text = destination.read_text().replace(str((self.cache / name).parent), "[DIRECTORY]")
                destination.write_text(text)
        if self._headers().exists():
            shutil.copytree(self._headers(), self._exchange / "headers", dirs_exist_ok=True,
                            ignore=shutil.ignore_patterns("locks"))

    def _receive(self):
        source = self._exchange / "cache"
        for name in compare.names(source) if source.exists() else ():
            devices = sorted({Path(name).parts[1], *self._devices()}) if name.startswith("triton/") else [None]
            for device in devices:
                own = self.cache / (name if device is None else Path("triton", device, *Path(name).parts[2:]))
                if own.exists():
                    continue
                own.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source / name, own)
                if own.name.startswith("__grp__"):
                    own.write_text(own.read_text().replace("[DIRECTORY]", str(own.parent)))
        if (self._exchange / "headers").exists():
            shutil.copytree(self._exchange / "headers", self._headers(), dirs_exist_ok=True)

    @staticmethod
    def _devices():
        return ("0", "3")


def holds_files(pid):
    """A process that was killed is without memory, so without a command line, before the last of its threads has closed
    its files."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX" or len(os.listdir(f"/proc/{pid}/task")) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def comm(pid):
    """Empty when the process has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def files_of(pid):
    """What a process has open: {number: where it leads}. It may close any meanwhile."""
    files = {}
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            files[int(number)] = os.readlink(f"/proc/{pid}/fd/{number}")
    return files


def parent(pid):
    """0 when the process has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def elapsed(function, *arguments, **keywords):
    """(seconds, result)"""
    begin = time.monotonic()
    result = function(*arguments, **keywords)
    return time.monotonic() - begin, result
