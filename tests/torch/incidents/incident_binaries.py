# SPDX-License-Identifier: Apache-2.0
"""What binaries need of a host: a kernel called on an emulated CPU, a `.so` that asks for a newer glibc or for CUDA 12."""
import re
import shutil
import struct
import subprocess
from pathlib import Path

from inductorfs_testing.fixtures import lack
from inductorfs_testing.processes import run

EMULATOR = "qemu-x86_64"
CALLER = Path(__file__).with_name("call_kernel.c")


def cpu_flags():
    text = Path("/proc/cpuinfo").read_text()
    return set(re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)[1].split())


def older_cpu():
    """A CPU model that lacks what this host's `-march=native` uses, as qemu names it."""
    flags = cpu_flags()
    if "avx512f" in flags:
        return "Haswell"
    if "avx" in flags:
        return "Nehalem"
    lack("this host has no vector extension that an older CPU could lack")


class Caller:
    """Calls the kernel of a C++ artefact without Python and torch."""

    def __init__(self, directory: Path):
        if not shutil.which(EMULATOR):
            lack(f"{EMULATOR} is missing (scripts/deps installs it)")
        directory.mkdir(parents=True, exist_ok=True)
        self._directory, self._program = directory, directory / "call_kernel"
        subprocess.run(["cc", "-O1", "-o", self._program, CALLER, "-ldl"], check=True, timeout=60)

    def _python_symbols(self, library: Path):
        """A library with every symbol of Python that the artefact wants: data, never called."""
        names = run(["nm", "-D", "--undefined-only", "--format=just-symbols", library]).out.split()
        stub = self._directory / f"{library.name}.stub.so"
        source = "".join(f"char {name}[1024];\n" for name in names if re.match(r"_?Py", name))
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", stub], input=source.encode(), check=True, timeout=60)
        return stub

    def call(self, library: Path, cpu=None):
        """Result of calling it on this CPU, or on an emulated one."""
        emulated = [EMULATOR, "-cpu", cpu] if cpu else []
        return run([*emulated, self._program, self._python_symbols(library), library], seconds=60, directory=self._directory)

    def portable_kernel(self):
        """The control: a kernel for any x86-64, whose answer is the emulator's own work."""
        library = self._directory / "portable.so"
        source = "void kernel(const float* in, float* out) { for (int i = 0; i < 256; ++i) out[i] = in[i] * 3.5f + 1.25f; }"
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-march=x86-64", "-x", "c", "-", "-o", library],
                       input=source.encode(), check=True, timeout=60)
        return library


def elf_hash(name: bytes):
    """System V ABI: the hash of a version's name."""
    value = 0
    for byte in name:
        value = (value << 4) + byte
        high = value & 0xF0000000
        if high:
            value ^= high >> 24
        value &= ~high & 0xFFFFFFFF
    return value


def sections(data):
    """[(type, offset, size, link)] of a 64-bit ELF."""
    table, = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    return [(kind, offset, length, link) for kind, offset, length, link in (
        (struct.unpack_from("<I", data, at + 4)[0], *struct.unpack_from("<QQI", data, at + 24))
        for at in range(table, table + size * count, size))]


def needing_a_newer_glibc(library: bytes):
    """(the same library linked against a later glibc, that version): one of the versions of libc.so.6 that it needs gets
    another name, as `GLIBC_2.99`."""
    needs = 0x6FFFFFFE  # SHT_GNU_verneed
    data, all_sections = bytearray(library), sections(library)
    (_, at, _, link), = [section for section in all_sections if section[0] == needs]
    strings = all_sections[link][1]

    def text(offset):
        return bytes(data[strings + offset:data.index(b"\0", strings + offset)])

    while True:
        _, count, file, auxiliary, following = struct.unpack_from("<HHIII", data, at)
        entry = at + auxiliary
        for _ in range(count):
            _, _, _, name, after = struct.unpack_from("<IHHII", data, entry)
            if text(file) == b"libc.so.6" and text(name).startswith(b"GLIBC_2."):
                newer = b"GLIBC_2." + b"9" * (len(text(name)) - len(b"GLIBC_2."))
                data[strings + name:strings + name + len(newer)] = newer
                struct.pack_into("<I", data, entry, elf_hash(newer))
                return bytes(data), newer.decode()
            entry += after
        if following == 0:
            raise AssertionError("the library needs no version of libc.so.6")
        at += following


def cuda_12_library(path: Path, cuda: Path):
    """A library that calls the CUDA runtime, linked against that of CUDA 12."""
    source = "int cudaRuntimeGetVersion(int*); int kernel(void) { int v; return cudaRuntimeGetVersion(&v); }"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path, f"-L{cuda}", "-l:libcudart.so.12"],
                   input=source.encode(), check=True, timeout=60)
    return path


def cubin_architecture(cubin: bytes):
    """The SM of a cubin: low byte of e_flags, from ELF ABI version 8 on the byte above it."""
    flags, = struct.unpack_from("<I", cubin, 48)
    return flags >> 8 & 0xFF if cubin[8] >= 8 else flags & 0xFF
