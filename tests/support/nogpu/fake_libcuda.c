// SPDX-License-Identifier: Apache-2.0
/* fake_libcuda.c - a pretend CUDA device for hosts without a GPU (tests only).
 *
 * One shared object, SONAME libcuda.so.1, with two faces:
 *  - driver API (cu*): enough for device probes, for Triton's cuda_utils / kernel launcher and
 *    for Inductor's static launcher. dlopen("libcuda.so.1") finds it through LD_LIBRARY_PATH.
 *  - runtime API (cuda*, __cuda*) and a little cuBLAS: with LD_PRELOAD these come before the real
 *    libcudart/libcublas, so torch.cuda.is_available() is true and torch.compile runs unmodified.
 * Used by tests/fingerprint for the GPU probe and by tests/torch for torch itself. It cannot do cuDNN, CUDA graphs,
 * NCCL, nor real results: never compare values. One file, no dependency but the CUDA headers.
 * Device memory is host memory, copies are real, kernel launches do NOTHING (outputs stay 0), but for the GPU probe's own
 * kernel (src/fingerprint/gpu_kernel.cu): what that would leave is computed here, see FAKE_CUDA_KERNEL.
 * Cubins are checked (ELF magic, wanted kernel present) and their register count is read, so that a
 * damaged cache entry fails the way it would on a GPU, and register heuristics see real numbers.
 *
 * Build:  cc -O2 -shared -fPIC -Wl,-soname,libcuda.so.1 -I<cuda>/include fake_libcuda.c \
 *            -o libcuda.so.1 -ldl -lpthread
 * Use:    LD_PRELOAD=<dir>/libcuda.so.1 TRITON_LIBCUDA_PATH=<dir> python ...
 * Knobs:  FAKE_CUDA_NAME, FAKE_CUDA_CC (9.0), FAKE_CUDA_SMS, FAKE_CUDA_MEM_MB: one value for all devices, or one for each
 *         with ';' between (the last one is also that of all further devices). FAKE_CUDA_COUNT, FAKE_CUDA_VERSION (13020),
 *         FAKE_CUDA_LOG (file: one line per module load / launch). CUDA_VISIBLE_DEVICES (indices) is obeyed.
 *         FAKE_CUDA_KERNEL: what a launch of the probe's kernel does: compute (the default), nothing, wrong.
 *         FAKE_CUDA_FAIL: driver functions that fail, with their error: cuInit=999,cuLaunchKernel=719. A load can be named
 *         by its image: cuModuleLoadData.fatbin, cuModuleLoadData.ptx. FAKE_CUDA_HANG: a function that never returns.
 *         FAKE_CUDA_MIG=1: the device is an instance, with a UUID of its own beside that of the whole.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#undef cuGetProcAddress
#undef cuDeviceGetUuid

static const char *env(const char *k, const char *d) { const char *v = getenv(k); return v && *v ? v : d; }
static int ver(void) { return atoi(env("FAKE_CUDA_VERSION", "13020")); }
/* The devices that CUDA_VISIBLE_DEVICES leaves, by their place in it; a number that is not there ends the list. */
static int ndev(void) {
  int n = atoi(env("FAKE_CUDA_COUNT", "1")), seen = 0; const char *v = getenv("CUDA_VISIBLE_DEVICES"); char *end;
  if (!v) return n;
  for (long i; i = strtol(v, &end, 10), end != v && i >= 0 && i < n; v = *end == ',' ? end + 1 : end) seen++;
  return seen;
}
static int physical(int d) {
  const char *v = getenv("CUDA_VISIBLE_DEVICES"); char *end; long i = d;
  if (v) for (int k = 0; i = strtol(v, &end, 10), k < d && end != v; k++) v = *end == ',' ? end + 1 : end;
  return (int)i;
}
/* The field of device d in a knob with ';' between. */
static const char *field(const char *k, const char *def, int d) {
  static __thread char b[8][256]; static __thread int turn; char *out = b[turn++ & 7];
  const char *v = env(k, def), *next;
  for (d = physical(d); d > 0 && (next = strchr(v, ';')); d--) v = next + 1;
  snprintf(out, sizeof b[0], "%.*s", (int)strcspn(v, ";"), v);
  return out;
}
static const char *dev_name(int d) { return field("FAKE_CUDA_NAME", "NVIDIA H100 80GB HBM3", d); }
static size_t dev_mem(int d) { return strtoull(field("FAKE_CUDA_MEM_MB", "81559", d), 0, 10) << 20; }
static void dev_cc(int d, int *ma, int *mi) { *ma = 9; *mi = 0; sscanf(field("FAKE_CUDA_CC", "9.0", d), "%d.%d", ma, mi); }
static void dev_uuid(int d, void *out) { memcpy(out, "FAKE-CUDA-DEV-0", 16); ((char *)out)[14] += physical(d); }
/* The error that FAKE_CUDA_FAIL gives this function, 0 without one; does not return where FAKE_CUDA_HANG names it. */
static int trouble(const char *function) {
  const char *hang = getenv("FAKE_CUDA_HANG"), *v = getenv("FAKE_CUDA_FAIL"); size_t n = strlen(function);
  while (hang && !strcmp(hang, function)) pause();
  for (; v && *v; v = strchr(v, ',') ? strchr(v, ',') + 1 : 0)
    if (!strncmp(v, function, n) && v[n] == '=') return atoi(v + n + 1);
  return 0;
}
#define TROUBLE(name) do { int bad = trouble(name); if (bad) return (CUresult)bad; } while (0)
static void logline(const char *what, const char *name, const unsigned *g, const unsigned *b, unsigned sh) {
  const char *p = getenv("FAKE_CUDA_LOG"); FILE *f;
  if (!p || !*p || !(f = fopen(p, "a"))) return;
  if (g) fprintf(f, "%s %s grid=%u,%u,%u block=%u,%u,%u shared=%u\n", what, name, g[0], g[1], g[2], b[0], b[1], b[2], sh);
  else fprintf(f, "%s %s\n", what, name);
  fclose(f);
}
/* CUdevice_attribute and cudaDeviceAttr use the same numbers. Values: an H100 SXM5. */
static int attr(int a, int d) {
  int ma, mi; dev_cc(d, &ma, &mi);
  switch (a) {
    case 1: return 1024;                       case 2: case 3: return 1024;   case 4: return 64;
    case 5: return 2147483647;                 case 6: case 7: return 65535;  case 8: return 49152;
    case 9: return 65536;                      case 10: return 32;            case 12: return 65536;
    case 13: return 1980000;                   case 16: return atoi(field("FAKE_CUDA_SMS", "132", d));
    case 15: case 19: case 31: case 41: case 47: case 78: case 79: case 80: return 1;
    case 36: return 2619000;                   case 37: return 5120;          case 38: return 52428800;
    case 39: return 2048;                      case 75: return ma;            case 76: return mi;
    case 81: return 233472;                    case 82: return 65536;         case 95: return 1;
    case 97: case 150: return 232448;          case 106: return 32;           case 111: return 1024;
    case 115: case 120: return 1;              default: return 0;
  }
}
/* ---- device memory: a range of never-reused addresses, host pages behind it */
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static char *arena; static size_t used; static const size_t ARENA = (size_t)1 << 42;
static int on_dev(const void *p) { return arena && (char *)p >= arena && (char *)p < arena + used; }
static void *dmalloc(size_t n) {
  void *p = 0; size_t t = ((n + 4095) & ~(size_t)4095) + 4096;
  if (n > dev_mem(0)) return 0;
  pthread_mutex_lock(&mu);
  if (!arena) {
    arena = mmap(0, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena == MAP_FAILED) arena = 0;
  }
  if (arena && used + t <= ARENA) { *(size_t *)(arena + used) = t; p = arena + used + 4096; used += t; }
  pthread_mutex_unlock(&mu);
  return p;
}
static void dfree(void *p) { if (on_dev(p)) madvise((char *)p - 4096, *(size_t *)((char *)p - 4096), MADV_DONTNEED); }
/* ---- modules: keep name and register/stack numbers of one kernel per handle */
struct mod { const char *img; size_t len; int regs, stack, ptx; };
struct fun { struct mod *m; char name[1]; };
static __thread CUcontext cur;
static CUcontext context_of(int d) { return (CUcontext)(uintptr_t)(0x1000 + d); }
static int cur_dev(void) { return cur ? (int)((uintptr_t)cur - 0x1000) : 0; }
/* Text: its .target must not be above the device, its .version not above what the driver of this CUDA level knows. */
static struct mod *ptx_load(const char *text, CUresult *why) {
  int ma, mi, target = 0, vma = 0, vmi = 0; const char *p; dev_cc(cur_dev(), &ma, &mi);
  if ((p = strstr(text, ".version "))) sscanf(p, ".version %d.%d", &vma, &vmi);
  if ((p = strstr(text, ".target sm_"))) sscanf(p, ".target sm_%d", &target);
  if (!vma || !target) { *why = CUDA_ERROR_INVALID_PTX; return 0; }
  if (vma * 10 + vmi > (ver() / 1000 - 4) * 10 + ver() % 1000 / 10) { *why = CUDA_ERROR_UNSUPPORTED_PTX_VERSION; return 0; }
  if (target > ma * 10 + mi) { *why = CUDA_ERROR_NO_BINARY_FOR_GPU; return 0; }
  struct mod *m = calloc(1, sizeof *m); m->len = strlen(text) + 1; m->img = memcpy(malloc(m->len), text, m->len); m->ptx = 1;
  return m;
}
static struct mod *mod_load(const void *image, CUresult *why);
/* A fat binary, uncompressed: a header, then parts, each with a header (u16 kind: 1 PTX, 2 ELF; u32 size of the header; u64
 * size of the part; at 28 u32 architecture). The newest ELF that runs on this device is taken: equal major, not above. */
