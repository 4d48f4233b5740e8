// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "fingerprint/facts/cuda_driver.h"
#include "fingerprint/facts/gpu_kernel.h"

namespace inductorfs::fingerprint {

namespace {

constexpr const char* kLost = "the device may be lost: see nvidia-smi and the kernel log for Xid, then reset it";

struct Remedy {
  CUresult result;
  const char* text;
};
constexpr Remedy kRemedies[] = {
    {CUDA_ERROR_NOT_INITIALIZED, "the kernel driver may be unloaded: see nvidia-smi"},
    {CUDA_ERROR_DEVICE_UNAVAILABLE, "its compute mode is exclusive or prohibited: see nvidia-smi -q -d COMPUTE"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_VISIBLE_DEVICES may name what is not there"},
    {CUDA_ERROR_DEVICE_NOT_LICENSED, "the virtual GPU has no licence"},
    {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "the driver is too old: install a newer one"},
    {CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "install the driver's libnvidia-ptxjitcompiler.so.1"},
    {CUDA_ERROR_ECC_UNCORRECTABLE, "the device's memory is damaged: reset or replace it"},
    {CUDA_ERROR_NVLINK_UNCORRECTABLE, kLost},
    {CUDA_ERROR_ILLEGAL_ADDRESS, kLost},
    {CUDA_ERROR_LAUNCH_TIMEOUT, kLost},
    {CUDA_ERROR_HARDWARE_STACK_ERROR, kLost},
    {CUDA_ERROR_ILLEGAL_INSTRUCTION, kLost},
    {CUDA_ERROR_LAUNCH_FAILED, kLost},
    {CUDA_ERROR_SYSTEM_NOT_READY, "the driver is still starting, or its fabric manager is not running"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
     "libcuda.so.1 and the loaded kernel driver are of different versions: reload the "
     "kernel driver or restart the host"},
    {CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
     "a CUDA forward compatibility package is in the library path, and this device cannot use it"},
    {CUDA_ERROR_UNKNOWN,
     "the device may be lost or its kernel modules not all loaded: see nvidia-smi and the kernel log"}};

}  // namespace

std::string driver_error(void* library, int code) {
  decltype(&cuGetErrorString) error_string = nullptr;
  const auto result = static_cast<CUresult>(code);
  const char* text = nullptr;
  if (!look_up(library, "cuGetErrorString", error_string) || error_string(result, &text) != CUDA_SUCCESS ||
      text == nullptr) {
    text = "unknown error";
  }
  std::string message = "error " + std::to_string(code) + " (" + text + ")";
  const auto* const remedy = std::find_if(std::begin(kRemedies), std::end(kRemedies),
                                          [result](const Remedy& r) { return r.result == result; });
  if (remedy != std::end(kRemedies)) message.append("; ").append(remedy->text);
  std::replace(message.begin(), message.end(), '\n', ' ');
  return message;
}

}  // namespace inductorfs::fingerprint
