# SPDX-License-Identifier: Apache-2.0
import shutil
import signal
import stat
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support" / "python"))

from inductorfs_testing.fixtures import cluster, redis_server  # noqa: E402,F401 (fixtures for every ring below)

_SHARED = {path: path.stat().st_mode for path in map(Path, ("/", tempfile.gettempdir(), "/var/tmp", "/dev/shm", "/run")) if path.is_dir()}


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Temporary directories of this run alone. Else each run that begins beside it closes the directory above those of all runs
    (/tmp/pytest-of-USER, to 0700), and workers of root's mounts, which are a user of their own, lose their way to what a test has opened."""
    # A shell that runs the tests in its background has them ignore it, and with them all programs whose end by it is tested.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.option.basetemp is None:
        config.option.basetemp = tempfile.mkdtemp(prefix="inductorfs-pytest-")
        config.add_cleanup(lambda: shutil.rmtree(config.option.basetemp, ignore_errors=True))


@pytest.fixture(autouse=True)
def _directories_of_all_stay_as_they_are():
    """A test that closes /tmp to others fails here, and not ten others an hour later, or on the next run."""
    yield
    for path, mode in _SHARED.items():
        found = path.stat().st_mode
        if found != mode:
            path.chmod(stat.S_IMODE(mode))
            pytest.fail(f"the mode of {path} was changed from {mode:o} to {found:o}", pytrace=False)
