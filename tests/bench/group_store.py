# SPDX-License-Identifier: Apache-2.0
"""What the store's calls cost (store_costs.cc), beside the same bytes in a file for each blob with plain system calls; opening a store with many
blobs; `inductorfs check`, beside sha256sum over as many bytes."""
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from inductorfs_testing import places
from inductorfs_testing.processes import run
from suite import order
from table import Table

OURS, FILES, SUM = "ours", "a file each", "sha256sum"
NAMES = {"put": "put", "open": "open and read, in random order", "evict": "evict all"}


def told_by(program, *words):
    done = run([program, *words], seconds=300)
    return done.json


def seconds_of(command, directory):
    began = time.monotonic()
    subprocess.run([str(word) for word in command], cwd=directory, stdout=subprocess.DEVNULL, check=True, timeout=300)
    return time.monotonic() - began


def calls(plan, directory, table):
    count = plan.pick(100, 1_000, 10_000)
    for size in plan.pick((1,), (1, 20, 200), (1, 20, 200)):
        plan.phase(f"{count:,} blobs of {size} KiB")
        for number in range(plan.pick(1, 2, 3)):
            for what, side in order((("store", OURS), ("files", FILES)), number):
                for name, seconds in told_by(plan.program("store_costs"), what, directory / what, count, size << 10).items():
                    table.row(f"{NAMES[name]}, {count:,} x {size} KiB").add(side, seconds * 1e3)
                shutil.rmtree(directory / what)


def whole_store(plan, directory, table):
    """Opens it, and checks it."""
    count, store = plan.pick(200, 10_000, 100_000), directory / "store"
    plan.phase(f"a store of {count:,} blobs")
    told_by(plan.program("store_costs"), "fill", store, count, 1 << 10)
    plain = directory / "plain"
    plain.mkdir()
    for number in range(count):
        (plain / str(number)).write_bytes(number.to_bytes(8, "little") * 128)
    for number in range(plan.pick(1, 3, 5)):
        table.row(f"open a store of {count:,} blobs", other=None).add(OURS, told_by(plan.program("store_costs"), "reopen", store)["reopen"] * 1e3)
        check = table.row(f"check {count:,} x 1 KiB", other=SUM)
        for side in order((OURS, SUM), number):
            command = [places.program(), "check", "--store", store] if side == OURS else ["bash", "-c", "printf '%s\\0' * | xargs -0 sha256sum"]
            check.add(side, seconds_of(command, plain) * 1e3)


def measure(plan):
    table = Table("The store on the local disk", "ms", OURS, FILES)
    with tempfile.TemporaryDirectory(prefix="inductorfs-bench-") as directory:
        calls(plan, Path(directory), table)
        whole_store(plan, Path(directory), table)
    return table
