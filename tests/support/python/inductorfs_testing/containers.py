# SPDX-License-Identifier: Apache-2.0
"""Processes that see a mount, or one of its directories, at another path, as a container does: in a mount namespace and a pid
namespace of their own, and without the path at which the host sees it."""
import json
import subprocess
import sys
from pathlib import Path

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
