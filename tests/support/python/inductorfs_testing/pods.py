# SPDX-License-Identifier: Apache-2.0
"""Containers of pods, made from the manifests in packaging/kubernetes as the kubelet and a runtime make them: a root, a mount namespace and
(without hostPID) a pid namespace for each, volumes at the paths and with the propagation that the manifest names. Nothing here knows
a path, an option or a variable that the manifest has. Root; use as contexts."""
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import yaml

from . import compare, places
from .node import parent
from .processes import Failed, run, wait_until

MANIFESTS = places.REPOSITORY / "packaging" / "kubernetes"
PROGRAMS = "/programs"  # the directory of the program in each container's PATH
PATH = f"{PROGRAMS}:/usr/sbin:/usr/bin:/sbin:/bin"
PROPAGATION = {"Bidirectional": "rshared", "HostToContainer": "rslave", "None": "rprivate"}

# Makes the root of a container at $1 and runs the command there. $2: the directory that is the node; it alone stays shared with the node.
# Then the volumes: a source, a place and a propagation each, up to an empty word.
BUILD = """
set -e
root=$1 node=$2
shift 2
findmnt -rno TARGET | while read -r mount; do
  case "$mount" in "$node"|"$node"/*) ;; *) mount --make-private "$(printf %b "$mount")" 2>/dev/null || true ;; esac
done
mount -t tmpfs -o mode=755 root "$root"
mount --make-private "$root"
for entry in bin lib lib32 lib64 libx32 sbin usr; do
  if [ -L "/$entry" ]; then cp -P "/$entry" "$root/$entry"
  elif [ -d "/$entry" ]; then mkdir "$root/$entry"; mount --rbind "/$entry" "$root/$entry"
  fi
done
mkdir "$root/dev" "$root/proc" "$root/run" "$root/var" "$root/.node"
mkdir -m 1777 "$root/tmp"
cp -a /etc "$root/etc"
mount --rbind /dev "$root/dev"
while [ "$1" ]; do
  mkdir -p "$root$2"
  mount --rbind "$1" "$root$2"
  mount --make-"$3" "$root$2"
  shift 3
done
shift
cd "$root"
pivot_root . .node
mount -t proc proc /proc
mount --make-rprivate /.node
umount -l /.node
: > /.made
cd /
exec "$@"
"""


def documents(name):
    """The objects of a manifest, by kind."""
    return {one["kind"]: one for one in yaml.safe_load_all((MANIFESTS / name).read_text())}


def pod_of(name):
    """The pod's spec in a manifest."""
    for one in documents(name).values():
        spec = one.get("spec", {})
        if "containers" in spec:
            return spec
        if "template" in spec:
            return spec["template"]["spec"]
    raise Failed(f"{name} has no pod")


def container_of(pod, name):
    [found] = [one for one in [*pod.get("initContainers", []), *pod["containers"]] if one["name"] == name]
    return found


class KubeNode:
    """A node: a directory with the paths of hostPath volumes, shared with its containers as the root of a real node is."""

    def __init__(self, name, parent: Path):
        self.root = parent / name
        self.root.mkdir()
        subprocess.run(["mount", "--bind", self.root, self.root], check=True)
        subprocess.run(["mount", "--make-private", self.root], check=True)
        subprocess.run(["mount", "--make-shared", self.root], check=True)

    def path(self, path):
        """Where the node has a path of the manifest."""
        return self.root / str(path).lstrip("/")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for place in reversed(compare.mounts_below(self.root)):
            subprocess.run(["umount", "--lazy", place], check=False)


class Volumes:
    """The volumes of one pod on a node. `texts`: {volume: {key: text}} of config maps and secrets."""

    def __init__(self, node: KubeNode, pod, texts=None):
        self._node, self._pod, self._texts = node, pod, texts or {}
        self.directory = Path(tempfile.mkdtemp(prefix="volumes-", dir=node.root))
        self._made = {}

    def source(self, name):
        if name not in self._made:
            [volume] = [one for one in self._pod["volumes"] if one["name"] == name]
            self._made[name] = self._make(name, volume)
        return self._made[name]

    def _make(self, name, volume):
        if "hostPath" in volume:
            if volume["hostPath"]["type"] == "CharDevice":
                return Path(volume["hostPath"]["path"])
            assert volume["hostPath"]["type"] in {"DirectoryOrCreate", "Directory"}
            place = self._node.path(volume["hostPath"]["path"])
            place.mkdir(parents=True, exist_ok=True)
            return place
        place = self.directory / name
        place.mkdir()
        if "emptyDir" in volume:
            place.chmod(0o777)
            return place
        assert "configMap" in volume or "secret" in volume, volume
        # As the kubelet does: links, so that all keys change at once.
        data = place / "..first"
        data.mkdir()
        (place / "..data").symlink_to(data.name)
        for key, text in self._texts[name].items():
            (data / key).write_text(text)
            (data / key).chmod(volume.get("secret", {}).get("defaultMode", 0o644))
            (place / key).symlink_to(f"..data/{key}")
        return place

    def words(self, container):
        """The volumes of a container for BUILD."""
        words = []
        for mount in container.get("volumeMounts", []):
            source = self.source(mount["name"])
            if source.is_dir():  # the devices are there
                words += [source, mount["mountPath"], PROPAGATION[mount.get("mountPropagation", "None")]]
        return words


