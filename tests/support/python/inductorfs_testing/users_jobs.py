# SPDX-License-Identifier: Apache-2.0
"""torch's jobs of ordinary users on a mount of root."""
import os
from pathlib import Path

from .processes import Job

# What lies below a directory that is root's alone is shown to the job in a mount namespace of its own, at the same paths.
AS_USER = """
closed=$1 held=$2 mask=$3; shift 3
if [ "$closed" ]; then
  mount --rbind "$closed" "$held"
  mount -t tmpfs -o mode=755 tmpfs "$closed"
  for directory in "$held"/* "$held"/.[!.]*; do
    [ -d "$directory" ] || continue
    mkdir "$closed/${directory##*/}"
    mount --rbind "$directory" "$closed/${directory##*/}"
  done
fi
umask "$mask"
exec setpriv --clear-groups "$@"
"""


def closed_above(*paths):
    """The highest directory above one of them into which only its owner may go; empty where there is none."""
    above = {parent for path in paths for parent in Path(path).parents if not parent.stat().st_mode & 0o001}
    return min(above, key=lambda path: len(path.parts), default="")


def begin(node, user, umask, workload, *words, **environment):
    """A job of that user, with a home and a TMPDIR of its own."""
    own = node.root / f"user{user}"
    if not own.exists():
        own.mkdir()
        os.chown(own, user, user)
    command = ["unshare", "-m", "sh", "-ec", AS_USER, "sh", closed_above(node.python, os.path.realpath(node.python)),
               node.root / "held", umask, f"--reuid={user}", f"--regid={user}", node.python,
               node.root / "workloads" / workload.name, *words]
    env = node.env(HOME=own, TMPDIR=own, USER=f"user{user}", **environment)
    job = Job(command, env, node.root / "jobs", f"{user}-{workload.stem}-{'-'.join(words)}")
    node._jobs.append(job)
    return job
