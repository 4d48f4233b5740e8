// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/facts/gpu_kernel.h"

#if INDUCTORFS_WITH_GPU_KERNEL
#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "fingerprint/facts/cuda_driver.h"
#include "gpu_kernel_image.h"

namespace inductorfs::fingerprint {
namespace {

constexpr const char* kEntry = "inductorfs_probe";
constexpr unsigned kThreads = 256;
constexpr unsigned kRounds = 16;
/// Several blocks for each multiprocessor, so that all of them get some.
constexpr int kBlocksEach = 4;
constexpr int kBlockLimit = 2048;
/// The kernel runs for microseconds; a device that is shared with long kernels of others still comes round in this
/// time.
constexpr Milliseconds kKernelLimit{3000};
constexpr std::chrono::microseconds kPollPause{100};
/// What the output holds before the launch: neither zero nor what a row of computed words could be.
constexpr unsigned kPoison = 0xa5c3f00d;

/// The driver's functions that a launch takes. Immutable after construction.
struct Driver {
  decltype(&cuDeviceGet) device = nullptr;
  decltype(&cuDeviceGetAttribute) attribute = nullptr;
  decltype(&cuDevicePrimaryCtxRetain) retain = nullptr;
  decltype(&cuDevicePrimaryCtxRelease) release = nullptr;
  decltype(&cuCtxSetCurrent) set_current = nullptr;
  decltype(&cuMemGetInfo) memory = nullptr;
  decltype(&cuModuleLoadData) load = nullptr;
  decltype(&cuModuleUnload) unload = nullptr;
  decltype(&cuModuleGetFunction) function = nullptr;
  decltype(&cuMemAlloc) allocate = nullptr;
  decltype(&cuMemFree) free = nullptr;
  decltype(&cuMemsetD32Async) fill = nullptr;
  decltype(&cuMemcpyDtoH) copy = nullptr;
  decltype(&cuStreamCreate) new_stream = nullptr;
  decltype(&cuStreamDestroy) end_stream = nullptr;
  decltype(&cuStreamQuery) query = nullptr;
  decltype(&cuLaunchKernel) launch = nullptr;
};

bool load_driver(void* library, Driver& driver) {
  return look_up(library, "cuDeviceGet", driver.device) && look_up(library, "cuDeviceGetAttribute", driver.attribute) &&
         look_up(library, "cuDevicePrimaryCtxRetain", driver.retain) &&
         look_up(library, "cuDevicePrimaryCtxRelease_v2", driver.release) &&
         look_up(library, "cuCtxSetCurrent", driver.set_current) &&
         look_up(library, "cuMemGetInfo_v2", driver.memory) && look_up(library, "cuModuleLoadData", driver.load) &&
         look_up(library, "cuModuleUnload", driver.unload) &&
         look_up(library, "cuModuleGetFunction", driver.function) &&
         look_up(library, "cuMemAlloc_v2", driver.allocate) && look_up(library, "cuMemFree_v2", driver.free) &&
         look_up(library, "cuMemsetD32Async", driver.fill) && look_up(library, "cuMemcpyDtoH_v2", driver.copy) &&
         look_up(library, "cuStreamCreate", driver.new_stream) &&
         look_up(library, "cuStreamDestroy_v2", driver.end_stream) && look_up(library, "cuStreamQuery", driver.query) &&
         look_up(library, "cuLaunchKernel", driver.launch);
}

/// What gpu_kernel.cu leaves in each word.
std::vector<unsigned> expected_words(unsigned seed, unsigned blocks) {
  std::vector<unsigned> words;
  words.reserve(size_t{blocks} * kThreads);
  std::array<unsigned, kThreads> value{};
  std::array<unsigned, kThreads> shared{};
  for (unsigned block = 0; block < blocks; ++block) {
    for (unsigned thread = 0; thread < kThreads; ++thread) value[thread] = seed + block * kThreads + thread;
    for (unsigned round = 0; round < kRounds; ++round) {
      for (unsigned thread = 0; thread < kThreads; ++thread) {
        value[thread] = value[thread] * 1664525U + 1013904223U;
        value[thread] ^= value[thread] >> 15;
        shared[thread] = value[thread];
      }
      for (unsigned thread = 0; thread < kThreads; ++thread) {
        value[thread] += shared[(thread * 5 + round * 7 + 1) % kThreads];
      }
    }
    words.insert(words.end(), value.begin(), value.end());
  }
  return words;
}

/// Errors that say nothing against the device: its memory is full, or another process has it to itself.
bool is_occupied(CUresult result, int compute_mode) {
  return result == CUDA_ERROR_OUT_OF_MEMORY || result == CUDA_ERROR_MPS_MAX_CLIENTS_REACHED ||
         result == CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED ||
         (result == CUDA_ERROR_DEVICE_UNAVAILABLE && compute_mode != CU_COMPUTEMODE_PROHIBITED);
}

/// The image was made for something else than this device and driver: another image may do.
bool is_other_image(CUresult result) {
  constexpr CUresult kErrors[] = {
      CUDA_ERROR_INVALID_IMAGE,          CUDA_ERROR_NO_BINARY_FOR_GPU,       CUDA_ERROR_INVALID_PTX,
      CUDA_ERROR_JIT_COMPILER_NOT_FOUND, CUDA_ERROR_UNSUPPORTED_PTX_VERSION, CUDA_ERROR_JIT_COMPILATION_DISABLED,
      CUDA_ERROR_INVALID_SOURCE};
  return std::find(std::begin(kErrors), std::end(kErrors), result) != std::end(kErrors);
}

/// One device's run, step by step; what was taken is given back when this goes. Needs external synchronisation.
class Run {
 public:
  Run(const Driver& driver, void* library) : driver_(driver), library_(library) {}
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() { release(); }

