// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "child.h"
#include "facts.h"

namespace inductorfs::fingerprint {
namespace {

using Json = nlohmann::json;

constexpr size_t kDeviceLimit = 256;
constexpr uint64_t kGiB = uint64_t{1} << 30;

GpuAnswer unknown_answer(std::string detail) {
  GpuAnswer answer;
  answer.detail = std::move(detail);
  return answer;
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
  return !device.name.empty() && !device.capability.empty();
}

bool read_devices(const Json& json, GpuAnswer& answer) {
  const auto driver = json.find("driver");
  const auto devices = json.find("devices");
  if (driver == json.end() || !driver->is_number_integer()) return false;
  if (devices == json.end() || !devices->is_array() || devices->empty() || devices->size() > kDeviceLimit) return false;
  answer.driver = driver->get<int>();
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

Fact fact_of(const GpuAnswer& gpu, const Lines& lines) {
  if (gpu.state == GpuState::kUnknown) return unknown_fact(gpu.detail, gpu.source);
  if (gpu.state == GpuState::kAbsent) return known_fact("none", gpu.source + ": " + gpu.detail);
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

GpuAnswer ask_gpu(const ProbeOptions& options) {
  GpuAnswer answer;
  const std::string program = options.gpu_probe.empty() ? "/proc/self/exe" : options.gpu_probe;
  const std::string marker(kProbeMarker);
  if (std::getenv(marker.c_str()) != nullptr) {
    answer = unknown_answer("this is the GPU probe itself");
  } else if (const auto child = run_child({program, "gpu-probe"}, options.deadline, {marker + "=1"}); !child) {
    answer = unknown_answer("the GPU probe: " + child.error().what());
    if (child.error().code() == ErrorCode::kTimedOut) answer.detail += "; the driver may hang: see nvidia-smi";
  } else if (child->exit_code == kProbePresent || child->exit_code == kProbeAbsent ||
             child->exit_code == kProbeFailed) {
    answer = parse_gpu_answer(child->out);
  } else {
    answer = unknown_answer("the GPU probe ended with code " + std::to_string(child->exit_code) + ": " +
                            child->err.substr(0, 500));
  }
  answer.source = options.gpu_probe.empty() ? "CUDA driver" : options.gpu_probe;
  return answer;
}

Fact gpu_fact(const GpuAnswer& gpu) {
  Lines lines;
  for (const GpuDevice& device : gpu.devices) {
    lines.emplace_back("device", device.name + "; cc=" + device.capability +
                                     "; sms=" + std::to_string(device.multiprocessors) +
                                     "; memory_gib=" + memory_text(device.memory_bytes));
  }
  return fact_of(gpu, lines);
}

Fact gpu_arch_fact(const GpuAnswer& gpu) {
  Lines lines;
  for (const GpuDevice& device : gpu.devices) lines.emplace_back("cc", device.capability);
  return fact_of(gpu, lines);
}

}  // namespace inductorfs::fingerprint
