# SPDX-License-Identifier: Apache-2.0
"""Hosts of the incident tests: facts of other hosts from a file, further installations of one environment, and processes
that write by hand."""
import json
import os
import re
import select
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

from inductorfs_testing import compare, places
from inductorfs_testing.fixtures import Cluster
from inductorfs_testing.node import FOREIGN
from inductorfs_testing.processes import Failed, run, wait_until

from incident_binaries import cpu_flags
from incident_containers import Contained

# The cluster's news are looked at often, and a file written in place counts as complete soon. Writers are told apart, as
# they are by default.
QUICK = ("--no-also", "--poll-interval", "20", "--quiet-time", "200")
HAND = places.WORKLOADS / "hand.py"
FAMILY, ORIGIN = "user.inductorfs.family", "user.inductorfs.origin"


class Facts:
    """A fingerprint in the program's own form, and the edits that make another host of it. Immutable."""

    def __init__(self, facets):
        self._facets = facets

    @classmethod
    def learn(cls, python, **environment):
        """What this host says with this interpreter; the environment is the daemon's."""
        env = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
        env.update({name: str(value) for name, value in environment.items()})
        done = run([places.program(), "fingerprint", "--json", "--python", python], env, seconds=120)
        if done.code != 0:
            raise Failed(f"fingerprint: {done.err}")
        return cls(json.loads(done.out)["facets"])

    @property
    def values(self):
        """{facet: value}; None for what is not known."""
        return {name: fact["value"] if fact["known"] else None for name, fact in self._facets.items()}

    def edited(self, facet, *changes):
        """Each change is (pattern, replacement) over the facet's lines, and must change something."""
        value = self._facets[facet]["value"]
        for pattern, replacement in changes:
            changed = re.sub(pattern, replacement, value, flags=re.MULTILINE)
            assert changed != value, f"{facet} has nothing like {pattern}: {value}"
            value = changed
        return Facts({**self._facets, facet: {**self._facets[facet], "value": value, "source": "another host"}})

    def of(self, other, *facets):
        """With some facets of another host."""
        return Facts({**self._facets, **{facet: other._facets[facet] for facet in facets}})

    def with_details(self, facet, text):
        return Facts({**self._facets, facet: {**self._facets[facet], "details": text}})

    def write(self, path: Path):
        path.write_text(json.dumps({"facets": self._facets}))
        return path


def without_avx512(facts):
    """A host of the generation before: AVX2, and neither AVX-512 nor AMX."""
    facts = facts.edited("cpu", (r"[ ,](avx512\w*|amx\w*|avx_vnni)\b", ""))
    return facts.edited("cpu-isa", (r"^((?:avx512|amx)\w*)=yes$", r"\1=no"))


def without_avx(facts):
    facts = facts.edited("cpu", (r"[ ,](avx\w*|amx\w*|fma|f16c)\b", ""))
    return facts.edited("cpu-isa", (r"^((?:avx|amx)\w*)=yes$", r"\1=no"))


def of_an_older_cpu(facts):
    return without_avx512(facts) if "avx512f" in cpu_flags() else without_avx(facts)


class World:
    """A cluster of nodes with one real environment, mounted with facts from files. Needs external synchronisation."""

    def __init__(self, cluster: Cluster, facts: Facts):
        self.cluster, self.facts = cluster, facts

    @property
    def directory(self):
        return self.cluster.directory

    def node(self, name, facts=None, *options, **keywords):
        file = (facts or self.facts).write(self.directory / f"{name}-facts.json")
        return self.cluster.node(name, options=["--fingerprint", file, *QUICK, *options], **keywords)

    def plain(self, name, *sources):
        """A node on a plain directory, with copies of everything that these nodes made: a cache shared without a gate."""
        node = self.cluster.node(name, backing="directory")
        for source in sources:
            for file in made_by(source):
                target = node.cache / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source.cache / file, target)
        return node


def families(node):
    """{name: family} of what a node lists; Triton's names for any device."""
    return {compare.canonical(name): os.getxattr(node.cache / name, FAMILY).decode()
            for name in compare.lasting(node.cache)}


def made_by(node):
    """What a node wrote itself, by the name that each daemon has of its own."""
    mine = node.cache / "whose"
    mine.touch()
    origin = os.getxattr(mine, ORIGIN)
    mine.unlink()
    return {name for name in compare.lasting(node.cache) if os.getxattr(node.cache / name, ORIGIN) == origin}


def lasting(reader):
    """What a process of the reader lists: on the host, or in a container."""
    return reader.lasting() if isinstance(reader, Contained) else compare.lasting(reader.cache)


def listed(reader):
    return {compare.canonical(name) for name in lasting(reader)}


def is_there(reader, name):
    return reader.is_there(name) if isinstance(reader, Contained) else os.path.lexists(reader.cache / name)


def is_seen(reader, name):
    """Looked up or listed."""
    return is_there(reader, name) or name in lasting(reader)


def sees_only(reader, writer, hidden, seconds=20):
    """Waits until the reader lists what the writer has of the families that are not hidden; of those nothing."""
    theirs = families(writer)
    missing = set(hidden) - set(theirs.values())
    assert not missing, f"the writer has nothing of {missing}: the test says nothing; {Counter(theirs.values())}"
    private = {"lock", "temporary", "tool", "other", "dynamo"}
    wanted = {name for name, family in theirs.items() if family not in hidden and family not in private}
    wait_until(lambda: wanted <= listed(reader), seconds, f"{reader.name} to list {len(wanted)} names of {writer.name}")
    seen = listed(reader) & set(theirs)
    wrong = Counter(theirs[name] for name in seen if theirs[name] in hidden)
    assert not wrong, f"{reader.name} lists {wrong} of another host"
    for name in sorted(set(theirs) - seen)[:20]:
        assert not is_there(reader, name.replace("triton/@/", "triton/0/")), name


