// SPDX-License-Identifier: Apache-2.0

#include <cuda.h>

#include <type_traits>

#include "fingerprint/facts/cuda_driver.h"

/// What cuda_driver.h declares, beside a toolkit's cuda.h. A function is declared under the name that cuda.h maps it
/// to.
namespace inductorfs::fingerprint {
namespace {

template <typename... A, typename... B>
constexpr bool is_called_alike(CUresult (* /*ours*/)(A...), ::CUresult (* /*theirs*/)(B...)) {
  if constexpr (sizeof...(A) == sizeof...(B)) {
    return ((sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B> &&
             (std::is_pointer_v<A> || std::is_enum_v<A> || std::is_same_v<A, B>)) &&
            ...);
  }
  return false;
}

static_assert(sizeof(CUresult) == sizeof(::CUresult) && sizeof(CUuuid) == sizeof(::CUuuid));
static_assert(std::is_same_v<CUdevice, ::CUdevice> && std::is_same_v<CUdeviceptr, ::CUdeviceptr>);

static_assert(static_cast<int>(CUDA_SUCCESS) == static_cast<int>(::CUDA_SUCCESS));
static_assert(static_cast<int>(CUDA_ERROR_OUT_OF_MEMORY) == static_cast<int>(::CUDA_ERROR_OUT_OF_MEMORY));
static_assert(static_cast<int>(CUDA_ERROR_NOT_INITIALIZED) == static_cast<int>(::CUDA_ERROR_NOT_INITIALIZED));
static_assert(static_cast<int>(CUDA_ERROR_STUB_LIBRARY) == static_cast<int>(::CUDA_ERROR_STUB_LIBRARY));
static_assert(static_cast<int>(CUDA_ERROR_DEVICE_UNAVAILABLE) == static_cast<int>(::CUDA_ERROR_DEVICE_UNAVAILABLE));
static_assert(static_cast<int>(CUDA_ERROR_NO_DEVICE) == static_cast<int>(::CUDA_ERROR_NO_DEVICE));
static_assert(static_cast<int>(CUDA_ERROR_INVALID_DEVICE) == static_cast<int>(::CUDA_ERROR_INVALID_DEVICE));
static_assert(static_cast<int>(CUDA_ERROR_DEVICE_NOT_LICENSED) == static_cast<int>(::CUDA_ERROR_DEVICE_NOT_LICENSED));
static_assert(static_cast<int>(CUDA_ERROR_INVALID_IMAGE) == static_cast<int>(::CUDA_ERROR_INVALID_IMAGE));
static_assert(static_cast<int>(CUDA_ERROR_NO_BINARY_FOR_GPU) == static_cast<int>(::CUDA_ERROR_NO_BINARY_FOR_GPU));
static_assert(static_cast<int>(CUDA_ERROR_ECC_UNCORRECTABLE) == static_cast<int>(::CUDA_ERROR_ECC_UNCORRECTABLE));
static_assert(static_cast<int>(CUDA_ERROR_INVALID_PTX) == static_cast<int>(::CUDA_ERROR_INVALID_PTX));
static_assert(static_cast<int>(CUDA_ERROR_NVLINK_UNCORRECTABLE) == static_cast<int>(::CUDA_ERROR_NVLINK_UNCORRECTABLE));
static_assert(static_cast<int>(CUDA_ERROR_JIT_COMPILER_NOT_FOUND) ==
              static_cast<int>(::CUDA_ERROR_JIT_COMPILER_NOT_FOUND));
static_assert(static_cast<int>(CUDA_ERROR_UNSUPPORTED_PTX_VERSION) ==
              static_cast<int>(::CUDA_ERROR_UNSUPPORTED_PTX_VERSION));
static_assert(static_cast<int>(CUDA_ERROR_JIT_COMPILATION_DISABLED) ==
              static_cast<int>(::CUDA_ERROR_JIT_COMPILATION_DISABLED));
static_assert(static_cast<int>(CUDA_ERROR_INVALID_SOURCE) == static_cast<int>(::CUDA_ERROR_INVALID_SOURCE));
static_assert(static_cast<int>(CUDA_ERROR_NOT_READY) == static_cast<int>(::CUDA_ERROR_NOT_READY));
static_assert(static_cast<int>(CUDA_ERROR_ILLEGAL_ADDRESS) == static_cast<int>(::CUDA_ERROR_ILLEGAL_ADDRESS));
static_assert(static_cast<int>(CUDA_ERROR_LAUNCH_TIMEOUT) == static_cast<int>(::CUDA_ERROR_LAUNCH_TIMEOUT));
static_assert(static_cast<int>(CUDA_ERROR_HARDWARE_STACK_ERROR) == static_cast<int>(::CUDA_ERROR_HARDWARE_STACK_ERROR));
static_assert(static_cast<int>(CUDA_ERROR_ILLEGAL_INSTRUCTION) == static_cast<int>(::CUDA_ERROR_ILLEGAL_INSTRUCTION));
static_assert(static_cast<int>(CUDA_ERROR_LAUNCH_FAILED) == static_cast<int>(::CUDA_ERROR_LAUNCH_FAILED));
static_assert(static_cast<int>(CUDA_ERROR_SYSTEM_NOT_READY) == static_cast<int>(::CUDA_ERROR_SYSTEM_NOT_READY));
static_assert(static_cast<int>(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH) ==
              static_cast<int>(::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH));
static_assert(static_cast<int>(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE) ==
              static_cast<int>(::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE));
static_assert(static_cast<int>(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED) ==
              static_cast<int>(::CUDA_ERROR_MPS_MAX_CLIENTS_REACHED));
static_assert(static_cast<int>(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED) ==
              static_cast<int>(::CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED));
static_assert(static_cast<int>(CUDA_ERROR_UNKNOWN) == static_cast<int>(::CUDA_ERROR_UNKNOWN));
static_assert(static_cast<int>(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK) ==
              static_cast<int>(::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK));
static_assert(static_cast<int>(CU_DEVICE_ATTRIBUTE_WARP_SIZE) == static_cast<int>(::CU_DEVICE_ATTRIBUTE_WARP_SIZE));
static_assert(static_cast<int>(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK) ==
              static_cast<int>(::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK));
static_assert(static_cast<int>(CU_DEVICE_ATTRIBUTE_CLOCK_RATE) == static_cast<int>(::CU_DEVICE_ATTRIBUTE_CLOCK_RATE));
static_assert(static_cast<int>(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) ==
              static_cast<int>(::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
static_assert(static_cast<int>(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE) ==
              static_cast<int>(::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE));
static_assert(static_cast<int>(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) ==
              static_cast<int>(::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE));
static_assert(static_cast<int>(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) ==
              static_cast<int>(::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH));
static_assert(static_cast<int>(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE) ==
              static_cast<int>(::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
static_assert(static_cast<int>(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) ==
              static_cast<int>(::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR));
static_assert(static_cast<int>(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) ==
              static_cast<int>(::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
static_assert(static_cast<int>(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) ==
              static_cast<int>(::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
static_assert(static_cast<int>(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) ==
              static_cast<int>(::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR));
static_assert(static_cast<int>(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR) ==
              static_cast<int>(::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR));
static_assert(static_cast<int>(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) ==
              static_cast<int>(::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
static_assert(static_cast<int>(CU_COMPUTEMODE_DEFAULT) == static_cast<int>(::CU_COMPUTEMODE_DEFAULT));
static_assert(static_cast<int>(CU_COMPUTEMODE_PROHIBITED) == static_cast<int>(::CU_COMPUTEMODE_PROHIBITED));
static_assert(static_cast<int>(CU_STREAM_DEFAULT) == static_cast<int>(::CU_STREAM_DEFAULT));

static_assert(is_called_alike(static_cast<decltype(&cuInit)>(nullptr), static_cast<decltype(&::cuInit)>(nullptr)));
static_assert(is_called_alike(static_cast<decltype(&cuDriverGetVersion)>(nullptr),
                              static_cast<decltype(&::cuDriverGetVersion)>(nullptr)));
static_assert(is_called_alike(static_cast<decltype(&cuGetErrorString)>(nullptr),
                              static_cast<decltype(&::cuGetErrorString)>(nullptr)));
static_assert(is_called_alike(static_cast<decltype(&cuDeviceGetCount)>(nullptr),
                              static_cast<decltype(&::cuDeviceGetCount)>(nullptr)));
static_assert(is_called_alike(static_cast<decltype(&cuDeviceGet)>(nullptr),
                              static_cast<decltype(&::cuDeviceGet)>(nullptr)));
static_assert(is_called_alike(static_cast<decltype(&cuDeviceGetName)>(nullptr),
                              static_cast<decltype(&::cuDeviceGetName)>(nullptr)));
static_assert(is_called_alike(static_cast<decltype(&cuDeviceGetAttribute)>(nullptr),
                              static_cast<decltype(&::cuDeviceGetAttribute)>(nullptr)));
static_assert(is_called_alike(static_cast<decltype(&cuDeviceTotalMem)>(nullptr),
                              static_cast<decltype(&::cuDeviceTotalMem)>(nullptr)));
static_assert(is_called_alike(static_cast<decltype(&cuDeviceGetUuid)>(nullptr),
                              static_cast<decltype(&::cuDeviceGetUuid)>(nullptr)));
static_assert(is_called_alike(static_cast<decltype(&cuDevicePrimaryCtxRetain)>(nullptr),
                              static_cast<decltype(&::cuDevicePrimaryCtxRetain)>(nullptr)));
static_assert(is_called_alike(static_cast<decltype(&cuDevicePrimaryCtxRelease)>(nullptr),
                              static_cast<decltype(&::cuDevicePrimaryCtxRelease)>(nullptr)));
static_assert(is_called_alike(static_cast<decltype(&cuCtxSetCurrent)>(nullptr),
                              static_cast<decltype(&::cuCtxSetCurrent)>(nullptr)));
static_assert(is_called_alike(static_cast<decltype(&cuMemGetInfo)>(nullptr),
                              static_cast<decltype(&::cuMemGetInfo)>(nullptr)));
static_assert(is_called_alike(static_cast<decltype(&cuMemAlloc)>(nullptr),
                              static_cast<decltype(&::cuMemAlloc)>(nullptr)));
static_assert(is_called_alike(static_cast<decltype(&cuMemFree)>(nullptr),
                              static_cast<decltype(&::cuMemFree)>(nullptr)));
static_assert(is_called_alike(static_cast<decltype(&cuMemsetD32Async)>(nullptr),
                              static_cast<decltype(&::cuMemsetD32Async)>(nullptr)));
static_assert(is_called_alike(static_cast<decltype(&cuMemcpyDtoH)>(nullptr),
                              static_cast<decltype(&::cuMemcpyDtoH)>(nullptr)));
static_assert(is_called_alike(static_cast<decltype(&cuModuleLoadData)>(nullptr),
                              static_cast<decltype(&::cuModuleLoadData)>(nullptr)));
static_assert(is_called_alike(static_cast<decltype(&cuModuleUnload)>(nullptr),
                              static_cast<decltype(&::cuModuleUnload)>(nullptr)));
static_assert(is_called_alike(static_cast<decltype(&cuModuleGetFunction)>(nullptr),
                              static_cast<decltype(&::cuModuleGetFunction)>(nullptr)));
static_assert(is_called_alike(static_cast<decltype(&cuStreamCreate)>(nullptr),
                              static_cast<decltype(&::cuStreamCreate)>(nullptr)));
static_assert(is_called_alike(static_cast<decltype(&cuStreamDestroy)>(nullptr),
                              static_cast<decltype(&::cuStreamDestroy)>(nullptr)));
static_assert(is_called_alike(static_cast<decltype(&cuStreamQuery)>(nullptr),
                              static_cast<decltype(&::cuStreamQuery)>(nullptr)));
static_assert(is_called_alike(static_cast<decltype(&cuLaunchKernel)>(nullptr),
                              static_cast<decltype(&::cuLaunchKernel)>(nullptr)));

}  // namespace
}  // namespace inductorfs::fingerprint
