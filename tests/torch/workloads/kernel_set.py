# SPDX-License-Identifier: Apache-2.0
"""Fourteen Triton kernels, each with what ASTSource needs. The storm copies this file to a path of its own per process:
Triton writes the path of the source into every IR, so that each file of a key directory tells who wrote it."""
import triton
import triton.language as tl
from triton.language.extra import libdevice

KERNELS = {}  # name -> (function, signature, constants)


def kernel(signature, **constants):
    def register(function):
        jitted = triton.jit(function)
        types = {**signature, **{name: "constexpr" for name in constants}}
        KERNELS[function.__name__] = (jitted, types, constants)
        return jitted
    return register


UNARY = {"x": "*fp32", "y": "*fp32", "n": "i32"}
BINARY = {"x": "*fp32", "y": "*fp32", "z": "*fp32", "n": "i32"}
ROWS = {"x": "*fp32", "y": "*fp32", "columns": "i32"}


@kernel({**UNARY, "a": "fp32"}, BLOCK=256)
def axpy(x, y, n, a, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, at < n) * a + tl.load(y + at, at < n), at < n)


@kernel(UNARY, BLOCK=512)
def sigmoid(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.sigmoid(tl.load(x + at, at < n)), at < n)


@kernel(BINARY, BLOCK=256)
def swiglu(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(x + at, at < n)
    tl.store(z + at, gate * tl.sigmoid(gate) * tl.load(y + at, at < n), at < n)


@kernel(UNARY, BLOCK=256)
def gelu_by_libdevice(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, at < n)
    tl.store(y + at, 0.5 * value * (1.0 + libdevice.erf(value * 0.7071067811865476)), at < n)


@kernel(ROWS, BLOCK=128)
def softmax(x, y, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + at, at < columns, float("-inf"))
    value = tl.exp(value - tl.max(value, 0))
    tl.store(y + row * columns + at, value / tl.sum(value, 0), at < columns)


@kernel(ROWS, BLOCK=128)
def layer_norm(x, y, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + at, at < columns, 0.0)
    mean = tl.sum(value, 0) / columns
    centred = tl.where(at < columns, value - mean, 0.0)
    tl.store(y + row * columns + at, centred * tl.rsqrt(tl.sum(centred * centred, 0) / columns + 1e-5), at < columns)


@kernel(ROWS, BLOCK=256)
def row_sum(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * columns + at, at < columns, 0.0)
    tl.store(y + row, tl.sum(total, 0))


@kernel(ROWS, BLOCK=128)
def running_sum(x, y, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(y + row * columns + at, tl.cumsum(tl.load(x + row * columns + at, at < columns, 0.0), 0), at < columns)


@kernel({"x": "*fp32", "total": "*fp32", "n": "i32"}, BLOCK=256)
def atomic_total(x, total, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + at, at < n, 0.0), 0))


@kernel({**UNARY, "seed": "i32"}, BLOCK=256, P=0.25)
def dropout(x, y, n, seed, BLOCK: tl.constexpr, P: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.rand(seed, at) > P
    tl.store(y + at, tl.where(keep, tl.load(x + at, at < n) / (1 - P), 0.0), at < n)


@kernel({"x": "*fp16", "y": "*fp16", "rows": "i32", "columns": "i32"}, TILE=32)
def transpose(x, y, rows, columns, TILE: tl.constexpr):
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = (i[:, None] < rows) & (j[None, :] < columns)
    value = tl.load(x + i[:, None] * columns + j[None, :], inside)
    tl.store(y + j[:, None] * rows + i[None, :], tl.trans(value), tl.trans(inside))


@kernel({"x": "*fp32", "index": "*i64", "y": "*fp32", "n": "i32"}, BLOCK=128)
def gather(x, index, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + tl.load(index + at, at < n, 0), at < n), at < n)


@kernel({"x": "*bf16", "y": "*fp32", "n": "i32"}, BLOCK=256)
def widen(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, at < n).to(tl.float32) * 2.0, at < n)


@kernel({"a": "*fp16", "b": "*fp16", "c": "*fp32", "m": "i32", "n": "i32", "k": "i32"}, M=32, N=32, K=32)
def matmul(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i = tl.program_id(0) * M + tl.arange(0, M)
    j = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        p = start + tl.arange(0, K)
        left = tl.load(a + i[:, None] * k + p[None, :], (i[:, None] < m) & (p[None, :] < k), 0.0)
        right = tl.load(b + p[:, None] * n + j[None, :], (p[:, None] < k) & (j[None, :] < n), 0.0)
        total = tl.dot(left, right, total)
    tl.store(c + i[:, None] * n + j[None, :], total, (i[:, None] < m) & (j[None, :] < n))
