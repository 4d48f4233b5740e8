// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>

#include "fingerprint/facts/cuda_driver.h"
#include "fingerprint/facts/facts.h"
#include "fingerprint/facts/gpu_kernel.h"
#include "inductorfs/base/encoding.h"

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

constexpr int kNameLength = 256;
constexpr int kDeviceLimit = 256;
/// The oldest that the probe's PTX is for, older than any that a torch of 2.4 and newer runs with.
constexpr int kOldestDriver = 11000;
/// A context takes a second or two where the driver does not keep its devices ready (no persistence mode): with many of
/// them the rest is taken at the driver's word rather than all be unknown at the parent's deadline.
constexpr std::chrono::seconds kRunBudget{8};
/// One entry for each device that the kernel driver has, whatever CUDA_VISIBLE_DEVICES says.
constexpr const char* kKernelDevices = "/proc/driver/nvidia/gpus";

/// The driver's functions that describe a device. Immutable after construction.
struct Driver {
  decltype(&cuInit) init = nullptr;
  decltype(&cuDriverGetVersion) version = nullptr;
  decltype(&cuDeviceGetCount) count = nullptr;
  decltype(&cuDeviceGet) device = nullptr;
  decltype(&cuDeviceGetName) name = nullptr;
  decltype(&cuDeviceGetAttribute) attribute = nullptr;
  decltype(&cuDeviceTotalMem) total_memory = nullptr;
  decltype(&cuDeviceGetUuid) uuid = nullptr;         ///< of the MIG instance, where the device is one
  decltype(&cuDeviceGetUuid) parent_uuid = nullptr;  ///< of the whole device
  void* library = nullptr;

  [[nodiscard]] std::string text_of(CUresult result) const { return driver_error(library, static_cast<int>(result)); }
};

bool load(void* library, Driver& driver) {
  driver.library = library;
  return look_up(library, "cuInit", driver.init) && look_up(library, "cuDriverGetVersion", driver.version) &&
         look_up(library, "cuDeviceGetCount", driver.count) && look_up(library, "cuDeviceGet", driver.device) &&
         look_up(library, "cuDeviceGetName", driver.name) &&
         look_up(library, "cuDeviceGetAttribute", driver.attribute) &&
         look_up(library, "cuDeviceTotalMem_v2", driver.total_memory) &&
         look_up(library, "cuDeviceGetUuid", driver.parent_uuid) &&
         // cuDeviceGetUuid_v2 came with CUDA 11.4.
         (look_up(library, "cuDeviceGetUuid_v2", driver.uuid) || look_up(library, "cuDeviceGetUuid", driver.uuid));
}

/// As nvidia-smi writes it, without the word before it: 8-4-4-4-12 hex digits.
std::string uuid_text(const CUuuid& uuid) {
  std::string text = to_hex(std::string_view(uuid.bytes, sizeof uuid.bytes));
  for (size_t at : {8U, 13U, 18U, 23U}) text.insert(at, "-");
  return text;
}