def explain(node, name):
    done = node.cli("explain", node.cache / name, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def refused(node):
    return node.status()["file_system"]["refused"]


def hits(out, graphs=1):
    """The job compiled nothing that a key covers."""
    counters = out["counters"]
    assert counters.get("inductor.fxgraph_cache_hit") == graphs, counters
    misses = ("fxgraph_cache_miss", "autograd_cache_miss", "bypass")
    assert not [name for name in counters if name.endswith(misses)], counters


def builds(node):
    """How often this node's jobs made something with a compiler."""
    return sum(count for kind, count in node.compilers.counts().items() if kind in ("compile", "link", "header"))


def few_tools(directory: Path):
    """A PATH with the tools that torch and Triton call, and no compiler. `file` is one of them: Python's
    platform.architecture() asks it, and its answer is in Triton's key of cuda_utils."""
    directory.mkdir()
    for name in ("sh", "file", "ldconfig", "openssl", "uname", "nproc"):
        found = shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin")
        if found:
            (directory / name).symlink_to(found)
    return str(directory)


class Installation:
    """The environment a second time, at a path of its own: torch by copy, its largest libraries by hard link, all else by
    symbolic link. `also`: further packages that get a path of their own. close() removes it."""

    def __init__(self, version, also=()):
        base, site = places.venv(version), places.site_packages(version)
        places.have_alone(version)  # its files get further links
        # Beside the original: hard links do not cross file systems.
        self.root = Path(tempfile.mkdtemp(prefix="incidents-", dir=base.parent))
        self.site = self.root / site.relative_to(base)
        self.ptxas = self.site / "triton" / "backends" / "nvidia" / "bin"
        self.site.mkdir(parents=True)
        (self.root / "bin").mkdir()
        self.python = self.root / "bin" / "python"
        self.python.symlink_to((base / "bin" / "python").resolve())
        shutil.copy2(base / "pyvenv.cfg", self.root)
        for entry in site.iterdir():
            if entry.name == "torch":
                self._copy_torch(entry)
            elif entry.name in also:
                subprocess.run(["cp", "-al", entry, self.site], check=True, timeout=120)
            elif re.match(r"torch-.*\.dist-info$", entry.name):
                shutil.copytree(entry, self.site / entry.name)
            else:
                (self.site / entry.name).symlink_to(entry)

    def _copy_torch(self, torch):
        target = self.site / "torch"
        target.mkdir()
        large = [part for part in torch.iterdir() if part.name in ("lib", "bin")]
        small = [part for part in torch.iterdir() if part not in large]
        subprocess.run(["cp", "-a", *small, target], check=True, timeout=300)
        subprocess.run(["cp", "-al", *large, target], check=True, timeout=120)

    def replace(self, name, content):
        """Another content under this name, as an installer writes it: a new file, and its digest in RECORD."""
        path = self.site / name
        old = path.read_bytes()
        (path.parent / f"{path.name}.new").write_bytes(content)
        os.replace(path.parent / f"{path.name}.new", path)
        (record,) = self.site.glob("torch-*.dist-info/RECORD")
        lines = record.read_text().splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith(f"{name},sha256="))
        lines[at] = f"{name},sha256={hash(content) & (1 << 64) - 1:x},{len(content)}"
        record.write_text("\n".join(lines) + "\n")
        return old

    def close(self):
        shutil.rmtree(self.root, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Hand:
    """A process of a node with torch and Triton loaded (workloads/hand.py): hand("put", cache=..., ...) does one thing.
    `within`: the container that it is in."""

    def __init__(self, node, python=None, within=None, **environment):
        self._log = node.root / f"hand-{time.monotonic_ns()}.err"
        command = [python or node.python, HAND]
        with open(self._log, "wb") as log:
            self._child = subprocess.Popen([str(word) for word in (within.command(*command) if within else command)],
                                           env=node.env(**environment), text=True, stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE, stderr=log, cwd=node.root, start_new_session=True)
        self._ready = False

    def __call__(self, action, **words):
        answer = self.attempt(action, **words)
        if "error" in answer:
            raise Failed(f"{action}: {answer['error']}")
        return answer["result"]

    def attempt(self, action, **words):
        """The answer, whether it is a result or an error."""
        if not self._ready:
            self._read(60)
            self._ready = True
        words = {name: str(word) if isinstance(word, Path) else word for name, word in words.items()}
        self._child.stdin.write(json.dumps({"do": action, **words}) + "\n")
        self._child.stdin.flush()
        return self._read(120)

    def _read(self, seconds):
        if not select.select([self._child.stdout], [], [], seconds)[0]:
            raise Failed(f"the hand is silent for {seconds} s: {self._log.read_text()[-2000:]}")
        line = self._child.stdout.readline()
        if not line:
            raise Failed(f"the hand ended: {self._log.read_text()[-4000:]}")
        return json.loads(line)

    def close(self):
        self._child.stdin.close()
        try:
            self._child.wait(20)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait(10)
        self._child.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
