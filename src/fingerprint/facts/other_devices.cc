// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "fingerprint/facts/facts.h"
#include "inductorfs/base/fd.h"

namespace inductorfs::fingerprint {
namespace {

constexpr uint64_t kSysLimit = 64 << 10;
constexpr std::string_view kNvidia = "10de";
// Classes of PCI devices, as the first four digits of `class` (include/linux/pci_ids.h).
constexpr std::string_view kDisplay = "03";
constexpr std::string_view k3dController = "0302";
constexpr std::string_view kAccelerator = "12";

/// AMD (ATI), AMD and Intel: Triton's backends for them ask torch whether it is built for them, and no plugin brings
/// their devices to another torch.
constexpr std::array<std::string_view, 3> kBuilds = {"1002", "1022", "8086"};
/// Display controllers of servers and of virtual machines, which show a screen and compute nothing: Amazon, ASPEED,
/// Bochs, Cirrus, Huawei's iBMC, Hyper-V, Matrox, Red Hat, Silicon Motion, virtio, VirtualBox, VMware, XGI.
constexpr std::array<std::string_view, 13> kScreens = {"1d0f", "1a03", "1234", "1013", "19e5", "1414", "102b",
                                                       "1b36", "126f", "1af4", "80ee", "15ad", "18ca"};
/// Xilinx: an FPGA has no code that torch compiles.
constexpr std::string_view kFpga = "10ee";
/// Nodes of devices whose class on the bus says nothing: AWS Neuron's, and Cloud TPUs' (which are no accel of DRM).
constexpr std::array<std::string_view, 2> kNodes = {"neuron", "accel"};

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

template <size_t Count>
bool is_in(const std::array<std::string_view, Count>& list, std::string_view one) {
  return std::find(list.begin(), list.end(), one) != list.end();
}

struct PciDevice {
  std::string address;
  std::string vendor;  ///< four digits
  std::string kind;    ///< six digits: class, subclass, interface
};

std::vector<PciDevice> pci_devices(const std::string& root) {
  const std::string bus = root + "/sys/bus/pci/devices";
  std::vector<PciDevice> found;
  for (const std::string& address : names_in(bus)) {
    const auto digits = [&](const char* file) {
      std::string text = read_file(AT_FDCWD, bus + "/" + address + "/" + file, kSysLimit).value_or("");
      if (text.starts_with("0x")) text.erase(0, 2);
      return text.substr(0, text.find('\n'));
    };
    found.push_back({address, digits("vendor"), digits("class")});
  }
  return found;
}

/// "neuron0" for "neuron"; what is below a directory of DRM's accelerators the bus shows with its maker.
bool is_node(const std::string& name, std::string_view stem) {
  return name.starts_with(stem) && name.size() > stem.size() &&
         name.find_first_not_of("0123456789", stem.size()) == std::string::npos;
}

/// The platform of a torch that is built for other devices than CUDA's; else empty.
std::string platform_of(const Fact& torch, std::string_view version) {
  if (value_of(torch.details, "hip") || version.find("+rocm") != std::string_view::npos) return "ROCm";
  if (version.find("+xpu") != std::string_view::npos) return "XPU";
  return value_of(torch.details, kBuiltForKey).value_or("");
}

}  // namespace

std::vector<std::string> nvidia_devices(const std::string& root) {
  std::vector<std::string> found = names_in(root + "/proc/driver/nvidia/gpus");
  for (const PciDevice& device : pci_devices(root)) {
    if (device.vendor == kNvidia && device.kind.starts_with(kDisplay)) found.push_back(device.address);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

OtherDevices other_devices(const std::string& root) {
  OtherDevices found;
  for (const PciDevice& device : pci_devices(root)) {
    const bool is_display = device.kind.starts_with(kDisplay);
    if (device.vendor == kNvidia || device.vendor == kFpga || (!is_display && !device.kind.starts_with(kAccelerator)))
      continue;
    const std::string name = device.address + ", vendor 0x" + device.vendor;
    if (is_in(kBuilds, device.vendor)) {
      found.of_builds.push_back(name);
    } else if (!is_display) {
      found.accelerators.push_back(name);
    } else if (device.kind.starts_with(k3dController) || !is_in(kScreens, device.vendor)) {
      found.displays.push_back(name);
    }
  }
  for (const std::string& name : names_in(root + "/dev")) {
    if (std::ranges::any_of(kNodes, [&name](std::string_view stem) { return is_node(name, stem); })) {
      found.accelerators.push_back("/dev/" + name);
    }
  }
  return found;
}

bool hides_all_devices(std::string_view value) {
  // CUDA's programming guide, "CUDA Environment Variables": only devices before the first invalid index are visible.
  // NoDevFiles is what Slurm sets for a job without a device.
  const std::string_view first = value.substr(0, value.find(','));
  return value.empty() || first == "-1" || first == "NoDevFiles";
}

void doubt_for_torch(Fingerprint& facts) {
  const Fact& torch = facts.get(Facet::kTorch);
  Fact gpu = facts.get(Facet::kGpu);
  const std::vector<std::string> devices = values_of(gpu.details, kOfBuildKey);
  const std::string version = value_of(torch.value, "version").value_or("");
  const std::string platform = platform_of(torch, version);
  std::string why;
  if (!platform.empty()) {
    why = "torch " + version + " is built for " + platform + ", of whose devices " +
          (devices.empty() ? "" : "(" + devices.front() + ") ") + "this release learns no facts";
  } else if (!torch.known && gpu.is_none() && !devices.empty()) {
    why = "it is not known whether torch uses this host's device " + devices.front();
  }
  if (why.empty()) return;
  gpu = unknown_fact(why + ", so what depends on the device stays on this host", gpu.source);
  gpu.details = facts.get(Facet::kGpu).details;
  for (const Facet facet : {Facet::kGpu, Facet::kGpuArch, Facet::kCuda}) facts.set(facet, gpu);
}

}  // namespace inductorfs::fingerprint
