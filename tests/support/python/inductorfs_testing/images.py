# SPDX-License-Identifier: Apache-2.0
"""Python environments as container images and shared disks show them: each an overlay of a real one, with other device numbers, at a path of
its own that every user may read. Root only."""
import functools
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from . import places
from .fixtures import lack

# A changed module of torch that changes what is computed: where the original has a rectified linear unit, this one adds 1 to it.
PATCHED = "torch/_inductor/codegen/cpp.py"
PATCH = [(r'return f"std::max\(\{x\}, decltype\(\{x\}\)\(0\)\)"', 'return f"std::max({x}, decltype({x})(0)) + decltype({x})(1)"'),
         (r'return f"at::vec::clamp_min\(\{x\}, decltype\(\{x\}\)\(0\)\)"',
          'return f"at::vec::clamp_min({x}, decltype({x})(0)) + decltype({x})(1)"')]


def patched(site_packages):
    """{file of the packages: what it has in the image}."""
    text = (site_packages / PATCHED).read_text()
    for pattern, new in PATCH:
        text, count = re.subn(pattern, new, text)
        assert count == 1, f"{site_packages / PATCHED} has {pattern} {count} times"
    return {PATCHED: text}


# {image: (environment, what changes its packages)}: two are of equal content, at two paths.
IMAGES = {"2.15": ("2.15", None), "2.15 again": ("2.15", None), "2.9": ("2.9", None), "2.15 patched": ("2.15", patched)}


def base_of(python):
    """Where the interpreter of a virtual environment is installed."""
    done = subprocess.run([python, "-c", "import sys; print(sys.base_prefix)"], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    return Path(done.stdout.strip())


def closed(path):
    """Others than its owner cannot go there."""
    return any(not parent.stat().st_mode & 0o001 for parent in (path, *path.parents))


class Images:
    """Images as those of IMAGES; what they consist of is never written to. Needs external synchronisation; use as a context."""

    def __init__(self, images=None):
        if os.geteuid() != 0:
            lack("overlays: root only")
        self._images = images or IMAGES
        self.root, self._mounts = None, []

    def __enter__(self):
        self.root = Path(tempfile.mkdtemp(prefix="inductorfs-images-"))
        self.root.chmod(0o755)
        try:
            # The upper directory of an overlay may lie on a tmpfs, and not on another overlay, as which CI has its whole disk.
            self._mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", self._made("layers"))
            # All of them before the first container, which sees no mount that is made later.
            for image in self._images:
                self.python(image)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        while self._mounts:
            subprocess.run(["umount", "-l", self._mounts.pop()], check=True)
        for directory in self.root.iterdir():
            directory.rmdir()  # never more than a mountpoint: what is not empty is somebody's installation
        self.root.rmdir()

    @functools.cache
    def python(self, image):
        """The interpreter of this image."""
        version, change = self._images[image]
        changes = self._interpreter(places.venv_python(version))
        packages = places.site_packages(version)
        for file, content in (change(packages) if change else {}).items():
            changes[(packages / file).relative_to(places.venv(version))] = content
        return self._overlay(image.replace(" ", "-"), places.venv(version), changes) / "bin" / "python"

    @functools.cached_property
    def variables(self):
        """What a job needs in its environment to run these interpreters."""
        base = base_of(places.venv_python(next(iter(self._images.values()))[0]))
        return {"LD_LIBRARY_PATH": str(self._base(base) / "lib")} if closed(base) else {}

    def _interpreter(self, python):
        """{file of the virtual environment: its content}, as far as it cannot lead to the interpreter where that lies."""
        base = base_of(python)
        if not closed(base):
            return {}
        moved = self._base(base)
        settings = (python.parent.parent / "pyvenv.cfg").read_text()
        return {Path("pyvenv.cfg"): re.sub(r"^home = .*$", f"home = {moved / 'bin'}", settings, flags=re.MULTILINE),
                Path("bin/python3"): moved / python.resolve().relative_to(base.resolve())}

    @functools.cache
    def _base(self, base):
        return self._overlay("interpreter", base, {})

    def _overlay(self, name, lower, changes):
        """Shows `lower` with these files changed (text, bytes) or replaced by links (paths)."""
        upper, work = (self.root / "layers" / f"{name}-{kind}" for kind in ("upper", "work"))
        upper.mkdir()
        work.mkdir()
        shutil.copymode(lower, upper)
        for file, content in changes.items():
            (upper / file).parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Path):
                (upper / file).symlink_to(content)
            else:
                (upper / file).write_bytes(content if isinstance(content, bytes) else content.encode())
        self._mount("-t", "overlay", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}", "overlay", self._made(name))
        return self.root / name

    def _made(self, name):
        (self.root / name).mkdir()
        return self.root / name

    def _mount(self, *words):
        done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lack(f"mount {' '.join(map(str, words))}: {done.stderr.strip()}")
        self._mounts.append(words[-1])
