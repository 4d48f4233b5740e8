# SPDX-License-Identifier: Apache-2.0
"""Pods in which vLLM runs: a node with a mount of its own each, and a container there with a root, a host name, processes, a temporary directory
and a home of its own, another user, and the mount at another path. All of them have one image at one path."""
import base64
import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from inductorfs_testing import documented
from inductorfs_testing.fixtures import Cluster, lack
from inductorfs_testing.images import Images
from inductorfs_testing.processes import Failed, wait_until
from inductorfs_testing.rooted_container import RootedContainer

ENVIRONMENT = "vllm-0.32"
PROGRAMS = [Path(__file__).with_name(name) for name in ("engine.py", "holds.py", "look.py")]
LONG = os.environ.get("INDUCTORFS_SERVING_LONG") == "1"
# {mode: (models, artifacts) that an engine loads when nothing is missing}; there are three graphs.
LOADED = {"mega": (1, 3), "index": (1, 3), "artifacts": (0, 3)}
MODES = (*LOADED, "unpacked") if LONG else ("mega", "index")  # "artifacts" writes a part of what "index" writes
IMAGE = Path("/serving")  # where each container has its image
ROOT = "serving"  # the directory of the mount that all pods use
# The mounts are told of no environment. Users of other numbers share; the cluster's news are looked at often, and a file written in place counts as
# complete soon.
OPTIONS = ("--trust", "all", "--poll-interval", "50", "--quiet-time", "500")
# Calls of a compiler that make code. torch looks for its precompiled header before it looks for the code, in the temporary directory of each
# pod: all pods of other users than root build that once (docs/containers.md), and no pod has it after it was restarted.
WORK = ("compile", "link")


def changed_library(packages):
    """vLLM's operators with another byte in the name of the compiler that made them, as another build's wheel is installed: its RECORD
    says so. (A file that is changed behind the RECORD is not seen, as with torch: docs/families.md.)"""
    [loaded] = packages.glob("vllm/_C.abi3.so")
    [record] = packages.glob("vllm*.dist-info/RECORD")
    content = loaded.read_bytes()
    assert content.count(b"GCC: (") == 1, loaded
    changed, told = content.replace(b"GCC: (", b"GCC; ("), record.read_text()
    before, after = (base64.urlsafe_b64encode(hashlib.sha256(one).digest()).rstrip(b"=").decode() for one in (content, changed))
    assert told.count(before) == 1, record
    return {loaded.relative_to(packages): changed, record.relative_to(packages): told.replace(before, after).encode()}


IMAGES = {"usual": (ENVIRONMENT, None), "other library": (ENVIRONMENT, changed_library)}


@dataclass
class Outcome:
    """How an engine ended, and what it told if it ended well."""
    code: int
    told: dict
    log: str = field(repr=False)
    seconds: float = 0
    made: list = field(default_factory=list)  # (kind, output) of the compilers' calls that made something in its directory of torch's since the last clear()

    @property
    def loaded(self):
        """(models of AOT, artifacts) that it loaded and did not compile."""
        counts = self.told["vllm"]
        return counts["num_aot_artifacts_loaded"], counts["num_compiled_artifacts_loaded"]

    @property
    def compiled(self):
        """What it had to make: {what: number}, without what is zero."""
        counts = {**{name: self.told["vllm"][name] for name in ("num_aot_compiles", "num_inductor_compiles")}, "inspections": self.told["inspections"],
                  **{name: count for name, count in self.told["torch"].items() if name.endswith(("cache_miss", "bypass"))},
                  "compilers": len(self.made)}
        return {name: count for name, count in counts.items() if count}


