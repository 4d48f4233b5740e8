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
 * Device memory is host memory, copies are real, kernel launches do NOTHING (outputs stay 0).
 * Cubins are checked (ELF magic, wanted kernel present) and their register count is read, so that a
 * damaged cache entry fails the way it would on a GPU, and register heuristics see real numbers.
 *
 * Build:  cc -O2 -shared -fPIC -Wl,-soname,libcuda.so.1 -I<cuda>/include fake_libcuda.c \
 *            -o libcuda.so.1 -ldl -lpthread
 * Use:    LD_PRELOAD=<dir>/libcuda.so.1 TRITON_LIBCUDA_PATH=<dir> python ...
 * Knobs:  FAKE_CUDA_NAME, FAKE_CUDA_CC (9.0), FAKE_CUDA_SMS, FAKE_CUDA_MEM_MB, FAKE_CUDA_COUNT,
 *         FAKE_CUDA_VERSION (13020), FAKE_CUDA_LOG (file: one line per module load / launch).
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
#undef cuGetProcAddress
#undef cuDeviceGetUuid

static const char *env(const char *k, const char *d) { const char *v = getenv(k); return v && *v ? v : d; }
static const char *dev_name(void) { return env("FAKE_CUDA_NAME", "NVIDIA H100 80GB HBM3"); }
static int ver(void) { return atoi(env("FAKE_CUDA_VERSION", "13020")); }
static int ndev(void) { return atoi(env("FAKE_CUDA_COUNT", "1")); }
static size_t dev_mem(void) { return strtoull(env("FAKE_CUDA_MEM_MB", "81559"), 0, 10) << 20; }
static void dev_cc(int *ma, int *mi) { *ma = 9; *mi = 0; sscanf(env("FAKE_CUDA_CC", "9.0"), "%d.%d", ma, mi); }
static void dev_uuid(int d, void *out) { memcpy(out, "FAKE-CUDA-DEV-0", 16); ((char *)out)[14] += d; }
static void logline(const char *what, const char *name, const unsigned *g, const unsigned *b, unsigned sh) {
  const char *p = getenv("FAKE_CUDA_LOG"); FILE *f;
  if (!p || !*p || !(f = fopen(p, "a"))) return;
  if (g) fprintf(f, "%s %s grid=%u,%u,%u block=%u,%u,%u shared=%u\n", what, name, g[0], g[1], g[2], b[0], b[1], b[2], sh);
  else fprintf(f, "%s %s\n", what, name);
  fclose(f);
}
/* CUdevice_attribute and cudaDeviceAttr use the same numbers. Values: an H100 SXM5. */
static int attr(int a) {
  int ma, mi; dev_cc(&ma, &mi);
  switch (a) {
    case 1: return 1024;                       case 2: case 3: return 1024;   case 4: return 64;
    case 5: return 2147483647;                 case 6: case 7: return 65535;  case 8: return 49152;
    case 9: return 65536;                      case 10: return 32;            case 12: return 65536;
    case 13: return 1980000;                   case 16: return atoi(env("FAKE_CUDA_SMS", "132"));
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
  if (n > dev_mem()) return 0;
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
struct mod { const char *img; size_t len; int regs, stack; };
struct fun { struct mod *m; char name[1]; };
static struct mod *mod_load(const void *image) {
  const Elf64_Ehdr *e = image;
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
R cuInit(unsigned f) { return ndev() ? 0 : CUDA_ERROR_NO_DEVICE; }
R cuDriverGetVersion(int *v) { *v = ver(); return 0; }
R cuDeviceGetCount(int *n) { *n = ndev(); return 0; }
R cuDeviceGet(CUdevice *d, int i) { if (i < 0 || i >= ndev()) return CUDA_ERROR_INVALID_DEVICE; *d = i; return 0; }
R cuDeviceGetName(char *n, int len, CUdevice d) { snprintf(n, len, "%s", dev_name()); return 0; }
R cuDeviceGetUuid(CUuuid *u, CUdevice d) { dev_uuid(d, u); return 0; }
R cuDeviceGetUuid_v2(CUuuid *u, CUdevice d) { dev_uuid(d, u); return 0; }
R cuDeviceTotalMem_v2(size_t *b, CUdevice d) { *b = dev_mem(); return 0; }
R cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d) { *v = attr(a); return 0; }
R cuDeviceGetPCIBusId(char *s, int n, CUdevice d) { snprintf(s, n, "00000000:%02X:00.0", d + 1); return 0; }
static __thread CUcontext cur;
static CUcontext PRIMARY = (CUcontext)0x1000;
R cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) { *c = PRIMARY; return 0; }
R cuDevicePrimaryCtxGetState(CUdevice d, unsigned *f, int *a) { *f = 0; *a = 1; return 0; }
R cuCtxGetCurrent(CUcontext *c) { *c = cur; return 0; }
R cuCtxSetCurrent(CUcontext c) { cur = c; return 0; }
R cuCtxPushCurrent_v2(CUcontext c) { cur = c; return 0; }
R cuCtxPopCurrent_v2(CUcontext *c) { if (c) *c = cur; return 0; }
R cuCtxGetDevice(CUdevice *d) { *d = 0; return 0; }
R cuStreamGetCtx(CUstream s, CUcontext *c) { *c = PRIMARY; return 0; }
R cuCtxGetLimit(size_t *v, CUlimit l) { *v = 0; return 0; }
R cuGetErrorName(CUresult e, const char **s) { *s = e ? "CUDA_ERROR_FAKE" : "CUDA_SUCCESS"; return 0; }
R cuGetErrorString(CUresult e, const char **s) {
  *s = e == CUDA_ERROR_INVALID_IMAGE ? "device kernel image is invalid" : e == CUDA_ERROR_NOT_FOUND ? "named symbol not found" : e ? "fake CUDA error" : "no error";
  return 0;
}
R cuModuleLoadData(CUmodule *m, const void *img) {
  struct mod *x = mod_load(img);
  logline("load", x ? "ok" : "INVALID_IMAGE", 0, 0, 0);
  *m = (CUmodule)x; return x ? 0 : CUDA_ERROR_INVALID_IMAGE;
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
  struct mod *m = (void *)h; char key[4096]; snprintf(key, sizeof key, ".text.%s", name);
  if (!memmem(m->img, m->len, key, strlen(key) + 1)) return CUDA_ERROR_NOT_FOUND;
  struct fun *x = calloc(1, sizeof *x + strlen(name)); x->m = m; strcpy(x->name, name);
  *f = (CUfunction)x; return 0;
}
R cuFuncGetAttribute(int *v, CUfunction_attribute a, CUfunction f) {
  struct mod *m = ((struct fun *)f)->m;
  *v = a == CU_FUNC_ATTRIBUTE_NUM_REGS ? m->regs : a == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES ? m->stack
       : a == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return 0;
}
R cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                 unsigned sh, CUstream s, void **p, void **x) {
  unsigned g[3] = {gx, gy, gz}, b[3] = {bx, by, bz}; logline("launch", ((struct fun *)f)->name, g, b, sh); return 0;
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
R cuMemAlloc_v2(CUdeviceptr *p, size_t n) { *p = (CUdeviceptr)dmalloc(n); return *p ? 0 : CUDA_ERROR_OUT_OF_MEMORY; }
R cuMemFree_v2(CUdeviceptr p) { dfree((void *)p); return 0; }
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
E cudaSetDevice(int d) { if (d < 0 || d >= ndev()) return cudaErrorInvalidDevice; curdev = d; cur = PRIMARY; return 0; }
E cudaDriverGetVersion(int *v) { *v = ver(); return 0; }
E cudaRuntimeGetVersion(int *v) { *v = ver(); return 0; }
E cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr a, int d) { *v = attr(a); return 0; }
E cudaDeviceGetPCIBusId(char *s, int n, int d) { return (cudaError_t)cuDeviceGetPCIBusId(s, n, d); }
E cudaDeviceGetStreamPriorityRange(int *lo, int *hi) { *lo = 0; *hi = -5; return 0; }
E cudaGetDeviceProperties(struct cudaDeviceProp *p, int d) {
  memset(p, 0, sizeof *p); snprintf(p->name, sizeof p->name, "%s", dev_name()); dev_uuid(d, &p->uuid);
  dev_cc(&p->major, &p->minor); p->totalGlobalMem = dev_mem(); p->sharedMemPerBlock = attr(8); p->regsPerBlock = attr(12);
  p->warpSize = 32; p->maxThreadsPerBlock = 1024; p->totalConstMem = 65536; p->multiProcessorCount = attr(16);
  for (int i = 0; i < 3; i++) { p->maxThreadsDim[i] = attr(2 + i); p->maxGridSize[i] = attr(5 + i); }
  p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = p->cooperativeLaunch = p->clusterLaunch = 1;
  p->asyncEngineCount = 3; p->memoryBusWidth = attr(37); p->l2CacheSize = attr(38); p->maxThreadsPerMultiProcessor = attr(39);
  p->sharedMemPerMultiprocessor = attr(81); p->regsPerMultiprocessor = attr(82); p->sharedMemPerBlockOptin = attr(97);
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
E cudaMemGetInfo(size_t *f, size_t *t) { *f = *t = dev_mem(); return 0; }
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
E cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus *st, unsigned long long *id, cudaGraph_t *g,
                           const cudaGraphNode_t **d, const cudaGraphEdgeData **ed, size_t *n) {
  *st = 0; if (id) *id = 0; if (g) *g = 0; if (d) *d = 0; if (ed) *ed = 0; if (n) *n = 0; return 0;
}
E cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t cb, void *u, unsigned f) { cb(s, 0, u); return 0; }
E cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *u) { fn(u); return 0; }
E cudaEventCreate(cudaEvent_t *e) { *e = handle(); return 0; }
E cudaEventCreateWithFlags(cudaEvent_t *e, unsigned f) { *e = handle(); return 0; }
E cudaEventDestroy(cudaEvent_t e) { free(e); return 0; }
E cudaEventRecord(cudaEvent_t e, cudaStream_t s) { clock_gettime(CLOCK_MONOTONIC, (struct timespec *)e); return 0; }
E cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned f) { return cudaEventRecord(e, s); }
E cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) {
  struct timespec *x = (void *)a, *y = (void *)b;
  *ms = (y->tv_sec - x->tv_sec) * 1e3f + (y->tv_nsec - x->tv_nsec) * 1e-6f; if (*ms < 1e-3f) *ms = 1e-3f; return 0;
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
/* ---- everything below succeeds and does nothing */
long fake_cuda_ok(void) { return 0; }
#define NOP(n) __asm__(".globl " #n "\n.type " #n ",@function\n.set " #n ",fake_cuda_ok");
NOP(cuDevicePrimaryCtxRelease_v2) NOP(cuCtxSetLimit) NOP(cuCtxSynchronize) NOP(cuFuncSetAttribute) NOP(cuFuncSetCacheConfig)
NOP(cuTensorMapEncodeTiled) NOP(cuTensorMapEncodeIm2col) NOP(cuLinkCreate_v2) NOP(cuLinkAddData_v2) NOP(cuLinkComplete)
NOP(cuLogsRegisterCallback) NOP(cuLogsUnregisterCallback) NOP(cuMemsetD32Async) NOP(cuStreamSynchronize)
NOP(cudaStreamDestroy) NOP(cudaStreamQuery) NOP(cudaStreamSynchronize) NOP(cudaStreamWaitEvent) NOP(cudaThreadExchangeStreamCaptureMode)
NOP(cudaEventQuery) NOP(cudaEventSynchronize) NOP(cudaDeviceSynchronize) NOP(cudaDeviceEnablePeerAccess) NOP(cudaGetLastError)
NOP(cudaPeekAtLastError) NOP(cudaProfilerStart) NOP(cudaProfilerStop) NOP(cudaHostRegister) NOP(cudaHostUnregister)
NOP(cudaFuncSetAttribute) NOP(cudaLaunchKernel) NOP(cudaLaunchKernelExC) NOP(cudaMemcpyToSymbol) NOP(cudaMemPoolSetAttribute)
NOP(cudaMemPoolTrimTo) NOP(cudaMemPoolSetAccess) NOP(__cudaLaunchKernel) NOP(__cudaRegisterFatBinaryEnd)
NOP(__cudaRegisterFunction) NOP(__cudaRegisterVar) NOP(__cudaUnregisterFatBinary)
NOP(cublasDestroy_v2) NOP(cublasSetStream_v2) NOP(cublasSetWorkspace_v2) NOP(cublasSetMathMode) NOP(cublasSetPointerMode_v2)
NOP(cublasGemmEx) NOP(cublasSgemm_v2) NOP(cublasDgemm_v2) NOP(cublasSgemmEx) NOP(cublasGemmStridedBatchedEx)
NOP(cublasSgemmStridedBatched) NOP(cublasSetSmCountTarget) NOP(cublasLtMatmul) NOP(cublasSgemv_v2)
