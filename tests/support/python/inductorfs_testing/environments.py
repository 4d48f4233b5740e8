# SPDX-License-Identifier: Apache-2.0
"""Python environments with a torch and a Triton that nobody can run: enough for a daemon that reads them, and for a process that
maps their libraries, which is what makes it a writer of that environment."""
import ast
import subprocess
import sysconfig
from pathlib import Path

from . import artefacts

INTERPRETER = Path("/usr/bin/python3")
SOABI = sysconfig.get_config_var("SOABI")
TREE = {
    "torch/__init__.py": "ROOT",
    "torch/version.py": "__version__ = '9.9.9+test'\ncuda = None\n",
    f"torch/_C.{SOABI}.so": "EXTENSION",
    "torch/lib/libtorch_cpu.so": "TORCH",
    "torch/lib/libc10.so": "C10",
    "torch-9.9.9.dist-info/RECORD": "torch/__init__.py,sha256=AAA,4\n",
    "triton/__init__.py": "__version__ = '8.8.8'\n",
    "triton/runtime/cache.py": "def triton_key():",
    "triton/compiler/__init__.py": "",
    "triton/backends/__init__.py": "",
    "triton/language/__init__.py": "",
    "triton/_C/libtriton.so": "TRITON",
}

# Says a line when it is ready, and for each text it is told another one when it has written that code.
WRITER = """
import ctypes, ctypes.util, mmap, os, shutil, sys
from pathlib import Path
tools, cache, packages, change, user = sys.argv[1:]
sys.path.insert(0, tools)
from inductorfs_testing import artefacts
cache = os.open(cache, os.O_RDONLY)
libc = ctypes.CDLL(None, use_errno=True)

def mount(source, target, kind, flags):
    if libc.mount(source.encode(), target.encode(), kind.encode(), flags, None) != 0:
        raise OSError(ctypes.get_errno(), target)

if change in ("namespace", "chroot"):
    if change == "namespace":
        if libc.unshare(0x20000) != 0:  # CLONE_NEWNS
            raise OSError(ctypes.get_errno(), "unshare")
        mount("none", "/", "none", 0x44000)  # MS_REC | MS_PRIVATE
        os.rename(packages, packages + ".moved")
        os.mkdir(packages)
        mount(packages + ".moved", packages, "none", 0x1000)  # MS_BIND
    else:
        os.chroot(packages)
        packages = ""
os.fchdir(cache)
os.setgid(int(user))
os.setuid(int(user))
kept = []
for name in sys.stdin.readline().split():
    with open(packages + "/" + name, "rb") as file:
        kept.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
print("ready", flush=True)
for line in sys.stdin:
    kind, text = line.rstrip().split(" ", 1)
    if kind == "graph":
        artefacts.write_graph(".", text, text)
    elif kind == "model":
        artefacts.write_model(".", text)
    elif kind == "read":
        try:
            with open(text, errors="replace") as file:
                print(repr(file.read()), flush=True)
        except FileNotFoundError:
            print(None, flush=True)
        continue
    elif kind in ("compile", "dump", "kernel"):
        root, seed = text.rsplit(" ", 1)
        told = "written"
        try:
            if kind == "compile":
                artefacts.triton_compile_in(root, seed, seed)
            elif kind == "dump":
                for name in ("k.ttir", "k.ptx"):
                    artefacts.triton_put(Path(root) / artefacts.triton_key(seed), name, seed + " wrote " + name)
            else:
                children = artefacts.triton_read_in(root, seed)
                told = children and sorted(artefacts.triton_writers(children))
        except OSError as error:
            told = error
        print(told if told == "written" else repr(told), flush=True)
        continue
    elif kind == "move":
        source, target = text.split(" ")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(source, target)
    elif kind == "remove":
        for name in os.listdir(text):
            shutil.rmtree(os.path.join(text, name))
    elif kind == "spoil":
        with open(text, "r+") as file:
            file.write("SPOILT")
            file.flush()
            os.fsync(file.fileno())
    elif kind == "set":
        os.environ.update([text.split("=", 1)])
    elif kind == "child":
        if (child := os.fork()) == 0:
            try:
                with open(text) as file:
                    print(repr(file.read()), flush=True)
            except FileNotFoundError:
                print(None, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        continue
    else:
        artefacts.write_atomic(".", artefacts.code(text, ".py"), text)
    print("written", flush=True)
"""


