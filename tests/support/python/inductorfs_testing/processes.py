# SPDX-License-Identifier: Apache-2.0
"""Child processes with a deadline, and waiting for a condition with one; deadlines are longer under a sanitizer."""
import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path


# scripts/sanitize: all takes several times as long, and memory is not what it is without.
SANITIZER = os.environ.get("INDUCTORFS_SANITIZER")
PATIENCE = 6 if SANITIZER else 1
# A wait ends when its condition is true, and so costs nothing where it is long; a short one is red by chance on a busy host.
LEAST_WAIT = 40


class Failed(AssertionError):
    """A child failed or a wait ran out; the message holds what is needed to see why."""


def wait_until(condition, seconds=LEAST_WAIT, what="the condition", pause=0.02):
    """Returns condition()'s first true value. What has to come sooner than LEAST_WAIT is measured, not waited for."""
    seconds = max(seconds, LEAST_WAIT) * PATIENCE
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failed(f"{what}: not within {seconds} s")
        time.sleep(pause)


def besides_waiting(text):
    """What a command said but for its lines that it still waits for the end of a mount, as it does after two seconds: on any busy host."""
    return "".join(line for line in text.splitlines(keepends=True) if "waiting for the end of the mount" not in line)


@dataclass
class Result:
    """How a job ended."""
    code: int
    out: str
    err: str
    seconds: float

    @property
    def json(self):
        """The last line of stdout, which every workload prints."""
        if self.code != 0:
            raise Failed(f"exit code {self.code}\n{self.out[-2000:]}\n{self.err[-6000:]}")
        return json.loads(self.out.strip().splitlines()[-1])


class Job:
    """A running child in a session of its own, so that stop() ends its workers too."""

    def __init__(self, command, env, directory: Path, name="job"):
        directory.mkdir(parents=True, exist_ok=True)
        self._out, self._err = directory / f"{name}.out", directory / f"{name}.err"
        self._begin = time.monotonic()
        with open(self._out, "wb") as out, open(self._err, "wb") as err:
            self._child = subprocess.Popen([str(part) for part in command], env=env, stdin=subprocess.DEVNULL,
                                           stdout=out, stderr=err, cwd=directory, start_new_session=True)

    @property
    def running(self):
        return self._child.poll() is None

    def wait(self, seconds=600) -> Result:
        seconds *= PATIENCE
        try:
            code = self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self.stop()
            raise Failed(f"{self._child.args} hung for {seconds} s\n{self._read(self._err)[-6000:]}") from None
        return Result(code, self._read(self._out), self._read(self._err), time.monotonic() - self._begin)

    @property
    def out(self):
        """What it has printed so far."""
        return self._read(self._out)

    def stop(self):
        try:
            os.killpg(self._child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._child.wait(10)

    @staticmethod
    def _read(path):
        return path.read_text(errors="replace")


def run(command, env=None, seconds=60, directory=None) -> Result:
    """A short command with captured output; a hang is a failure."""
    seconds *= PATIENCE
    begin = time.monotonic()
    try:
        done = subprocess.run([str(part) for part in command], env=env, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=seconds, cwd=directory)
    except subprocess.TimeoutExpired as hung:
        raise Failed(f"{command} hung for {seconds} s: {hung.stdout!r} {hung.stderr!r}") from None
    return Result(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"),
                  time.monotonic() - begin)