  KernelRun on(int index, int multiprocessors) {
    const auto blocks = static_cast<unsigned>(std::clamp(multiprocessors * kBlocksEach, 1, kBlockLimit));
    if (open(index) && load() && execute(blocks)) {
      compare(blocks);
      free_all();
      if (size_t total = 0; driver_.memory(&free_, &total) == CUDA_SUCCESS) run_.free_after = free_;
    }
    release();
    return run_;
  }

 private:
  bool fail_with(const char* step, CUresult result, Runs runs) {
    run_.runs = runs;
    run_.why = std::string(step) + ": " + driver_error(library_, static_cast<int>(result));
    return false;
  }
  /// True when `result` is success.
  bool held(const char* step, CUresult result) {
    if (result == CUDA_SUCCESS) return true;
    return fail_with(step, result, is_occupied(result, compute_mode_) ? Runs::kUntried : Runs::kNo);
  }

  bool open(int index) {
    if (!held("the device", driver_.device(&device_, index))) return false;
    // Without it the mode stays the default one, which changes one message.
    (void)driver_.attribute(&compute_mode_, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device_);
    CUcontext context = nullptr;
    if (!held("its context", driver_.retain(&context, device_))) return false;
    retained_ = true;
    if (!held("its context", driver_.set_current(context))) return false;
    size_t total = 0;
    if (!held("its memory", driver_.memory(&free_, &total))) return false;
    run_.free_before = free_;
    return held("a stream", driver_.new_stream(&stream_, CU_STREAM_DEFAULT));
  }

  bool load() {
    run_.image = "cubin";
    CUresult result = driver_.load(&module_, image::kFatbin);
    if (is_other_image(result)) {
      run_.image = "ptx";
      result = driver_.load(&module_, image::kPtx);
    }
    // An architecture that neither image is for is this program's lack and not the device's.
    if (is_other_image(result)) {
      return fail_with("no kernel for it in this program (made for compute capability 7.5 and newer)", result,
                       Runs::kUntried);
    }
    return held("its code", result) && held("its code", driver_.function(&function_, module_, kEntry));
  }