def bare(directory: Path):
    """Makes a virtual environment without packages there. Returns the directory for them."""
    packages = directory / "lib" / INTERPRETER.resolve().name / "site-packages"
    for made in (directory / "bin", packages):
        made.mkdir(parents=True)
    (directory / "bin/python").symlink_to(INTERPRETER)
    (directory / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    return packages


def make(directory: Path, vllm=None):
    """The packages' directory of a virtual environment there, whose interpreter is bin/python. `vllm`: what the library of its vLLM
    has, which is not from a wheel; else it has none."""
    packages = bare(directory)
    for name, text in TREE.items():
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text(text)
    if vllm is not None:
        install_vllm(packages, vllm)
    return packages


def install_vllm(packages, library):
    """As `make` does."""
    for name, text in {"__init__.py": "", "_version.py": "__version__ = version = '0.32.0'\n", "_C.abi3.so": library}.items():
        (packages / "vllm" / name).parent.mkdir(exist_ok=True)
        (packages / "vllm" / name).write_text(text)


class Writer:
    """A process that has these packages loaded and writes generated code, whose facets are torch and Triton, and graphs, which
    depend on the environment too. `change`: what it does to its view of the files before, "namespace" or "chroot"; `variables`:
    what it has in its environment; `enter`: a command that runs it in a container, which has this directory at `tools`. Use as a context."""

    def __init__(self, cache: Path, packages: Path, change="", user=0, variables=None, enter=(), tools=Path(__file__).parent.parent):
        self._child = subprocess.Popen([*enter, INTERPRETER, "-B", "-c", WRITER, tools, cache, packages, change, str(user)],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"PATH": "/usr/bin:/bin", **(variables or {})})
        self._tell(f"torch/_C.{SOABI}.so torch/lib/libtorch_cpu.so triton/_C/libtriton.so", "ready")

    @property
    def pid(self):
        return self._child.pid

    def write(self, text):
        """The path of the code below the mount."""
        self._tell(f"code {text}", "written")
        return artefacts.code(text, ".py")

    def begin_to_write(self, text):
        """Has code written, which may be held up, and waits for nothing: to be told no more."""
        self._child.stdin.write(f"code {text}\n")
        self._child.stdin.flush()

    def write_graph(self, text):
        """The path of the graph below the mount."""
        self._tell(f"graph {text}", "written")
        return artefacts.graph(text, text)

    def write_model(self, text):
        """The path below the mount of a model that vLLM compiled."""
        self._tell(f"model {text}", "written")
        return artefacts.model(text)

    def compile(self, directory, seed):
        """Has Triton's files of a kernel put into this TRITON_CACHE_DIR."""
        self._tell(f"compile {directory} {seed}", "written")

    def dump(self, directory, seed):
        """Has Triton dump a kernel into this TRITON_DUMP_DIR: files without a group file."""
        self._tell(f"dump {directory} {seed}", "written")

    def kernel(self, directory, seed):
        """The writers of the kernel that Triton finds there; None for a miss."""
        return self.read(f"{directory} {seed}", "kernel")

    def read(self, path, kind="read"):
        """What this process finds below the mount; None where it finds nothing."""
        self._child.stdin.write(f"{kind} {path}\n")
        self._child.stdin.flush()
        return ast.literal_eval(self._child.stdout.readline())

    def read_by_child(self, path):
        """What a process finds below the mount that this one starts now."""
        return self.read(path, "child")

    def move(self, path, to):
        self._tell(f"move {path} {to}", "written")

    def remove(self, directory):
        """All that it finds in this directory, as shutil.rmtree does."""
        self._tell(f"remove {directory}", "written")

    def spoil(self, path):
        """Writes into the file, from its first byte on."""
        self._tell(f"spoil {path}", "written")

    def set(self, name, value):
        """Sets a variable of the process."""
        self._tell(f"set {name}={value}", "written")

    def _tell(self, line, answer):
        self._child.stdin.write(line + "\n")
        self._child.stdin.flush()
        told = self._child.stdout.readline()
        assert told == answer + "\n", (line, told, self._child.poll())

    def __enter__(self):
        return self

    def end(self):
        self._child.kill()
        self._child.wait(20)

    def __exit__(self, *_):
        self.end()