static struct mod *fat_load(const char *fat, CUresult *why) {
  int ma, mi, best = 0; uint16_t skip; uint64_t all; const char *found = 0; dev_cc(cur_dev(), &ma, &mi);
  memcpy(&skip, fat + 6, 2); memcpy(&all, fat + 8, 8);
  for (const char *p = fat + skip, *end = p + all; p + 32 <= end;) {
    uint16_t kind; uint32_t header, arch; uint64_t size;
    memcpy(&kind, p, 2); memcpy(&header, p + 4, 4); memcpy(&size, p + 8, 8); memcpy(&arch, p + 28, 4);
    if (kind == 2 && (int)arch / 10 == ma && (int)arch <= ma * 10 + mi && (int)arch > best) best = arch, found = p + header;
    p += header + size;
  }
  if (!found) { *why = CUDA_ERROR_NO_BINARY_FOR_GPU; return 0; }
  return mod_load(found, why);
}
static struct mod *mod_load(const void *image, CUresult *why) {
  const Elf64_Ehdr *e = image; static const unsigned char fat[4] = {0x50, 0xed, 0x55, 0xba};
  *why = CUDA_ERROR_INVALID_IMAGE;
  if (!memcmp(image, fat, 4)) return fat_load(image, why);
  if (!memcmp(image, "//", 2) || !memcmp(image, ".ver", 4)) return ptx_load(image, why);
  if (memcmp(e->e_ident, ELFMAG, 4) || e->e_machine != 190 /* EM_CUDA */ || !e->e_shoff || !e->e_shnum) return 0;
  const Elf64_Shdr *s = (const void *)((const char *)image + e->e_shoff);
  struct mod *m = calloc(1, sizeof *m);
  m->len = e->e_shoff + (size_t)e->e_shnum * sizeof *s;
  for (int i = 0; i < e->e_shnum; i++)
    if (s[i].sh_type != SHT_NOBITS && s[i].sh_offset + s[i].sh_size > m->len) m->len = s[i].sh_offset + s[i].sh_size;
  m->img = memcpy(malloc(m->len), image, m->len);
  s = (const void *)(m->img + e->e_shoff);
  const char *names = m->img + s[e->e_shstrndx].sh_offset;
  for (int i = 0; i < e->e_shnum; i++) {           /* .nv.info: u8 format, u8 attribute, u16 size, data */
    if (strcmp(names + s[i].sh_name, ".nv.info")) continue;
    const unsigned char *p = (const void *)(m->img + s[i].sh_offset), *end = p + s[i].sh_size;
    while (p + 4 <= end) {
      unsigned n = p[0] == 4 ? p[2] | p[3] << 8 : 0, v;
      if (n == 8 && p + 12 <= end) {
        memcpy(&v, p + 8, 4);
        if (p[1] == 0x2f && (int)v > m->regs) m->regs = v;         /* EIATTR_REGCOUNT */
        if (p[1] == 0x12 && (int)v > m->stack) m->stack = v;       /* EIATTR_MIN_STACK_SIZE */
      }
      p += 4 + n;
    }
  }
  return m;
}
/* ---- driver API */
#define R CUresult CUDAAPI
R cuInit(unsigned f) { TROUBLE("cuInit"); return ndev() ? 0 : CUDA_ERROR_NO_DEVICE; }
R cuDriverGetVersion(int *v) { *v = ver(); return 0; }
R cuDeviceGetCount(int *n) { *n = ndev(); return 0; }
R cuDeviceGet(CUdevice *d, int i) { if (i < 0 || i >= ndev()) return CUDA_ERROR_INVALID_DEVICE; *d = i; return 0; }
R cuDeviceGetName(char *n, int len, CUdevice d) { TROUBLE("cuDeviceGetName"); snprintf(n, len, "%s", dev_name(d)); return 0; }
R cuDeviceGetUuid(CUuuid *u, CUdevice d) { dev_uuid(d, u); return 0; }
R cuDeviceGetUuid_v2(CUuuid *u, CUdevice d) { dev_uuid(d, u); if (getenv("FAKE_CUDA_MIG")) u->bytes[0] = 'M'; return 0; }
R cuDeviceTotalMem_v2(size_t *b, CUdevice d) { *b = dev_mem(d); return 0; }
R cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d) { *v = attr(a, d); return 0; }
R cuDeviceGetPCIBusId(char *s, int n, CUdevice d) { snprintf(s, n, "00000000:%02X:00.0", d + 1); return 0; }
R cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) { TROUBLE("cuDevicePrimaryCtxRetain"); *c = context_of(d); return 0; }
R cuDevicePrimaryCtxGetState(CUdevice d, unsigned *f, int *a) { *f = 0; *a = 1; return 0; }
R cuCtxGetCurrent(CUcontext *c) { *c = cur; return 0; }
R cuCtxSetCurrent(CUcontext c) { cur = c; return 0; }
R cuCtxPushCurrent_v2(CUcontext c) { cur = c; return 0; }
R cuCtxPopCurrent_v2(CUcontext *c) { if (c) *c = cur; return 0; }
R cuCtxGetDevice(CUdevice *d) { *d = cur_dev(); return 0; }
R cuStreamGetCtx(CUstream s, CUcontext *c) { *c = cur ? cur : context_of(0); return 0; }
R cuCtxGetLimit(size_t *v, CUlimit l) { *v = 0; return 0; }
R cuGetErrorName(CUresult e, const char **s) { *s = e ? "CUDA_ERROR_FAKE" : "CUDA_SUCCESS"; return 0; }
R cuGetErrorString(CUresult e, const char **s) {
  *s = e == CUDA_ERROR_INVALID_IMAGE ? "device kernel image is invalid" : e == CUDA_ERROR_NOT_FOUND ? "named symbol not found" : e == CUDA_ERROR_NO_DEVICE ? "no CUDA-capable device is detected" : e ? "fake CUDA error" : "no error";
  return 0;
}
R cuModuleLoadData(CUmodule *m, const void *img) {
  CUresult why; const unsigned char *b = img;
  TROUBLE(b[0] == 0x50 ? "cuModuleLoadData.fatbin" : b[0] == 0x7f ? "cuModuleLoadData.elf" : "cuModuleLoadData.ptx");
  struct mod *x = mod_load(img, &why);
  logline("load", x ? "ok" : "INVALID_IMAGE", 0, 0, 0);
  *m = (CUmodule)x; return x ? 0 : why;
}
R cuModuleLoadDataEx(CUmodule *m, const void *img, unsigned n, CUjit_option *o, void **v) { return cuModuleLoadData(m, img); }
R cuModuleLoad(CUmodule *m, const char *path) {
  FILE *f = fopen(path, "rb"); if (!f) return CUDA_ERROR_FILE_NOT_FOUND;
  fseek(f, 0, SEEK_END); long n = ftell(f); rewind(f);
  char *b = calloc(1, n + 64); size_t k = fread(b, 1, n, f); fclose(f);
  CUresult r = k == (size_t)n ? cuModuleLoadData(m, b) : CUDA_ERROR_FILE_NOT_FOUND;
  free(b); return r;
}
R cuModuleUnload(CUmodule h) { struct mod *m = (void *)h; free((void *)m->img); m->img = 0; m->len = 0; return 0; }
R cuModuleGetFunction(CUfunction *f, CUmodule h, const char *name) {
  struct mod *m = (void *)h; char key[4096]; snprintf(key, sizeof key, m->ptx ? ".entry %s" : ".text.%s", name);
  if (!memmem(m->img, m->len, key, strlen(key) + !m->ptx)) return CUDA_ERROR_NOT_FOUND;
  struct fun *x = calloc(1, sizeof *x + strlen(name)); x->m = m; strcpy(x->name, name);
  *f = (CUfunction)x; return 0;
}
R cuFuncGetAttribute(int *v, CUfunction_attribute a, CUfunction f) {
  struct mod *m = ((struct fun *)f)->m;
  *v = a == CU_FUNC_ATTRIBUTE_NUM_REGS ? m->regs : a == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES ? m->stack
       : a == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return 0;
}
/* src/fingerprint/gpu_kernel.cu, word for word. */
static void probe_kernel(unsigned blocks, unsigned seed, unsigned *out) {
  const char *what = env("FAKE_CUDA_KERNEL", "compute");
  if (!strcmp(what, "nothing")) return;
  for (unsigned b = 0; b < blocks; b++) {
    unsigned v[256], shared[256];
    for (unsigned t = 0; t < 256; t++) v[t] = seed + b * 256 + t;
    for (unsigned r = 0; r < 16; r++) {
      for (unsigned t = 0; t < 256; t++) v[t] = v[t] * 1664525u + 1013904223u, v[t] ^= v[t] >> 15, shared[t] = v[t];
      for (unsigned t = 0; t < 256; t++) v[t] += shared[(t * 5 + r * 7 + 1) & 255];
    }
    memcpy(out + b * 256, v, sizeof v);
  }
  if (!strcmp(what, "wrong")) out[7] ^= 1, out[300] ^= 1;
}
/* The device's own clock, in ns: each launch takes what its name and its shape say, so that the same choice wins every
   tuning, whatever the host is busy with. A product of cuBLAS is slower than any kernel: the templates' kernels win. */
