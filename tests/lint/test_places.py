# SPDX-License-Identifier: Apache-2.0
"""A test that changes a Python environment of all tests has it alone (inductorfs_testing/places.py)."""
import fcntl
import os
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/support/python"))
from inductorfs_testing import places  # noqa: E402


def test_whoever_wants_an_environment_alone_waits_for_those_who_use_it(tmp_path, monkeypatch):
    made = tmp_path / "torch-0.0"
    monkeypatch.setattr(places, "venv", lambda version: made)
    user = os.open(f"{made}.used", os.O_RDONLY | os.O_CREAT, 0o644)
    fcntl.flock(user, fcntl.LOCK_SH)
    changes = threading.Thread(target=places.have_alone, args=("0.0",), daemon=True)
    changes.start()
    changes.join(0.2)
    assert changes.is_alive(), "somebody uses it"
    fcntl.flock(user, fcntl.LOCK_UN)
    changes.join(10)
    assert not changes.is_alive()
    try:
        fcntl.flock(user, fcntl.LOCK_SH | fcntl.LOCK_NB)
        raise AssertionError("nobody may use it now")
    except BlockingIOError:
        pass
    os.close(places._lock_of(made))
    os.close(user)
