# SPDX-License-Identifier: Apache-2.0
"""The line by which a job comes to a mount, as README.md and docs/tutorial.md have it."""
import os
import shlex

from . import places
from .processes import Failed, run

# What a shell sets by itself.
OF_THE_SHELL = {"_", "PWD", "OLDPWD", "SHLVL"}


def at(variables_, mountpoint, path):
    """The same for a job that sees the mount at another path."""
    return {name: value.replace(str(mountpoint), str(path), 1) for name, value in variables_.items()}


def variables(mountpoint, env, enter=(), programs=None, words=""):
    """{variable: value} that the line sets in a shell with this environment; it makes the directories, too. `enter`: a command that runs the shell as
    another user or elsewhere; `programs`: the directory of a program that this user may run; `words`: further ones of `inductorfs env`."""
    script = f'eval "$(inductorfs env {shlex.quote(str(mountpoint))}{words})"\nexec env -0'
    before = {**env, "PATH": f"{programs or places.program().parent}{os.pathsep}{env['PATH']}"}
    done = run([*enter, "sh", "-ec", script], before)
    after = dict(item.split("=", 1) for item in done.out.split("\0") if item)
    found = {name: value for name, value in after.items() if before.get(name) != value and name not in OF_THE_SHELL}
    if done.code != 0 or "TORCHINDUCTOR_CACHE_DIR" not in found:
        raise Failed(f"inductorfs env {mountpoint}: {done.err}")
    return found