static _Atomic unsigned long long device_clock;
static void take_time(const char *name, const unsigned *g, const unsigned *b) {
  unsigned h = 2166136261u;
  for (; *name; name++) h = (h ^ (unsigned char)*name) * 16777619u;
  for (int i = 0; i < 3; i++) h = ((h ^ g[i]) * 16777619u ^ b[i]) * 16777619u;
  device_clock += 100000 + h % 100000;
}
R cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                 unsigned sh, CUstream s, void **p, void **x) {
  unsigned g[3] = {gx, gy, gz}, b[3] = {bx, by, bz}; const char *name = ((struct fun *)f)->name;
  TROUBLE("cuLaunchKernel");
  logline("launch", name, g, b, sh);
  take_time(name, g, b);
  if (!strcmp(name, "inductorfs_probe")) probe_kernel(gx, *(unsigned *)p[0], *(unsigned **)p[1]);
  return 0;
}
R cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **p, void **x) {
  return cuLaunchKernel(f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ, c->sharedMemBytes, c->hStream, p, x);
}
R cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                            unsigned sh, CUstream s, void **p) { return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, sh, s, p, 0); }
R cuOccupancyMaxActiveClusters(int *n, CUfunction f, const CUlaunchConfig *c) { *n = 16; return 0; }
R cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction f, int b, size_t sh) { *n = 1; return 0; }
R cuPointerGetAttribute(void *out, CUpointer_attribute a, CUdeviceptr p) {
  if (!on_dev((void *)p)) return CUDA_ERROR_INVALID_VALUE;
  if (a == CU_POINTER_ATTRIBUTE_DEVICE_POINTER) *(CUdeviceptr *)out = p; else *(int *)out = a == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ? 2 : 0;
  return 0;
}
R cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *st) { *st = 0; return 0; }
R cuMemAlloc_v2(CUdeviceptr *p, size_t n) { TROUBLE("cuMemAlloc"); *p = (CUdeviceptr)dmalloc(n); return *p ? 0 : CUDA_ERROR_OUT_OF_MEMORY; }
R cuMemFree_v2(CUdeviceptr p) { dfree((void *)p); return 0; }
R cuMemGetInfo_v2(size_t *f, size_t *t) { *f = *t = dev_mem(cur_dev()); return 0; }
R cuMemcpyDtoH_v2(void *d, CUdeviceptr s, size_t n) { memcpy(d, (void *)s, n); return 0; }
R cuMemsetD32Async(CUdeviceptr p, unsigned v, size_t n, CUstream s) { if (n <= 1 << 24) for (size_t i = 0; i < n; i++) ((unsigned *)p)[i] = v; return 0; }
R cuStreamCreate(CUstream *s, unsigned f) { *s = calloc(1, 64); return 0; }
R cuStreamDestroy_v2(CUstream s) { free(s); return 0; }
R cuStreamQuery(CUstream s) { TROUBLE("cuStreamQuery"); return 0; }
static CUresult not_supported(void) { return CUDA_ERROR_NOT_SUPPORTED; }
static void *find(const char *sym) {               /* newest version suffix first, as the driver does */
  static void *self; char b[256]; void *p;
  if (!self) { Dl_info i; dladdr((void *)cuInit, &i); self = dlopen(i.dli_fname, RTLD_LAZY | RTLD_NOLOAD); }
  snprintf(b, sizeof b, "%s_v2", sym);
  return (p = dlsym(self, b)) ? p : (p = dlsym(self, sym)) ? p : (void *)not_supported;
}
R cuGetProcAddress_v2(const char *s, void **p, int v, cuuint64_t f, CUdriverProcAddressQueryResult *r) { *p = find(s); if (r) *r = 0; return 0; }
R cuGetProcAddress(const char *s, void **p, int v, cuuint64_t f) { *p = find(s); return 0; }
R cuGetExportTable(const void **t, const CUuuid *id) { return CUDA_ERROR_NOT_SUPPORTED; }
/* ---- runtime API: only has effect with LD_PRELOAD */
#define E cudaError_t CUDARTAPI
E cudaGetDeviceCount(int *n) { *n = ndev(); return ndev() ? cudaSuccess : cudaErrorNoDevice; }
static __thread int curdev;
E cudaGetDevice(int *d) { *d = curdev; return 0; }
E cudaSetDevice(int d) { if (d < 0 || d >= ndev()) return cudaErrorInvalidDevice; curdev = d; cur = context_of(d); return 0; }
E cudaDriverGetVersion(int *v) { *v = ver(); return 0; }
E cudaRuntimeGetVersion(int *v) { *v = ver(); return 0; }
E cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr a, int d) { *v = attr(a, d); return 0; }
E cudaDeviceGetPCIBusId(char *s, int n, int d) { return (cudaError_t)cuDeviceGetPCIBusId(s, n, d); }
E cudaDeviceGetStreamPriorityRange(int *lo, int *hi) { *lo = 0; *hi = -5; return 0; }
E cudaGetDeviceProperties(struct cudaDeviceProp *p, int d) {
  memset(p, 0, sizeof *p); snprintf(p->name, sizeof p->name, "%s", dev_name(d)); dev_uuid(d, &p->uuid);
  dev_cc(d, &p->major, &p->minor); p->totalGlobalMem = dev_mem(d); p->sharedMemPerBlock = attr(8, d); p->regsPerBlock = attr(12, d);
  p->warpSize = 32; p->maxThreadsPerBlock = 1024; p->totalConstMem = 65536; p->multiProcessorCount = attr(16, d);
  for (int i = 0; i < 3; i++) { p->maxThreadsDim[i] = attr(2 + i, d); p->maxGridSize[i] = attr(5 + i, d); }
  p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = p->cooperativeLaunch = p->clusterLaunch = 1;
  p->asyncEngineCount = 3; p->memoryBusWidth = attr(37, d); p->l2CacheSize = attr(38, d); p->maxThreadsPerMultiProcessor = attr(39, d);
  p->sharedMemPerMultiprocessor = attr(81, d); p->regsPerMultiprocessor = attr(82, d); p->sharedMemPerBlockOptin = attr(97, d);
  p->maxBlocksPerMultiProcessor = 32; p->reservedSharedMemPerBlock = 1024; p->pciBusID = d + 1; p->memPitch = 2147483647;
  p->textureAlignment = 512; p->streamPrioritiesSupported = p->globalL1CacheSupported = p->localL1CacheSupported = 1;
  return 0;
}
E cudaMalloc(void **p, size_t n) { *p = n ? dmalloc(n) : 0; return *p || !n ? cudaSuccess : cudaErrorMemoryAllocation; }
E cudaMallocAsync(void **p, size_t n, cudaStream_t s) { return cudaMalloc(p, n); }
E cudaMallocManaged(void **p, size_t n, unsigned f) { return cudaMalloc(p, n); }
E cudaFree(void *p) { dfree(p); return 0; }
E cudaFreeAsync(void *p, cudaStream_t s) { dfree(p); return 0; }
E cudaHostAlloc(void **p, size_t n, unsigned f) { return posix_memalign(p, 4096, n ? n : 1) ? cudaErrorMemoryAllocation : cudaSuccess; }
E cudaMallocHost(void **p, size_t n) { return cudaHostAlloc(p, n, 0); }
E cudaFreeHost(void *p) { free(p); return 0; }
E cudaMemGetInfo(size_t *f, size_t *t) { *f = *t = dev_mem(curdev); return 0; }
E cudaMemcpy(void *d, const void *s, size_t n, enum cudaMemcpyKind k) { memcpy(d, s, n); return 0; }
E cudaMemcpyAsync(void *d, const void *s, size_t n, enum cudaMemcpyKind k, cudaStream_t st) { memcpy(d, s, n); return 0; }
E cudaMemcpyPeerAsync(void *d, int dd, const void *s, int sd, size_t n, cudaStream_t st) { memcpy(d, s, n); return 0; }
E cudaMemset(void *d, int v, size_t n) { if (n <= 1 << 24) memset(d, v, n); return 0; }
E cudaMemsetAsync(void *d, int v, size_t n, cudaStream_t s) { return cudaMemset(d, v, n); }
E cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
  memset(a, 0, sizeof *a);
  if (on_dev(p)) { a->type = cudaMemoryTypeDevice; a->devicePointer = (void *)p; } else a->type = cudaMemoryTypeUnregistered, a->device = -2;
  return 0;
}
static void *handle(void) { return calloc(1, sizeof(struct timespec) + 48); }
E cudaStreamCreate(cudaStream_t *s) { *s = handle(); return 0; }
E cudaStreamCreateWithFlags(cudaStream_t *s, unsigned f) { *s = handle(); return 0; }
E cudaStreamCreateWithPriority(cudaStream_t *s, unsigned f, int p) { *s = handle(); return 0; }
E cudaStreamGetPriority(cudaStream_t s, int *p) { *p = 0; return 0; }
E cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *st) { *st = 0; return 0; }
#if CUDART_VERSION >= 13000
E cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus *st, unsigned long long *id, cudaGraph_t *g,
                           const cudaGraphNode_t **d, const cudaGraphEdgeData **ed, size_t *n) {
  *st = 0; if (id) *id = 0; if (g) *g = 0; if (d) *d = 0; if (ed) *ed = 0; if (n) *n = 0; return 0;
}
#else
E cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus *st, unsigned long long *id, cudaGraph_t *g,
                           const cudaGraphNode_t **d, size_t *n) {
  *st = 0; if (id) *id = 0; if (g) *g = 0; if (d) *d = 0; if (n) *n = 0; return 0;
}
#endif
E cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t cb, void *u, unsigned f) { cb(s, 0, u); return 0; }
E cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *u) { fn(u); return 0; }
E cudaEventCreate(cudaEvent_t *e) { *e = handle(); return 0; }
E cudaEventCreateWithFlags(cudaEvent_t *e, unsigned f) { *e = handle(); return 0; }
E cudaEventDestroy(cudaEvent_t e) { free(e); return 0; }
E cudaEventRecord(cudaEvent_t e, cudaStream_t s) { *(unsigned long long *)e = device_clock; return 0; }
E cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned f) { return cudaEventRecord(e, s); }
E cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) {
  *ms = (*(unsigned long long *)b - *(unsigned long long *)a) * 1e-6f; if (*ms < 1e-3f) *ms = 1e-3f; return 0;
}
E cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *f) { memset(a, 0, sizeof *a); a->maxThreadsPerBlock = 1024; a->numRegs = 32; a->binaryVersion = a->ptxVersion = 90; return 0; }
E cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *f, int b, size_t s) { *n = 1; return 0; }
E cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int b, size_t s, unsigned fl) { *n = 1; return 0; }
E cudaDeviceCanAccessPeer(int *c, int d, int p) { *c = 0; return 0; }
E cudaGetSymbolAddress(void **p, const void *s) { return cudaMalloc(p, 1 << 20); }
E cudaGetDriverEntryPointByVersion(const char *s, void **p, unsigned v, unsigned long long f, enum cudaDriverEntryPointQueryResult *r) { *p = find(s); if (r) *r = 0; return 0; }
const char *CUDARTAPI cudaGetErrorString(cudaError_t e) { return e ? "fake CUDA error" : "no error"; }
const char *CUDARTAPI cudaGetErrorName(cudaError_t e) { return e ? "cudaErrorFake" : "cudaSuccess"; }
void **__cudaRegisterFatBinary(void *fb) { static void *h[2]; return h; }
unsigned __cudaPushCallConfiguration(dim3 g, dim3 b, size_t sh, struct CUstream_st *s) { return 0; }
E __cudaPopCallConfiguration(dim3 *g, dim3 *b, size_t *sh, void *s) { g->x = g->y = g->z = b->x = b->y = b->z = 1; *sh = 0; *(void **)s = 0; return 0; }
E __cudaGetKernel(cudaKernel_t *k, const void *f) { *k = (cudaKernel_t)f; return 0; }
/* ---- cuBLAS(Lt): handles, one heuristic answer; the products themselves are not computed */
int cublasCreate_v2(void **h) { *h = handle(); return 0; }
int cublasGetPointerMode_v2(void *h, int *m) { *m = 0; return 0; }
int cublasGetMathMode(void *h, int *m) { *m = 0; return 0; }
int cublasLtMatmulAlgoGetHeuristic(void *h, void *d, void *A, void *B, void *C, void *D, void *pref, int want, char *res, int *n) {
  memset(res, 0, 96); *n = 1; return 0;            /* sizeof(cublasLtMatmulHeuristicResult_t), state 0 = success */
}
int cublasGemmEx(void) { device_clock += 1000000; return 0; }
int cublasLtMatmul(void) { return cublasGemmEx(); }
/* ---- everything below succeeds and does nothing */
long fake_cuda_ok(void) { return 0; }
#define NOP(n) __asm__(".globl " #n "\n.type " #n ",@function\n.set " #n ",fake_cuda_ok");
NOP(cuDevicePrimaryCtxRelease_v2) NOP(cuCtxSetLimit) NOP(cuCtxSynchronize) NOP(cuFuncSetAttribute) NOP(cuFuncSetCacheConfig)
NOP(cuTensorMapEncodeTiled) NOP(cuTensorMapEncodeIm2col) NOP(cuLinkCreate_v2) NOP(cuLinkAddData_v2) NOP(cuLinkComplete)
NOP(cuLogsRegisterCallback) NOP(cuLogsUnregisterCallback) NOP(cuStreamSynchronize)
NOP(cudaStreamDestroy) NOP(cudaStreamQuery) NOP(cudaStreamSynchronize) NOP(cudaStreamWaitEvent) NOP(cudaThreadExchangeStreamCaptureMode)
NOP(cudaEventQuery) NOP(cudaEventSynchronize) NOP(cudaDeviceSynchronize) NOP(cudaDeviceEnablePeerAccess) NOP(cudaGetLastError)
NOP(cudaPeekAtLastError) NOP(cudaProfilerStart) NOP(cudaProfilerStop) NOP(cudaHostRegister) NOP(cudaHostUnregister)
NOP(cudaFuncSetAttribute) NOP(cudaLaunchKernel) NOP(cudaLaunchKernelExC) NOP(cudaMemcpyToSymbol) NOP(cudaMemPoolSetAttribute)
NOP(cudaMemPoolTrimTo) NOP(cudaMemPoolSetAccess) NOP(__cudaLaunchKernel) NOP(__cudaRegisterFatBinaryEnd)
NOP(__cudaRegisterFunction) NOP(__cudaRegisterVar) NOP(__cudaUnregisterFatBinary)
NOP(cublasDestroy_v2) NOP(cublasSetStream_v2) NOP(cublasSetWorkspace_v2) NOP(cublasSetMathMode) NOP(cublasSetPointerMode_v2)
NOP(cublasSgemm_v2) NOP(cublasDgemm_v2) NOP(cublasSgemmEx) NOP(cublasGemmStridedBatchedEx)
NOP(cublasSgemmStridedBatched) NOP(cublasSetSmCountTarget) NOP(cublasSgemv_v2)
