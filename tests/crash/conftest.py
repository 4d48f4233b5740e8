# SPDX-License-Identifier: Apache-2.0
import json
import os
import shutil
from pathlib import Path

import pytest
from inductorfs_testing import places
from inductorfs_testing.fixtures import lack
from inductorfs_testing.processes import run
from inductorfs_testing.redis_server import RedisServer

REPOSITORY = Path(__file__).resolve().parents[2]
DRIVER = Path(os.environ.get("INDUCTORFS_CRASH_DRIVER", REPOSITORY / "build" / "tests" / "crash" / "crash_driver"))


class Crashing:
    """A store that is killed and found again, a Redis that outlives it, and the ledger of what was acknowledged."""

    def __init__(self, redis, root):
        self.redis, self.root = redis, root
        self.store, self.ledger = root / "store", root / "ledger"
        redis.command("FLUSHALL")
        self.run("prepare", store=root / "other", ledger=root / "other-ledger")

    def command(self, verb, store=None, ledger=None):
        return [DRIVER, verb, store or self.store, self.redis.url, ledger or self.ledger]

    def run(self, verb, fail_point="", before=(), seconds=120, **where):
        done = run([*before, *self.command(verb, **where)], seconds=seconds,
                   env={**os.environ, "INDUCTORFS_FAIL_POINT": fail_point})
        if not fail_point:
            assert done.code == 0, f"{verb}: exit code {done.code}\n{done.out}{done.err}"
        return done

    def check(self):
        """What `inductorfs check` finds wrong."""
        if not (self.store / "format").exists():
            return []  # killed before it was a store
        done = run([places.program(), "check", "--store", self.store, "--json"], seconds=60)
        assert done.code in (0, 1) and done.out, f"{done.code} {done.err}"
        report = json.loads(done.out)
        assert (done.code == 0) == report["sound"]
        return [finding for finding in report["findings"] if not finding["harmless"]]


@pytest.fixture(scope="session")
def redis():
    if not shutil.which("redis-server"):
        lack("redis-server is missing (scripts/deps installs it)")
    assert DRIVER.exists(), f"{DRIVER} is not built"
    with RedisServer(durable=False) as server:
        yield server


@pytest.fixture
def crashing(redis, tmp_path):
    return Crashing(redis, tmp_path)
