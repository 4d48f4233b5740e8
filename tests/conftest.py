# SPDX-License-Identifier: Apache-2.0
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support" / "python"))

from inductorfs_testing.fixtures import cluster, redis_server  # noqa: E402,F401 (fixtures for every ring below)