/// What Triton and Inductor read of a device beside the facets' values (torch/_inductor/runtime/hints.py
/// DeviceProperties, triton/backends/nvidia/driver.py). All of it follows from the compute capability, but for the
/// clocks.
constexpr std::pair<const char*, CUdevice_attribute> kAttributes[] = {
    {"registers_per_block", CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK},
    {"registers_per_multiprocessor", CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR},
    {"shared_memory_per_block", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK},
    {"shared_memory_per_block_optin", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
    {"shared_memory_per_multiprocessor", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR},
    {"threads_per_multiprocessor", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
    {"warp_size", CU_DEVICE_ATTRIBUTE_WARP_SIZE},
    {"l2_cache_bytes", CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
    {"clock_khz", CU_DEVICE_ATTRIBUTE_CLOCK_RATE},
    {"memory_clock_khz", CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE},
    {"memory_bus_bits", CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH}};

Json details_of(const Driver& driver, CUdevice device, const std::string& name, const CUuuid& uuid) {
  Json details = Json::object();
  for (const auto& [key, attribute] : kAttributes) {
    int value = 0;
    if (driver.attribute(&value, attribute, device) == CUDA_SUCCESS) details[key] = std::to_string(value);
  }
  // A MIG instance is a device to CUDA: it has a name of its own ("NVIDIA A100-SXM4-40GB MIG 1g.5gb") and a UUID of its
  // own.
  CUuuid parent{};
  const bool knows_parent = driver.parent_uuid(&parent, device) == CUDA_SUCCESS;
  const bool differs = knows_parent && uuid_text(parent) != uuid_text(uuid);
  const size_t word = name.find(" MIG ");
  const bool is_mig = differs || word != std::string::npos;
  details["uuid"] = (is_mig ? "MIG-" : "GPU-") + uuid_text(uuid);
  if (differs) details["parent_uuid"] = "GPU-" + uuid_text(parent);
  details["mig"] = word != std::string::npos ? name.substr(word + 5) : is_mig ? "yes" : "no";
  return details;
}

/// Runs the kernel on the device and adds what came of it.
bool add_run(const Driver& driver, int index, int multiprocessors, Json& json) {
  const KernelRun run = run_kernel(driver.library, index, multiprocessors);
  json["runs"] = run.runs == Runs::kYes ? "yes" : run.runs == Runs::kNo ? "no" : "untried";
  json["why"] = run.why;
  Json& details = json["details"];
  if (!run.image.empty()) details["kernel_image"] = run.image;
  if (run.runs == Runs::kYes) details["kernel_microseconds"] = std::to_string(run.microseconds);
  if (run.free_before > 0) details["memory_free_before"] = std::to_string(run.free_before);
  if (run.free_after > 0) details["memory_free_after"] = std::to_string(run.free_after);
  return !run.abandoned;
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
    return fail(ErrorCode::kUnavailable, "device " + std::to_string(index) + ": " + driver.text_of(result));
  }
  name.back() = '\0';
  return Json{{"name", std::string(name.data())},
              {"capability", std::to_string(major) + "." + std::to_string(minor)},
              {"multiprocessors", multiprocessors},
              {"memory_bytes", static_cast<uint64_t>(memory)},
              {"uuid", to_hex(std::string_view(uuid.bytes, sizeof uuid.bytes))},
              {"details", details_of(driver, device, name.data(), uuid)}};
}

/// Why there may be no device though the host has one.
std::string no_device() {
  std::string text = "no device";
  std::error_code error;
  if (std::filesystem::is_empty(kKernelDevices, error) || error) return text;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  text += ", though the kernel driver has some: ";
  return text + (visible != nullptr ? std::string("CUDA_VISIBLE_DEVICES is \"") + visible + "\""
                                    : "this container was given none, or MIG mode is on and there is no instance");
}

void add_untried(const char* why, Json& json) {
  json["runs"] = "untried";
  json["why"] = why;
}

/// Ends the process without the driver's own tidying, which would wait for a kernel that does not end.
[[noreturn]] void leave_at_once(int code) {
  (void)std::fflush(stdout);  // a parent that no longer listens has what it needs: the exit code
  _exit(code);
}

int describe_all(const Driver& driver, int version, int count) {
  const auto begun = std::chrono::steady_clock::now();
  Json devices = Json::array();
  bool whole = true;
  for (int index = 0; index < count && index < kDeviceLimit; ++index) {
    auto device = describe(driver, index);
    if (!device) return answer("failed", device.error().what(), kProbeFailed);
    if (!whole) {
      add_untried("a device before it hung", *device);
    } else if (std::chrono::steady_clock::now() - begun > kRunBudget) {
      add_untried("the devices before it took too long", *device);
    } else {
      whole = add_run(driver, index, (*device)["multiprocessors"].get<int>(), *device);
    }
    devices.push_back(std::move(*device));
  }
  const Json json = {
      {"status", "present"}, {"driver", version}, {"kernel", kernel_architectures()}, {"devices", std::move(devices)}};
  std::puts(json.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  if (!whole) leave_at_once(kProbePresent);
  return kProbePresent;
}

int ask_driver(const Driver& driver) {
  int version = 0;
  // Answers without a device, and says more than the error of an init that fails for a driver's age.
  if (driver.version(&version) == CUDA_SUCCESS && version > 0 && version < kOldestDriver) {
    return answer("failed",
                  "the driver is too old: its CUDA level is " + cuda_level(version) + ", needed is " +
                      cuda_level(kOldestDriver) + " or newer",
                  kProbeFailed);
  }
  CUresult result = driver.init(0);
  // A library without a driver behind it is what toolkits install for linking on hosts without a driver.
  if (result == CUDA_ERROR_NO_DEVICE) return answer("absent", no_device(), kProbeAbsent);
  if (result == CUDA_ERROR_STUB_LIBRARY) {
    return answer("absent", "no device: libcuda.so.1 is a toolkit's, to link with: " + driver.text_of(result),
                  kProbeAbsent);
  }
  int count = 0;
  if (result == CUDA_SUCCESS) result = driver.version(&version);
  if (result == CUDA_SUCCESS) result = driver.count(&count);
  if (result != CUDA_SUCCESS) return answer("failed", "the CUDA driver: " + driver.text_of(result), kProbeFailed);
  if (count == 0) return answer("absent", no_device(), kProbeAbsent);
  return describe_all(driver, version, count);
}

}  // namespace

int run_gpu_probe() {
  // Never closed: the driver has threads by then, and this process ends.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absent_library();
  Driver driver;
  if (!load(library, driver))
    return answer("failed", "the driver is too old: libcuda.so.1 lacks a function that the probe needs", kProbeFailed);
  return ask_driver(driver);
}

}  // namespace inductorfs::fingerprint
