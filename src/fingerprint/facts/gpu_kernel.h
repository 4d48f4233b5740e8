// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <string>

#include "fingerprint/facts/facts.h"
#include "inductorfs/base/clock.h"

/// Used only inside the GPU probe's process. `library` is the handle of libcuda.so.1.
namespace inductorfs::fingerprint {

/// Looks up a function by the name that the library exports. cuda.h maps the plain names to these by macros, so a plain
/// name that is looked up at run time would be the version of 2010.
template <typename F>
[[nodiscard]] bool look_up(void* library, const char* symbol, F& function) {
  function = reinterpret_cast<F>(dlsym(library, symbol));
  return function != nullptr;
}

/// Returns "error 719 (unspecified launch failure); what to do", in one line.
[[nodiscard]] std::string driver_error(void* library, int code);

/// The result of the kernel on one device. Immutable value.
struct KernelRun {
  Runs runs = Runs::kUntried;
  std::string why;           ///< the reason, unless the kernel ran (kYes)
  std::string image;         ///< "cubin" or "ptx" (compiled by the driver for this device)
  int64_t microseconds = 0;  ///< from launch to end
  /// Free device memory, in bytes: with the probe's context before the kernel was loaded, and after all was freed.
  uint64_t free_before = 0;
  uint64_t free_after = 0;
  /// The kernel did not end; the driver would wait for it if this process ended in the ordinary way.
  bool abandoned = false;
};
/// Runs the kernel in a context of its own, which is destroyed afterwards, and compares each word with what the host
/// computes.
[[nodiscard]] KernelRun run_kernel(void* library, int device, int multiprocessors);
/// Returns the architectures that the kernel is compiled for; empty when this program was built without nvcc.
[[nodiscard]] std::string kernel_architectures();

}  // namespace inductorfs::fingerprint