class Engine:
    """One that runs in a pod."""

    def __init__(self, pod, job, at):
        self.pod, self.job, self._at = pod, job, at

    def held(self, number, seconds=600):
        """Waits until it holds at this point."""
        def there():
            if (self._at / f"held.{number}").exists():
                return True
            if not self.job.running or self._is_ready():
                outcome = self.wait()
                raise Failed(f"the engine ended with {outcome.code} without hold {number}:\n{outcome.log}")
            return False

        wait_until(there, seconds, f"the engine to hold at {number}", pause=0.05)

    def go(self, number):
        (self._at / f"go.{number}").touch()

    def _is_ready(self):
        """Whether it has answered."""
        return "ready" in self.job.out.splitlines()

    def kill(self):
        self.job.stop()

    def wait(self, seconds=900):
        """Its Outcome, whichever."""
        (self._at / "stay").touch()
        done = self.job.wait(seconds)
        told = json.loads(done.out.strip().splitlines()[-1]) if done.code == 0 else {}
        calls = self.pod.node.compilers.calls()
        made = [(kind, output) for kind, output, _ in calls if kind in WORK and output.startswith(told.get("inductor") or "/")]
        return Outcome(done.code, told, f"{done.out[-4000:]}\n{done.err[-8000:]}", done.seconds, made)

    def good(self, seconds=900):
        """Its Outcome; an engine that died is a failure."""
        outcome = self.wait(seconds)
        if outcome.code != 0:
            raise Failed(f"the engine in pod {self.pod.node.name} ended with {outcome.code}:\n{outcome.log}\n{self.pod.node.log_tail(40)}")
        return outcome


class Pod:
    """A node and its container. `users`: the number of the engines' user on the host and in the container. `at`: where the container has the mount;
    `binds`: {directory of this host: its place in the container}."""

    def __init__(self, node, image: Path, users, at, binds):
        self.node, self.users, self.at, self.variables = node, users, Path(at), {}
        user, inside = users
        self._inside, self._count = inside, 0
        self._container = RootedContainer(node.cache, binds={image: IMAGE, **binds}, users={inside: user}, at=self.at)
        self._container.ask("for name in ('home', 'tmp', 'model'): os.mkdir('/scratch/' + name); os.chmod('/scratch/' + name, 0o777)")

    @property
    def root(self):
        """VLLM_CACHE_ROOT as the host sees it."""
        return self.node.cache / ROOT / "vllm"

    def _job(self, name, program, *words, **environment):
        self._count += 1
        variables = self.node.env(**{**documented.at(self.node.documented, self.node.cache, self.at), "HOME": "/scratch/home",
                                     "USER": f"someone{self._inside}", **self.variables, **environment})
        job = self._container.begin([IMAGE / "bin" / "python", self.node.root / "workloads" / program, *words], variables, self.node.root / "jobs",
                                    f"{self._count:02}-{name}", user=self._inside)
        self.node._jobs.append(job)
        return job

    def begin(self, mode="mega", holds=(), **environment):
        """Starts an engine, which holds at these points (holds.py)."""
        words = [word for point in holds for word in ("--hold", point)]
        at = Path(tempfile.mkdtemp(prefix="holds-", dir=self.node.root))
        at.chmod(0o777)
        job = self._job(mode, "engine.py", "--mode", mode, "--model", "/scratch/model", "--hold-at", at, "--stay", at / "stay", *words, **environment)
        return Engine(self, job, at)

    def run(self, mode="mega", **environment):
        """The Outcome of an engine that must end well, with the compilers' calls of its own."""
        self.node.compilers.clear()
        return self.begin(mode, **environment).good()

    def begin_look(self, place=(), ask=(), **environment):
        """Starts a process of this image that looks (look.py). `place`: [(path, bytes, protocol)] of files that it writes before that."""
        at = Path(tempfile.mkdtemp(prefix="look-", dir=self.node.root))
        at.chmod(0o755)
        orders = []
        for number, (path, content, protocol) in enumerate(place):
            (at / str(number)).write_bytes(content)
            orders.append((path, str(at / str(number)), protocol))
        (at / "place").write_text(json.dumps(orders))
        (at / "ask").write_text(json.dumps(sorted(ask)))
        return self._job("look", "look.py", "--place", at / "place", "--ask", at / "ask", **environment)

    def look(self, place=(), ask=(), **environment):
        """What such a process sees: {"seen": {file below the root: size}, "asked": {name: whether it is there}}."""
        return self.begin_look(place, ask, **environment).wait(300).json

    @property
    def headers(self):
        """Where torch keeps its precompiled headers, as the host sees it: in the temporary directory of the container, not on the mount."""
        inside = Path("/proc", str(self._container.pid), "root")
        return inside / "scratch" / f"torchinductor_someone{self._inside}" / "precompiled_headers"

    def take_headers(self, headers):
        """Puts copies of these files there, as the engines' user would have made them."""
        self.headers.mkdir(parents=True)
        for file in headers:
            shutil.copy2(file, self.headers)
        for path in (self.headers.parent, self.headers, *self.headers.iterdir()):
            os.chown(path, self.users[0], self.users[0])

    def files(self, pattern):
        """Those below VLLM_CACHE_ROOT, as the host sees them."""
        return sorted(self.root.glob(pattern))

    def close(self):
        self._container.close()


