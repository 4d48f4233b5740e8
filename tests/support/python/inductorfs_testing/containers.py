# SPDX-License-Identifier: Apache-2.0
"""Processes that see a mount, or one of its directories, at another path, as a container does: in a mount namespace and a pid
namespace of their own, and without the path at which the host sees it. And namespaces for a daemon, as the container of a sidecar
has them."""
import contextlib
import json
import subprocess
import sys
from pathlib import Path

from . import compare

# Binds its directory where the container is to see it, covers the host's path, and runs the code.
ENTER = """
set -e
mount --bind "$1" "$3"
mount -t tmpfs none "$2"
shift 3
exec "$@"
"""
TOOLS = Path(__file__).parent.parent


def run_in_container(cache: Path, at: Path, code, below="", python=sys.executable, **variables):
    """Runs Python code in a container that sees `cache`/`below` at `at`, a directory that is there, as the variable `cache` of the
    code; returns the code's `result`."""
    preface = f"import json, os, sys; sys.path.insert(0, {str(TOOLS)!r}); from pathlib import Path; cache = Path({str(at)!r})\n"
    command = ["unshare", "--mount", "--pid", "--fork", "--propagation", "private", "sh", "-c", ENTER, "container", cache / below, cache, at,
               python, "-B", "-c", preface + code + "\nprint(json.dumps(result))"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **variables},
                          cwd="/", check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# The one process of a container that goes on: it runs the code of each line.
LOOP = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from inductorfs_testing import artefacts
os.setgid(int(sys.argv[3]))
os.setuid(int(sys.argv[3]))
names = {**globals(), "cache": Path(sys.argv[2])}
for line in sys.stdin:
    exec(json.loads(line), names)
    print(json.dumps(names["result"]), flush=True)
"""


class Container:
    """A container as that of run_in_container(), whose process goes on until the end of the context."""

    def __init__(self, cache: Path, at: Path, user=0):
        self._child = subprocess.Popen(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-c", ENTER,
                                        "container", cache, cache, at, sys.executable, "-B", "-c", LOOP, TOOLS, at, str(user)],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                       env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, cwd="/")

    def run(self, code):
        """Runs the code there; returns its `result`."""
        self._child.stdin.write(json.dumps(code) + "\n")
        self._child.stdin.flush()
        told = self._child.stdout.readline()
        assert told, (code, self._child.poll())
        return json.loads(told)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._child.stdin.close()
        self._child.wait(20)


# Its own /proc, and without the directory at $1. All other mounts are those of the host, in both directions.
PREPARE = """
set -e
mount --make-private /proc
mount -t proc proc /proc
if [ -n "$1" ]; then
  mount --make-private "$(findmnt -no TARGET -T "$1")"
  mount -t tmpfs none "$1"
fi
shift
exec "$@"
"""
# The first process of a pid namespace, for others to come.
FIRST = "import signal, sys\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nprint('ready', flush=True)\nsys.stdin.read()"


@contextlib.contextmanager
def first_process(directory: Path, command, without=""):
    """A mount namespace and a pid namespace for daemons, in which no process of another container has a number, with this first
    process; gives it as a child of unshare(1). Mounts that are made below `directory` appear everywhere, as with Kubernetes'
    propagation Bidirectional. `without`: a directory that is empty there. Root."""
    subprocess.run(["mount", "--bind", directory, directory], check=True)
    subprocess.run(["mount", "--make-shared", directory], check=True)
    try:
        with subprocess.Popen(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "unchanged", "sh", "-c", PREPARE,
                               "sidecar", str(without), *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            try:
                yield child
            finally:
                child.kill()
    finally:
        if compare.is_mounted(directory):  # Node.stop() takes every mount of a node away
            subprocess.run(["umount", "--lazy", directory], check=True)


def number_of_first(child):
    """Its process id in this process's namespace."""
    [first] = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    return int(first)


@contextlib.contextmanager
def sidecar(directory: Path, without=""):
    """Such namespaces with a first process that does nothing; gives the command that enters them."""
    with first_process(directory, [sys.executable, "-c", FIRST], without) as child:
        assert child.stdout.readline() == "ready\n", child.poll()
        yield ["nsenter", "--target", str(number_of_first(child)), "--mount", "--pid", "--"]
