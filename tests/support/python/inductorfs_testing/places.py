# SPDX-License-Identifier: Apache-2.0
"""Where things are: the tree, the program under test, the Python environments."""
import fcntl
import functools
import os
import shutil
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[4]
WORKLOADS = REPOSITORY / "tests" / "torch" / "workloads"
NOGPU = REPOSITORY / "tests" / "support" / "nogpu"
STAND_IN = NOGPU / "nogpu_compile.py"


def program() -> Path:
    """The inductorfs binary under test: INDUCTORFS_BUILD, which Meson sets, else the default build directory."""
    return Path(os.environ.get("INDUCTORFS_BUILD", REPOSITORY / "build" / "src" / "cli" / "inductorfs"))


def copy_programs(directory: Path) -> Path:
    """The program in another place, with the supervisor that it looks for beside itself, for every user; its path."""
    for source in (program(), program().with_name("inductorfs-supervisor")):
        Path(shutil.copy2(source, directory)).chmod(0o755)
    return directory / program().name


def outside_the_tree() -> Path:
    """Where scripts/venv keeps the Python environments."""
    return Path(os.environ.get("INDUCTORFS_VENVS") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "inductorfs")


@functools.cache
def venv(version: str) -> Path:
    """The environment with this torch ("2.15", "2.9"), or of this name ("vllm-0.32"), made first when it is missing."""
    name = version if "-" in version else f"torch-{version}"
    [requirements] = (REPOSITORY / "tests").glob(f"*/requirements/{name}.txt")
    done = subprocess.run([REPOSITORY / "scripts" / "venv", requirements], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, check=True, timeout=1800)
    made = Path(done.stdout.strip())
    fcntl.flock(_lock_of(made), fcntl.LOCK_SH)
    return made


@functools.cache
def _lock_of(made: Path) -> int:
    """A descriptor that stays open until this process ends, and its lock with it. Children do not inherit it."""
    return os.open(f"{made}.used", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)


def have_alone(version: str):
    """Waits until no other process of the tests uses this environment, and lets none use it until this process ends. For a test that
    changes what daemons of other tests watch: a further link to a file is such a change."""
    fcntl.flock(_lock_of(venv(version)), fcntl.LOCK_EX)


def venv_python(version: str) -> Path:
    return venv(version) / "bin" / "python"


def site_packages(version: str) -> Path:
    return next((venv(version) / "lib").glob("python3.*/site-packages"))
