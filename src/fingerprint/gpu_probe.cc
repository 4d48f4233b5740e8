// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "facts.h"
#include "inductorfs/base/encoding.h"

#if INDUCTORFS_WITH_CUDA
#include <cuda.h>
#endif

namespace inductorfs::fingerprint {
namespace {

using Json = nlohmann::json;

/// Present on a host whose NVIDIA kernel driver is loaded, also in a container that lacks its library.
constexpr const char* kControlDevice = "/dev/nvidiactl";

int answer(const char* status, const std::string& detail, int code) {
  const Json json = {{"status", status}, {"detail", detail}};
  std::puts(json.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  return code;
}

int absent_library() {
  const char* reason = dlerror();
  const std::string detail = reason == nullptr ? "libcuda.so.1 cannot be loaded" : reason;
  if (access(kControlDevice, F_OK) != 0) return answer("absent", "no driver: " + detail, kProbeAbsent);
  return answer("failed", std::string(kControlDevice) + " is there, but " + detail, kProbeFailed);
}

#if INDUCTORFS_WITH_CUDA

constexpr int kNameLength = 256;
constexpr int kDeviceLimit = 256;

/// The driver's functions by the names that libcuda.so.1 exports: cuda.h maps the plain names to these by macros, so
/// that a plain name looked up at run time would be the version of 2010. Immutable after construction.
struct Driver {
  decltype(&cuInit) init = nullptr;
  decltype(&cuDriverGetVersion) version = nullptr;
  decltype(&cuDeviceGetCount) count = nullptr;
  decltype(&cuDeviceGet) device = nullptr;
  decltype(&cuDeviceGetName) name = nullptr;
  decltype(&cuDeviceGetAttribute) attribute = nullptr;
  decltype(&cuDeviceTotalMem) total_memory = nullptr;
  decltype(&cuDeviceGetUuid) uuid = nullptr;
  decltype(&cuGetErrorString) error_string = nullptr;
};

template <typename F>
bool look_up(void* library, const char* symbol, F& function) {
  function = reinterpret_cast<F>(dlsym(library, symbol));
  return function != nullptr;
}

bool load(void* library, Driver& driver) {
  return look_up(library, "cuInit", driver.init) && look_up(library, "cuDriverGetVersion", driver.version) &&
         look_up(library, "cuDeviceGetCount", driver.count) && look_up(library, "cuDeviceGet", driver.device) &&
         look_up(library, "cuDeviceGetName", driver.name) &&
         look_up(library, "cuDeviceGetAttribute", driver.attribute) &&
         look_up(library, "cuDeviceTotalMem_v2", driver.total_memory) &&
         (look_up(library, "cuDeviceGetUuid_v2", driver.uuid) || look_up(library, "cuDeviceGetUuid", driver.uuid)) &&
         look_up(library, "cuGetErrorString", driver.error_string);
}

std::string text_of(const Driver& driver, CUresult result) {
  const char* text = nullptr;
  if (driver.error_string(result, &text) != CUDA_SUCCESS || text == nullptr) text = "unknown error";
  return std::to_string(static_cast<int>(result)) + " (" + text + ")";
}

Result<Json> describe(const Driver& driver, int index) {
  CUdevice device = 0;
  std::array<char, kNameLength> name{};
  int major = 0;
  int minor = 0;
  int multiprocessors = 0;
  size_t memory = 0;
  CUuuid uuid{};
  CUresult result = driver.device(&device, index);
  const auto next = [&result](auto call) {
    if (result == CUDA_SUCCESS) result = call();
  };
  next([&] { return driver.name(name.data(), kNameLength, device); });
  next([&] { return driver.attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device); });
  next([&] { return driver.attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device); });
  next([&] { return driver.attribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device); });
  next([&] { return driver.total_memory(&memory, device); });
  next([&] { return driver.uuid(&uuid, device); });
  if (result != CUDA_SUCCESS) {
    return fail(ErrorCode::kUnavailable, "device " + std::to_string(index) + ": error " + text_of(driver, result));
  }
  name.back() = '\0';
  return Json{{"name", std::string(name.data())},
              {"capability", std::to_string(major) + "." + std::to_string(minor)},
              {"multiprocessors", multiprocessors},
              {"memory_bytes", static_cast<uint64_t>(memory)},
              {"uuid", to_hex(std::string_view(uuid.bytes, sizeof uuid.bytes))}};
}

int ask_driver(const Driver& driver) {
  CUresult result = driver.init(0);
  // A library without a driver behind it is what toolkits install for linking on hosts without a driver.
  if (result == CUDA_ERROR_NO_DEVICE || result == CUDA_ERROR_STUB_LIBRARY) {
    return answer("absent", "no device: " + text_of(driver, result), kProbeAbsent);
  }
  int version = 0;
  int count = 0;
  if (result == CUDA_SUCCESS) result = driver.version(&version);
  if (result == CUDA_SUCCESS) result = driver.count(&count);
  if (result != CUDA_SUCCESS)
    return answer("failed", "the CUDA driver: error " + text_of(driver, result), kProbeFailed);
  if (count == 0) return answer("absent", "no device", kProbeAbsent);
  Json devices = Json::array();
  for (int index = 0; index < count && index < kDeviceLimit; ++index) {
    auto device = describe(driver, index);
    if (!device) return answer("failed", device.error().what(), kProbeFailed);
    devices.push_back(std::move(*device));
  }
  const Json json = {{"status", "present"}, {"driver", version}, {"devices", std::move(devices)}};
  std::puts(json.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  return kProbePresent;
}

#endif

}  // namespace

int run_gpu_probe() {
  // Never closed: the driver has threads by then, and this process ends.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absent_library();
#if INDUCTORFS_WITH_CUDA
  Driver driver;
  if (!load(library, driver)) return answer("failed", "libcuda.so.1 is too old", kProbeFailed);
  return ask_driver(driver);
#else
  return answer("failed", "libcuda.so.1 is there, but this program was built without CUDA (meson -Dcuda=enabled)",
                kProbeFailed);
#endif
}

}  // namespace inductorfs::fingerprint
