# SPDX-License-Identifier: Apache-2.0
"""Programs that ask a mount for artefacts as torch does, each a job of its own, and what the mount says of them."""
import json
import subprocess
import sys

CODE = "int answer() { return 42; }\n"
# A program of its own, so that it is a job of its own: it asks for names, as torch does, and may make them.
JOB = """
import os, sys
from pathlib import Path
root, made = Path(sys.argv[1]), sys.argv[2] == "make"
for name in sys.argv[3:]:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)  # as torch does
    if path.exists():
        path.is_file() and path.read_bytes()
    elif made:
        temporary = path.parent / ".1.2.tmp"
        temporary.write_text({code!r})
        temporary.rename(path)
print(os.getpid(), flush=True)
sys.stdin.read()
"""


def query(node, command, *more):
    done = node.cli(command, node.cache, "--json", *more)
    assert done.code == 0, done.err
    return json.loads(done.out)


def text(node, command, *more):
    done = node.cli(command, node.cache, *more)
    assert done.code == 0, done.err
    return done.out


class Job:
    """Lives until it is ended. A shell starts it: else it would be a part of this test's own job."""

    def __init__(self, node, *names, make=False):
        program = [sys.executable, "-c", JOB.format(code=CODE), str(node.cache), "make" if make else "look", *map(str, names)]
        self.process = subprocess.Popen(["sh", "-c", '"$@"; exit $?', "sh", *program], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.name = f"process {int(self.process.stdout.readline())}"

    def end(self):
        self.process.communicate()
        assert self.process.returncode == 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def job_of(node, job):
    return next(one for one in query(node, "jobs")["jobs"] if one["job"] == job.name)