class PodContainer:
    """A container that runs: its own command, or `command`. `binds`: {directory of this host: its place} beside the volumes, for what the
    image has. `environment` beside that of the manifest."""

    def __init__(self, node: KubeNode, pod, name, volumes: Volumes, command=None, binds=None, environment=None, stdin=None, stdout=None):
        spec = container_of(pod, name)
        self._spec = spec
        self.root = Path(tempfile.mkdtemp(prefix="container-", dir=node.root.parent))  # a root on a shared mount would appear everywhere
        self.log = self.root.with_name(self.root.name + ".log")
        self.environment = {"PATH": PATH, **{one["name"]: one["value"] for one in spec.get("env", [])}, **(environment or {})}
        command = command or [*spec["command"], *spec.get("args", [])]
        words = volumes.words(spec)
        for source, place in {places.program().parent: PROGRAMS, **(binds or {})}.items():
            words += [source, place, "rprivate"]
        enter = ["unshare", "--mount", "--propagation", "unchanged"]
        if not pod.get("hostPID", False):
            enter += ["--pid", "--fork", "--kill-child"]
        self._own_pids = "--pid" in enter
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen(list(map(str, [*enter, "sh", "-c", BUILD, "container", self.root, node.root, *words, "", *command])),
                                          stdin=stdin or subprocess.DEVNULL, stdout=stdout or log, stderr=log, text=True, cwd="/",
                                          env=self.environment)
        self.ended = False
        wait_until(lambda: self.child.poll() is not None or self._is_made(), 20, "the container's root")

    def _first(self):
        """The pid of the container's first process; None before it began and after it ended."""
        if not self._own_pids:
            return self.child.pid
        try:
            children = Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children").read_text().split()
        except OSError:
            return None
        return int(children[0]) if children else None

    def _is_made(self):
        first = self._first()
        return first is not None and Path(f"/proc/{first}", "root", ".made").exists()

    @property
    def pid(self):
        """The first process of the container, in this process's namespace; of one that has ended there is none to wait for."""
        found = wait_until(lambda: self._first() or self.child.poll() is not None, 10, "the container's first process")
        if found is True:
            raise Failed(f"the container has ended with {self.child.returncode}")
        return found

    def enter(self, *words):
        """The command that runs these words in the container, as `kubectl exec` does."""
        pid = self.pid
        return ["nsenter", f"--mount=/proc/{pid}/ns/mnt", f"--pid=/proc/{pid}/ns/pid", "--root", "--wdns=/", "--target", str(pid), "--", *map(str, words)]

    def run(self, *words, seconds=60):
        return run(self.enter(*words), self.environment, seconds)

    def probe(self, name):
        """Whether a probe of the manifest succeeds."""
        return self.run(*self._spec[name]["exec"]["command"], seconds=30).code == 0

    def ready(self, seconds=30):
        def answers():
            if self.child.poll() is not None:
                raise Failed(f"the container ended with {self.child.returncode}: {self.log.read_text()[-3000:]}")
            return self.probe("startupProbe")

        wait_until(answers, seconds, "the container's startupProbe", pause=0.1)
        return self

    def processes(self):
        """All processes in the container's mount namespace, and what they have started in others, as a worker is."""
        try:
            mine = os.readlink(f"/proc/{self.pid}/ns/mnt")
        except (OSError, Failed):
            return []
        found, parents = set(), {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit():
                    parents[int(entry.name)] = parent(int(entry.name))
                    if os.readlink(entry / "ns/mnt") == mine:
                        found.add(int(entry.name))
        more = found
        while more:
            more = {pid for pid, above in parents.items() if above in found} - found
            found |= more
        return sorted(found)

    def end(self, grace=60):
        """What the runtime does with a pod that is deleted: SIGTERM to the first process, and SIGKILL to all that is left when it has
        ended, or after the time of grace (0: at once). The exit code."""
        others = self.processes()
        if grace:
            with contextlib.suppress(ProcessLookupError, Failed):
                os.kill(self.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(grace)
        for pid in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        code = self.child.wait(20)
        self.ended = True
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if not self.ended:
            self.end(grace=0)
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe:
                pipe.close()
        shutil.rmtree(self.root, ignore_errors=True)