class Pods:
    """A Redis, the images, and the pods. Use as a context."""

    def __init__(self, images=None):
        if os.geteuid() != 0:
            lack("containers and overlays: root only")
        self._stack, self._made, self._headers = contextlib.ExitStack(), 0, []
        self._images = Images(images or {"usual": IMAGES["usual"]})

    def __enter__(self):
        with self._stack as stack:
            stack.enter_context(self._images)
            self.cluster = stack.enter_context(Cluster(torch=ENVIRONMENT, patient=True))
            self.cluster.directory.chmod(0o755)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    def node(self, name, *options, **keywords):
        """A node whose mount has a directory of root's in which all may write."""
        node = self.cluster.node(name, start=False, **keywords)
        node.root.chmod(0o755)
        (node.root / "compilers.log").chmod(0o666)
        (node.root / "workloads").mkdir()
        for program in PROGRAMS:
            shutil.copy2(program, node.root / "workloads")
        node.cache.chmod(0o1777)
        node.start(*OPTIONS, *options)
        # The line of docs/serving.md, for one directory of root's: it makes the directories, in which all may write here.
        asked = node
        if node.backing == "directory":  # which has no such line: the variables of a mount, with another path
            self._made += 1
            asked = self.cluster.node(f"asked-{self._made}", start=False)
            asked.start(*OPTIONS)
        found = documented.variables(asked.cache, asked.plain_env(), words=f" --root {ROOT}")
        node.documented = documented.at(found, asked.cache, node.cache)
        if asked is not node:
            asked.unmount()
        for directory in (node.cache / ROOT, *map(Path, node.documented.values())):
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(0o1777)
        return node

    def pod(self, name, *options, image="usual", like=None, binds=None, **keywords):
        """A further pod, on a node of its own. No two of them have the same path, or the same user but that of `like`. The paths are of one length,
        which an index has in its size."""
        self._made += 1
        users = like.users if like else (1000 + self._made, 2000 + 7 * self._made)
        made = Pod(self.node(name, *options, **keywords), self._images.python(image).parent.parent, users, f"/cache{self._made:02}", binds or {})
        made.variables = dict(self._images.variables)
        self._stack.callback(made.close)
        if self._headers:
            made.take_headers(self._headers)
        return made

    def hand_on_headers(self, pod):
        """Gives each pod that is made from now on the precompiled headers of this one, as if the temporary directory lasted as long as the
        host. torch finds them by the hash of their content. Making them takes 9 s of processor time in each pod, and no test is about them:
        they lie beside the mount."""
        self._headers = [path for path in pod.headers.iterdir() if path.is_file()]
        assert any(path.suffix == ".gch" for path in self._headers), self._headers