  bool execute(unsigned blocks) {
    const size_t bytes = size_t{blocks} * kThreads * sizeof(unsigned);
    if (!held("memory on it", driver_.allocate(&out_, bytes))) return false;
    if (!held("memory on it", driver_.fill(out_, kPoison, bytes / sizeof(unsigned), stream_))) return false;
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begun = Clock::now();
    seed_ = static_cast<unsigned>(begun.time_since_epoch().count());
    void* arguments[] = {&seed_, &out_};
    CUresult result =
        driver_.launch(function_, blocks, 1, 1, kThreads, 1, 1, 0, stream_, std::data(arguments), nullptr);
    if (!held("the launch", result)) return false;
    while ((result = driver_.query(stream_)) == CUDA_ERROR_NOT_READY && Clock::now() - begun < kKernelLimit) {
      std::this_thread::sleep_for(kPollPause);
    }
    run_.microseconds = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begun).count();
    if (result == CUDA_ERROR_NOT_READY) {
      run_.abandoned = true;
      run_.runs = Runs::kNo;
      run_.why = "the kernel did not end within " + std::to_string(kKernelLimit.count()) + " ms";
      return false;
    }
    return held("the kernel", result);
  }

  void compare(unsigned blocks) {
    const std::vector<unsigned> expected = expected_words(seed_, blocks);
    std::vector<unsigned> found(expected.size(), kPoison);
    if (!held("its results", driver_.copy(found.data(), out_, found.size() * sizeof(unsigned)))) return;
    size_t wrong = 0;
    size_t untouched = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      wrong += found[i] != expected[i] ? 1 : 0;
      untouched += found[i] == kPoison && expected[i] != kPoison ? 1 : 0;
    }
    run_.runs = wrong == 0 ? Runs::kYes : Runs::kNo;
    if (wrong == 0) return;
    run_.why = untouched == found.size() ? "the kernel was launched and wrote nothing"
                                         : "the kernel's results are wrong: " + std::to_string(wrong) + " of " +
                                               std::to_string(found.size()) + " words";
  }

  /// The results of giving back are not looked at: the process ends soon, and then the driver takes all of it.
  void free_all() {
    if (out_ != 0) (void)driver_.free(std::exchange(out_, 0));
    if (stream_ != nullptr) (void)driver_.end_stream(std::exchange(stream_, nullptr));
    if (module_ != nullptr) (void)driver_.unload(std::exchange(module_, nullptr));
  }
  void release() {
    // With a kernel that does not end, each of these would wait for it.
    if (run_.abandoned) return;
    free_all();
    if (std::exchange(retained_, false)) (void)driver_.release(device_);
  }

  const Driver& driver_;
  void* library_;
  KernelRun run_;
  CUdevice device_ = 0;
  int compute_mode_ = CU_COMPUTEMODE_DEFAULT;
  bool retained_ = false;
  CUstream stream_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
  CUdeviceptr out_ = 0;
  unsigned seed_ = 0;
  size_t free_ = 0;
};

}  // namespace

KernelRun run_kernel(void* library, int device, int multiprocessors) {
  Driver driver;
  if (!load_driver(library, driver)) {
    KernelRun run;
    run.why = "libcuda.so.1 lacks a function that a launch takes";
    return run;
  }
  return Run(driver, library).on(device, multiprocessors);
}

std::string kernel_architectures() {
  return std::string(image::kArchitectures) + ", ptx " + std::to_string(image::kOldestArchitecture) + "; CUDA " +
         std::string(image::kToolkit);
}

}  // namespace inductorfs::fingerprint

#else

namespace inductorfs::fingerprint {

KernelRun run_kernel(void* /*library*/, int /*device*/, int /*multiprocessors*/) {
  KernelRun run;
  run.why = "this program was built without nvcc, so it has no kernel to try";
  return run;
}

std::string kernel_architectures() { return {}; }

}  // namespace inductorfs::fingerprint

#endif
