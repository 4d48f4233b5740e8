# SPDX-License-Identifier: Apache-2.0
"""What the kernel libraries of serving engines do in their cache directories, call by call, without a GPU and without the libraries.
Each class names the functions that it repeats. make() is what a process does that needs a kernel: it looks, and if there is none it
writes one; find() is a look alone. Both return what the process then loads, {name: bytes}; find() None for a miss. Died: the
engine's process would end here.

Every file tells its writer, so that a mixture is seen (writers_of). Read: DeepGEMM 54e2261, DeepJIT 5016f3c, TileLang 0.1.15,
SGLang 0.5.23, FlashInfer 0.7.2."""
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import struct
import threading
import uuid
from pathlib import Path

WRITER = re.compile(rb"<<writer ([^>]*)>>")
CUDA, X86_64 = 190, 62  # e_machine


class Died(AssertionError):
    """The engine ends with this message."""


def told_by(writer):
    return f"<<writer {writer}>>".encode()


def writers_of(files):
    """Who wrote these files."""
    return {name.decode() for data in files.values() for name in WRITER.findall(data)}


def elf(kind, machine, flags, content):
    """A file of ELF with one section, as ptxas or a linker would make it."""
    begin = 64
    table = begin + len(content)
    header = struct.pack("<4sBBB9xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, kind, machine, 1, 0, 0, table, flags, 64, 56, 0, 64, 2, 0)
    section = struct.pack("<IIQQQQIIQQ", 0, 1, 0, 0, begin, len(content), 0, 0, 1, 0)
    return header + content + bytes(64) + section


def cubin(writer, size=20_000):
    """For sm_90."""
    return elf(2, CUDA, 90 | 90 << 16, told_by(writer) + os.urandom(size))


def library(writer, size=20_000):
    """A dynamic object that needs nothing of its host."""
    return elf(3, X86_64, 0, told_by(writer) + os.urandom(size))


def digest_of(seed, length=64):
    return hashlib.sha256(str(seed).encode()).hexdigest()[:length]


def write(path, data):
    """An std::ofstream, or open(path, "wb"), that is closed."""
    with open(path, "wb") as file:
        file.write(data)


def fsync(path, strict=False):
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        if strict:
            raise Died(f"failed to open for fsync: {path}: {error}") from error
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if strict:
            raise Died(f"failed to fsync: {path}: {error}") from error
    finally:
        os.close(descriptor)


def fsync_below(directory, strict=False):
    """DeepGEMM, DeepJIT: fsync_dir: what is in it first."""
    for entry in os.scandir(directory):
        if entry.is_dir(follow_symlinks=False):
            fsync_below(entry.path, strict)
        elif entry.is_file(follow_symlinks=False):
            fsync(entry.path, strict)
    fsync(directory, strict)


def exists(path):
    """std::filesystem::exists: an error other than ENOENT and ENOTDIR is an exception, which nothing catches."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise Died(f"exists({path}): {error}") from error
    return True


def safe_remove_all(path):
    with contextlib.suppress(OSError):
        if not os.path.isdir(path) or os.path.islink(path):
            os.remove(path)
            return
        for entry in list(os.scandir(path)):
            safe_remove_all(entry.path)
        os.rmdir(path)


def read_all(directory, names):
    files = {}
    for name in names:
        try:
            files[name] = (directory / name).read_bytes()
        except OSError as error:
            raise Died(f"{directory / name}: {error}") from error
    return files


class Library:
    """What the libraries have in common: where they work below the mount, and nothing to do when they are imported."""
    root, files = "", ()

    @classmethod
    def begin(cls, root):
        """What an import does in the cache directory."""


class DeepGemm(Library):
    """deepseek-ai/DeepGEMM csrc/jit/compiler.hpp: Compiler::build, NVCCCompiler::compile; kernel_runtime.hpp: check_validity."""
    root, files = "deep_gemm", ("kernel.cu", "kernel.cubin")

    @staticmethod
    def name(seed):
        return Path("cache") / f"kernel.sm90_fp8_gemm_1d2d.{digest_of(seed, 32)}"

    @classmethod
    def find(cls, root, seed):
        final = root / cls.name(seed)
        if not exists(final):
            return None
        if not all(exists(final / name) for name in cls.files):
            raise Died(f"Corrupted JIT cache directory (missing kernel.cu or kernel.cubin): {final}")
        return read_all(final, cls.files)

    @classmethod
    def make(cls, root, seed, writer):
        if (found := cls.find(root, seed)) is not None:
            return found
        os.makedirs(root / "tmp", exist_ok=True)
        temporary = root / "tmp" / f"{os.getpid()}-{threading.get_ident():x}-{uuid.uuid4().hex[:24]}"
        os.makedirs(temporary, exist_ok=True)
        write(temporary / "kernel.cu", b"// " + told_by(writer))
        fsync(temporary / "kernel.cu")
        write(temporary / "kernel.cubin", cubin(writer))  # nvcc, in the directory tmp/
        fsync_below(temporary)
        final = root / cls.name(seed)
        os.makedirs(final.parent, exist_ok=True)
        try:
            os.rename(temporary, final)
        except OSError:  # whatever it is: another rank was faster
            safe_remove_all(temporary)
        found = cls.find(root, seed)
        if found is None:
            raise Died("runtime != nullptr")
        return found


class DeepJit(Library):
    """deepseek-ai/DeepJIT include/deep_jit/cache/disk.hpp: DiskCache::entry, DiskCacheEntry::commit; backend/cuda/backend.hpp: compile.
    The mark `.committed` is an empty file, whose time each hit sets. DeepGEMM's cache of later releases (sgl-deep-gemm 0.2)."""
    root, files = "deep_gemm", ("kernel.cu", "kernel.cubin", "meta.json", ".committed")

    @staticmethod
    def name(seed):
        return Path("cache") / f"sm90_fp8_gemm_1d2d.{digest_of(seed, 32)}"

    @classmethod
    def find(cls, root, seed):
        final = root / cls.name(seed)
        if not exists(final / ".committed"):
            return None
        with contextlib.suppress(OSError):
            os.utime(final / ".committed")
        return read_all(final, cls.files)

    @classmethod
    def make(cls, root, seed, writer):
        if (found := cls.find(root, seed)) is not None:
            return found
        temporary = root / "tmp" / uuid.uuid4().hex
        os.makedirs(temporary, exist_ok=True)
        contents = {"kernel.cu": b"// " + told_by(writer), "kernel.cubin": cubin(writer),
                    "meta.json": json.dumps({"command": told_by(writer).decode()}).encode(), ".committed": b""}
        for name, data in contents.items():
            write(temporary / name, data)
            fsync(temporary / name, strict=True)
        fsync_below(temporary, strict=True)
        final = root / cls.name(seed)
        os.makedirs(final.parent, exist_ok=True)
        try:
            os.rename(temporary, final)
        except OSError as error:
            if not exists(final / ".committed"):
                raise Died(f"failed to publish disk cache entry: {final}: {error}") from error
            safe_remove_all(temporary)
        return read_all(final, cls.files)


def collision(error):
    """TileLang: KernelCache._is_rename_collision, BinaryCache.save."""
    return error.errno in (errno.EEXIST, errno.ENOTEMPTY)


class TileLang(Library):
    """tilelang/cache/kernel_cache.py: KernelCache._create_dirs, _save_kernel_to_disk, _safe_write_file, _write_manifest,
    _load_kernel_from_disk, _verify_cache_dir_integrity. A directory that is not as its manifest says is removed and made anew."""
    root = "tilelang"
    files = ("device_kernel.cu", "host_kernel.cu", "kernel_lib.so", "params.json", "manifest.json")
    version = Path("0.1.15")
    below = version / "linux-x86_64"

    @classmethod
    def begin(cls, root):
        for directory in (cls.below, cls.below / "kernels", cls.below / ".staging"):
            os.makedirs(root / directory, exist_ok=True)

    @classmethod
    def name(cls, seed):
        return cls.below / "kernels" / digest_of(seed)

    @classmethod
    def is_complete(cls, directory):
        return os.path.isdir(directory) and all(os.path.exists(directory / name) for name in cls.files)

    @classmethod
    def find(cls, root, seed):
        final = root / cls.name(seed)
        if not all(os.path.exists(final / name) for name in cls.files):
            return None
        try:
            files = {name: (final / name).read_bytes() for name in cls.files}
            manifest = json.loads(files["manifest.json"])["files"]
            whole = all(hashlib.sha256(files[name]).hexdigest() == told["sha256"] for name, told in manifest.items())
        except (OSError, ValueError, KeyError):
            whole = False
        if whole:
            return files
        shutil.rmtree(final, ignore_errors=True)
        return None

    @staticmethod
    def safe_write(path, data):
        temporary = path.parent / f".{path.name}.{os.getpid()}_{uuid.uuid4().hex}.tmp"
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(OSError):
                os.remove(temporary)

    @classmethod
    def make(cls, root, seed, writer):
        cls.begin(root)
        if (found := cls.find(root, seed)) is not None:
            return found
        final = root / cls.name(seed)
        if not cls.is_complete(final):
            cls.save(root, final, writer)
        return cls.find(root, seed)

    @classmethod
    def save(cls, root, final, writer):
        staging = root / cls.below / ".staging" / f"{final.name}_{os.getpid()}_{uuid.uuid4().hex[:8]}"
        os.makedirs(staging)
        contents = {"device_kernel.cu": b"// " + told_by(writer), "host_kernel.cu": b"// " + told_by(writer),
                    "kernel_lib.so": library(writer), "params.json": b'["' + told_by(writer) + b'"]'}
        for name, data in contents.items():
            cls.safe_write(staging / name, data)
        listed = sorted(os.scandir(staging), key=lambda entry: entry.name)
        manifest = {entry.name: {"size": entry.stat().st_size, "sha256": hashlib.sha256(Path(entry.path).read_bytes()).hexdigest()}
                    for entry in listed}
        cls.safe_write(staging / "manifest.json", json.dumps({"version": 1, "files": manifest}, indent=2).encode())
        for entry in os.scandir(staging):
            with open(entry.path, "rb+") as file:
                os.fsync(file.fileno())
        fsync(staging)
        if os.path.isdir(final) and not cls.is_complete(final):
            shutil.rmtree(final)
        try:
            os.rename(staging, final)
        except OSError as error:
            if not collision(error):
                raise Died(f"Error during atomic cache save: {error}") from error  # logged; the kernel is not cached
            shutil.rmtree(staging, ignore_errors=True)
        else:
            fsync(final.parent)


class TileLangBinary(TileLang):
    """tilelang/cache/binary_cache.py: BinaryCache.save, load: a damaged one is a miss for ever, so nobody may get one."""
    root, files = "tilelang", ("kernel.cubin", "metadata.json")

    @classmethod
    def name(cls, seed):
        return cls.version / "cuda-binaries" / digest_of(seed)

    @classmethod
    def find(cls, root, seed):
        final = root / cls.name(seed)
        try:
            files = {name: (final / name).read_bytes() for name in cls.files}
            told = json.loads(files["metadata.json"])
        except (OSError, ValueError):
            return None
        data = files["kernel.cubin"]
        return files if (told["size"], told["sha256"]) == (len(data), hashlib.sha256(data).hexdigest()) else None

    @classmethod
    def make(cls, root, seed, writer):
        if (found := cls.find(root, seed)) is not None:
            return found
        final = root / cls.name(seed)
        os.makedirs(final.parent, exist_ok=True)
        if not os.path.lexists(final):
            above = root / cls.version / ".staging" / "cuda-binaries"
            os.makedirs(above, exist_ok=True)
            staging = above / f"{final.name}.{os.getpid()}.{uuid.uuid4().hex}"
            os.mkdir(staging)
            try:
                data = cubin(writer)
                told = {"format": "tilelang.cuda-binary-cache.v1", "size": len(data), "sha256": hashlib.sha256(data).hexdigest(),
                        "told": told_by(writer).decode()}
                for name, content in zip(cls.files, (data, json.dumps(told).encode()), strict=True):
                    write(staging / name, content)
                    fsync(staging / name)
                fsync(staging)
                os.rename(staging, final)
                fsync(final.parent)
                fsync(above)
            except OSError as error:
                if not collision(error):
                    raise Died(str(error)) from error
            finally:
                shutil.rmtree(staging, ignore_errors=True)
        return cls.find(root, seed)


class Sglang(Library):
    """sglang/kernels/jit/utils/compile/cache.py: find_prebuilt, commit_build, _publish; loader.py: load_jit, _build_lock. It finds its
    directories by listing the one above, and sets the time of the one that it takes."""
    root, module = "sglang/jit", "sgl_kernel_jit_norm"
    files = ("sgl_deps.json", f"{module}.so")

    @staticmethod
    def dependencies(seed):
        return [["kernels", "csrc/norm.cuh", digest_of(seed)], ["sys", "include/math.h", digest_of("math.h")]]

    @classmethod
    def name(cls, seed):
        """cache.py: _deps_key, _hash_parts."""
        hashed = b"".join(repr(tuple(entry)).encode() + b"\0" for entry in cls.dependencies(seed))
        key = hashlib.sha256(hashed).hexdigest()[:16]
        return Path("sm90a") / cls.module / f"build-{digest_of(seed, 16)}" / f"deps-{key}"

    @classmethod
    def find(cls, root, seed):
        scope = (root / cls.name(seed)).parent
        try:
            leaves = sorted((path for path in scope.iterdir() if path.name.startswith("deps-")), key=lambda path: path.stat().st_mtime,
                            reverse=True)
        except OSError:
            return None
        for leaf in leaves:
            try:
                deps = (leaf / "sgl_deps.json").read_bytes()
                json.loads(deps)
            except (OSError, ValueError):
                continue
            if leaf.name != cls.name(seed).name:  # the content of the dependencies is another one
                continue
            candidate = leaf / f"{cls.module}.so"
            if candidate.is_file():
                with contextlib.suppress(OSError):
                    os.utime(leaf, None)
                return {"sgl_deps.json": deps, candidate.name: candidate.read_bytes()}
        return None

    @classmethod
    def make(cls, root, seed, writer):
        if (found := cls.find(root, seed)) is not None:
            return found
        leaf = root / cls.name(seed)
        scope = leaf.parent
        scope.mkdir(parents=True, exist_ok=True)
        lock = os.open(scope / ".lock", os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (found := cls.find(root, seed)) is not None:
                return found
            staging = scope / f".staging-{uuid.uuid4().hex}"
            try:
                cls.build(staging, seed, writer)
                try:
                    os.rename(staging, leaf)
                except OSError as error:
                    if not leaf.is_dir():
                        raise Died(f"{leaf}: {error}") from error
                return {name: (leaf / name).read_bytes() for name in cls.files}
            finally:
                shutil.rmtree(staging, ignore_errors=True)
        finally:
            os.close(lock)

    @classmethod
    def build(cls, staging, seed, writer):
        """ninja.py: build: the files of the build are in the directory too."""
        staging.mkdir()
        write(staging / "build.ninja", b"# " + told_by(writer))
        write(staging / "cuda.cu", b"// " + told_by(writer))
        write(staging / "cuda.o", library(writer, 5000))
        write(staging / ".ninja_log", b"# ninja log v6\n" + told_by(writer))
        write(staging / f"{cls.module}.so", library(writer))
        write(staging / "sgl_deps.json", json.dumps(cls.dependencies(seed), separators=(",", ":")).encode())


class FlashInferCubin(Library):
    """flashinfer/jit/cubin_loader.py: get_artifact, download_file, load_cubin: a file, not a directory."""
    root = ".cache/flashinfer"

    @staticmethod
    def name(seed):
        return Path("cubins") / digest_of(seed, 40) / "fmha" / "trtllm-gen" / f"Fmha_{digest_of(seed, 8)}.cubin"

    @classmethod
    def find(cls, root, seed):
        try:
            return {"cubin": (root / cls.name(seed)).read_bytes()}
        except OSError:
            return None

    @classmethod
    def make(cls, root, seed, writer):
        if (found := cls.find(root, seed)) is not None:
            return found
        final = root / cls.name(seed)
        os.makedirs(final.parent, exist_ok=True)
        lock = os.open(f"{final}.lock", os.O_RDWR | os.O_TRUNC | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            temporary = Path(f"{final}.{uuid.uuid4().hex}.tmp")
            write(temporary, cubin(writer))
            os.replace(temporary, final)
        finally:
            os.close(lock)
        return cls.find(root, seed)


# Those that make a directory and rename it.
DIRECTORIES = (DeepGemm, DeepJit, TileLang, TileLangBinary, Sglang)
