// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "fingerprint/common/child.h"
#include "fingerprint/facts/facts.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/text.h"

namespace inductorfs::fingerprint {
namespace {

using Json = nlohmann::json;

constexpr size_t kDeviceLimit = 256;
constexpr size_t kDetailLimit = 64;
constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr const char* kDriverVersion = "/proc/driver/nvidia/version";
/// PTX that the driver compiles for the probe is not worth a file in the user's home.
constexpr const char* kNoJitCache = "CUDA_CACHE_DISABLE=1";
constexpr uint64_t kDriverVersionLimit = 64 << 10;

GpuAnswer unknown_answer(std::string detail) {
  GpuAnswer answer;
  answer.detail = std::move(detail);
  return answer;
}

/// What the probe says of its kernel on this device; a probe that says nothing has not tried.
bool read_run(const Json& json, GpuDevice& device) {
  const auto runs = json.find("runs");
  if (runs == json.end()) {
    device.why = "the probe did not try it";
    return true;
  }
  if (*runs != "yes" && *runs != "no" && *runs != "untried") return false;
  device.runs = *runs == "yes" ? Runs::kYes : *runs == "no" ? Runs::kNo : Runs::kUntried;
  const auto why = json.find("why");
  if (why != json.end() && why->is_string()) device.why = why->get<std::string>();
  return true;
}

bool read_details(const Json& json, GpuDevice& device) {
  const auto details = json.find("details");
  if (details == json.end()) return true;
  if (!details->is_object() || details->size() > kDetailLimit) return false;
  for (const auto& [key, value] : details->items()) {
    if (!value.is_string()) return false;
    device.details.emplace_back(key, value.get<std::string>());
  }
  return true;
}

bool read_device(const Json& json, GpuDevice& device) {
  if (!json.is_object()) return false;
  const std::pair<const char*, std::string*> texts[] = {
      {"name", &device.name}, {"capability", &device.capability}, {"uuid", &device.uuid}};
  for (const auto& [name, out] : texts) {
    const auto found = json.find(name);
    if (found == json.end() || !found->is_string()) return false;
    *out = found->get<std::string>();
  }
  const auto multiprocessors = json.find("multiprocessors");
  const auto memory = json.find("memory_bytes");
  if (multiprocessors == json.end() || !multiprocessors->is_number_integer()) return false;
  if (memory == json.end() || !memory->is_number_unsigned()) return false;
  device.multiprocessors = multiprocessors->get<int64_t>();
  device.memory_bytes = memory->get<uint64_t>();
  return !device.name.empty() && !device.capability.empty() && read_run(json, device) && read_details(json, device);
}

bool read_devices(const Json& json, GpuAnswer& answer) {
  const auto driver = json.find("driver");
  const auto devices = json.find("devices");
  if (driver == json.end() || !driver->is_number_integer()) return false;
  if (devices == json.end() || !devices->is_array() || devices->empty() || devices->size() > kDeviceLimit) return false;
  answer.driver = driver->get<int>();
  const auto kernel = json.find("kernel");
  if (kernel != json.end() && kernel->is_string()) answer.kernel = kernel->get<std::string>();
  for (const Json& entry : *devices) {
    GpuDevice device;
    if (!read_device(entry, device)) return false;
    answer.devices.push_back(std::move(device));
  }
  return true;
}

/// Whole GiB: how much of it the driver keeps for itself differs between its patch levels by some MiB, which must not
/// part two hosts; models and MIG slices differ by GiB.
std::string memory_text(uint64_t bytes) { return std::to_string((bytes + kGiB / 2) / kGiB); }

std::string named(const GpuAnswer& gpu, size_t index) {
  return "device " + std::to_string(index) + " (" + gpu.devices[index].name + ")";
}

std::string first_of(const std::vector<std::string>& devices) {
  const size_t more = devices.size() - 1;
  return devices.front() + (more > 0 ? " and " + std::to_string(more) + " more" : "");
}

void set_unknown(GpuAnswer& answer, std::string detail) {
  answer.state = GpuState::kUnknown;
  answer.detail = std::move(detail);
}

/// A container that was given no device nodes, or not the driver's library, is no host without a GPU: the jobs beside
/// it have one, and what they measure on it must not be shared with other models. Nor is a host with another maker's.
void doubt(const std::string& root, GpuAnswer& answer) {
  const OtherDevices others = other_devices(root);
  answer.of_builds = others.of_builds;
  const bool is_absent = answer.state == GpuState::kAbsent;
  std::vector<std::string> unasked = others.accelerators;
  if (is_absent) unasked.insert(unasked.end(), others.displays.begin(), others.displays.end());
  if (answer.state != GpuState::kUnknown && !unasked.empty()) {
    set_unknown(answer, "this host has an accelerator (" + first_of(unasked) +
                            ") of which this release learns no facts, so what depends on the device stays on this "
                            "host; if no job uses it, mount with a --fingerprint that says so");
  }
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");  // nothing changes it while facts are learned
  if (!is_absent || (visible != nullptr && hides_all_devices(visible))) return;
  const std::vector<std::string> devices = nvidia_devices(root);
  if (devices.empty()) return;
  set_unknown(answer, "this host has an NVIDIA device (" + first_of(devices) +
                          ") that cannot be asked: " + answer.detail +
                          "; give the daemon's container the devices and the driver's library, or set "
                          "CUDA_VISIBLE_DEVICES= for a daemon whose jobs use none");
}

/// Everything about the devices that no artefact depends on.
std::string details_of(const GpuAnswer& gpu) {
  Lines lines;
  if (!gpu.driver_release.empty()) lines.emplace_back("driver_release", gpu.driver_release);
  if (gpu.driver != 0) lines.emplace_back("driver_cuda", cuda_level(gpu.driver));
  if (gpu.state == GpuState::kPresent) {
    lines.emplace_back("probe_kernel", gpu.kernel.empty() ? "none: this program was built without nvcc" : gpu.kernel);
  }
  for (size_t i = 0; i < gpu.devices.size(); ++i) {
    const GpuDevice& device = gpu.devices[i];
    const std::string prefix = "gpu" + std::to_string(i) + ".";
    lines.emplace_back(prefix + "name", device.name);
    lines.emplace_back(prefix + "memory_bytes", std::to_string(device.memory_bytes));
    const char* word = device.runs == Runs::kYes ? "yes" : device.runs == Runs::kNo ? "no: " : "not tried: ";
    lines.emplace_back(prefix + "runs_code", device.runs == Runs::kYes ? word : word + device.why);
    for (const auto& [key, value] : device.details) lines.emplace_back(prefix + key, value);
  }
  for (const std::string& device : gpu.of_builds) lines.emplace_back(kOfBuildKey, device);
  return canonical(lines);
}

Fact value_of(const GpuAnswer& gpu, const Lines& lines) {
  if (gpu.state == GpuState::kUnknown) return unknown_fact(gpu.detail, gpu.source);
  if (gpu.state == GpuState::kAbsent) return known_fact(std::string(kNone), gpu.source + ": " + gpu.detail);
  for (size_t i = 0; i < gpu.devices.size(); ++i) {
    if (gpu.devices[i].runs != Runs::kNo) continue;
    return unknown_fact(named(gpu, i) + " does not run code: " + gpu.devices[i].why +
                            "; hide it with CUDA_VISIBLE_DEVICES to share all the same",
                        gpu.source);
  }
  return known_fact(canonical(lines), gpu.source);
}

}  // namespace

GpuAnswer parse_gpu_answer(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  const auto status = json.is_object() ? json.find("status") : json.end();
  if (!json.is_object() || status == json.end() || !status->is_string()) {
    return unknown_answer("the GPU probe's answer is not understood");
  }
  GpuAnswer answer;
  const auto detail = json.find("detail");
  if (detail != json.end() && detail->is_string()) answer.detail = detail->get<std::string>();
  if (*status == "absent") {
    answer.state = GpuState::kAbsent;
  } else if (*status == "present") {
    if (!read_devices(json, answer)) return unknown_answer("the GPU probe's answer is incomplete");
    answer.state = GpuState::kPresent;
  } else if (answer.detail.empty()) {
    answer.detail = "the GPU probe failed without a reason";
  }
  return answer;
}

std::string cuda_level(int packed) { return std::to_string(packed / 1000) + "." + std::to_string(packed % 1000 / 10); }

std::string driver_release(std::string_view text) {
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul ...": the first word that begins with a digit
  // and has a dot; the line of the compiler follows.
  text = text.substr(0, text.find('\n'));
  if (!text.starts_with("NVRM version:")) return {};
  for (const std::string_view word : parts_of(text, ' ')) {
    if (!word.empty() && std::isdigit(static_cast<unsigned char>(word.front())) != 0 &&
        word.find('.') != std::string_view::npos) {
      return std::string(word);
    }
  }
  return {};
}

GpuAnswer ask_gpu(const ProbeOptions& options, const std::string& root) {
  GpuAnswer answer;
  const std::string program = options.gpu_probe.empty() ? "/proc/self/exe" : options.gpu_probe;
  const std::string marker(kProbeMarker);
  ChildOptions probe_options;
  probe_options.environment = {marker + "=1", kNoJitCache};
  if (std::getenv(marker.c_str()) != nullptr) {
    answer = unknown_answer("this is the GPU probe itself");
  } else if (const auto child = run_child({program, "gpu-probe"}, options.deadline, probe_options); !child) {
    answer = unknown_answer("the GPU probe: " + child.error().what());
    if (child.error().code() == ErrorCode::kTimedOut) answer.detail += "; the driver may hang: see nvidia-smi";
  } else if (child->exit_code == kProbePresent || child->exit_code == kProbeAbsent ||
             child->exit_code == kProbeFailed) {
    answer = parse_gpu_answer(child->out);
  } else {
    answer = unknown_answer("the GPU probe ended with code " + std::to_string(child->exit_code) + ": " +
                            child->err.substr(0, 500));
  }
  doubt(root, answer);
  answer.source = options.gpu_probe.empty() ? "CUDA driver" : options.gpu_probe;
  if (const auto text = read_file(AT_FDCWD, kDriverVersion, kDriverVersionLimit)) {
    answer.driver_release = driver_release(*text);
  }
  return answer;
}

Fact gpu_fact(const GpuAnswer& gpu) {
  Lines lines;
  for (const GpuDevice& device : gpu.devices) {
    lines.emplace_back("device", device.name + "; cc=" + device.capability +
                                     "; sms=" + std::to_string(device.multiprocessors) +
                                     "; memory_gib=" + memory_text(device.memory_bytes));
  }
  Fact fact = value_of(gpu, lines);
  fact.details = details_of(gpu);
  return fact;
}

Fact gpu_arch_fact(const GpuAnswer& gpu) {
  Lines lines;
  for (const GpuDevice& device : gpu.devices) lines.emplace_back(kArchitectureKey, device.capability);
  return value_of(gpu, lines);
}

}  // namespace inductorfs::fingerprint
