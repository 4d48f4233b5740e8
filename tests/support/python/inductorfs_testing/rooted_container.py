# SPDX-License-Identifier: Apache-2.0
"""A container with a root of its own, in which jobs run as other users of a user namespace, on another host name, with the mount at another
path (containers.py has those that share the host's root)."""
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .containers import TOOLS
from .processes import PATIENCE, Failed, Job, wait_until

# Makes a root with all that the host's root has, puts the mount there at a path of its own and a tmpfs over the host's path, and
# runs the command with that root, in a user namespace. The words after the first four name what the container sees
# elsewhere: a directory and its place, again and again, up to an empty word. Unbindable: the host's directories are bound into the
# new root, which is below one of them.
BUILD = """
set -e
root=$1 cache=$2 at=$3 user=$4
shift 4
mount -t tmpfs -o mode=755 root "$root"
mount --make-unbindable "$root"
for entry in /*; do
  if [ -L "$entry" ]; then cp -P "$entry" "$root$entry"
  elif [ "$entry" = /proc ] || [ "$entry" = "$at" ]; then mkdir "$root$entry"
  elif [ -d "$entry" ]; then mkdir "$root$entry"; mount --rbind "$entry" "$root$entry"
  fi
done
mkdir -p "$root$at" "$root/scratch" "$root/.host"
chmod 1777 "$root/scratch"
mount --bind "$cache" "$root$at"
while [ "$1" ]; do
  mkdir -p "$root$2"
  mount --bind "$1" "$root$2"
  shift 2
done
shift
mount -t tmpfs none "$root$cache"
cd "$root"
pivot_root . .host
mount -t proc proc /proc
umount -l /.host
echo "$user.example" > /proc/sys/kernel/hostname
exec unshare --user "$@"
"""
# The container's first process: runs the code of each line, as run_in_container() does, and keeps what the kernel knows through it.
GUEST = f"""
import json, os, sys, traceback
sys.path.insert(0, {str(TOOLS)!r})
from pathlib import Path
from inductorfs_testing import artefacts, compare
print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    names = {{**json.loads(line), "cache": Path(sys.argv[1]), "Path": Path, "os": os, "json": json, "artefacts": artefacts, "compare": compare}}
    try:
        exec(names["code"], names)
        answer = {{"result": names.get("result")}}
    except Exception:
        answer = {{"error": traceback.format_exc()}}
    print(json.dumps(answer), flush=True)
"""


class RootedContainer:
    """A container that lasts: a root, mounts, processes, a host name and users of its own; the mount is at `at` there, and the host's path
    is empty. The first process is user 12345 there and root here; `users`: {number there: number here} of further ones. `binds`: {directory
    of the host: its place in the container, which is there or directly below the root}. Root only; use as a context."""
    AT, USER = Path("/cache"), 12345

    def __init__(self, cache: Path, binds=None, users=None, at=AT):
        self._root = Path(tempfile.mkdtemp(prefix="inductorfs-container-"))
        words = [word for bind in (binds or {}).items() for word in bind]
        for place in map(Path, (binds or {}).values()):
            assert place.exists() or place.parent == Path("/"), f"{place}: a new directory would be made on the host"
        command = ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--propagation", "private", "sh", "-c", BUILD, "container",
                   self._root, cache, at, self.USER, *words, "", sys.executable, "-B", "-c", GUEST, at]
        self._log = self._root.with_name(self._root.name + ".err")
        with open(self._log, "wb") as log:
            self._child = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd="/",
                                           env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
        try:
            self._answer(60)
            children = Path(f"/proc/{self._child.pid}/task/{self._child.pid}/children")
            self.pid = int(wait_until(lambda: children.read_text().split(), 10, "the container's first process")[0])
            numbers = "".join(f"{there} {here} 1\n" for there, here in {self.USER: 0, **(users or {})}.items())
            for kind in ("uid", "gid"):
                Path(f"/proc/{self.pid}/{kind}_map").write_text(numbers)
        except BaseException:
            self.close()  # __exit__ is not called for what did not start
            raise

    def ask(self, code, **words):
        """Runs Python code in the container's first process, with `cache` and the words as variables; its `result`."""
        self._child.stdin.write(json.dumps({"code": code, **words}) + "\n")
        self._child.stdin.flush()
        answer = self._answer(120)
        if "error" in answer:
            raise Failed(f"in the container: {answer['error']}")
        return answer["result"]

    def command(self, *words, user=USER):
        """The command line that runs these words in the container, as the user with that number there."""
        who = ["--setuid", user, "--setgid", user]
        return [shutil.which("nsenter"), "--target", self.pid, "--mount", "--uts", "--pid", "--user", *who, "--root", "--", *words]

    def begin(self, command, env, directory: Path, name, user=USER) -> Job:
        """A job in the container, whose temporary directory it has for itself."""
        return Job(self.command(*command, user=user), {**env, "TMPDIR": "/scratch"}, directory, name)

    def _answer(self, seconds):
        if not select.select([self._child.stdout], [], [], seconds * PATIENCE)[0]:
            raise Failed(f"the container is silent for {seconds} s: {self._log.read_text()[-2000:]}")
        line = self._child.stdout.readline()
        if not line:
            raise Failed(f"the container ended: {self._log.read_text()[-4000:]}")
        return json.loads(line)

    def close(self):
        """With its first process the kernel ends all others."""
        self._child.kill()
        self._child.wait(20)
        for pipe in (self._child.stdin, self._child.stdout):
            pipe.close()
        os.unlink(self._log)
        shutil.rmtree(self._root, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
