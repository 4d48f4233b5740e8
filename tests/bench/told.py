# SPDX-License-Identifier: Apache-2.0
"""What the programs of this folder print."""
import json

from inductorfs_testing.processes import run


def told_by(program, *words):
    """The JSON that a program of this folder prints."""
    done = run([program, *words], seconds=600)
    if done.code != 0:
        raise SystemExit(f"bench: {program.name}: {done.err}")
    return json.loads(done.out)
