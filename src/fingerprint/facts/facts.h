// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fingerprint/common/in_root.h"
#include "fingerprint/common/key_memory.h"
#include "fingerprint/facts/cpu_features.h"
#include "inductorfs/base/result.h"
#include "inductorfs/fingerprint/facet_text.h"
#include "inductorfs/fingerprint/fingerprint.h"

/// One function for each facet. A function returns an unknown fact with the reason, and never an error.
namespace inductorfs::fingerprint {

/// The line of the cpu fact's details that lists the extensions of which is_only_asked_for() is true.
inline constexpr const char* kOnlyAskedForKey = "only_asked_for";

[[nodiscard]] Fact known_fact(std::string value, std::string source);
[[nodiscard]] Fact unknown_fact(std::string problem, std::string source = {});

/// What an interpreter is, and where its packages are, as its files say. Immutable value.
struct PythonFacts {
  std::string executable;
  std::string implementation;  ///< sys.implementation.name
  std::string version;         ///< major.minor
  std::string soabi;
  std::vector<std::string> extensions;  ///< importlib.machinery.EXTENSION_SUFFIXES
  std::string torch;                    ///< package folder; empty when none was found
  std::string triton;                   ///< as torch
  std::string doubt;                    ///< why a package that was not found may be there; empty: there is none
  std::vector<std::string> path;        ///< the folders in which it looks for modules, in order
};
/// Reads what CPython reads at its start, and runs nothing. kNotFound when there is no such program, kInvalid when its
/// files do not say what it is.
[[nodiscard]] Result<PythonFacts> learn_python(const ProbeOptions& options);
[[nodiscard]] Fact python_fact(const Result<PythonFacts>& python);

/// The packages are those of a process with that root.
[[nodiscard]] Fact torch_fact(const InRoot& root, const Result<PythonFacts>& python, KeyMemory& memory);
[[nodiscard]] Fact triton_fact(const InRoot& root, const Result<PythonFacts>& python, KeyMemory& memory);

/// Returns the engine facet: a line for each package of a serving engine, found in the first of these folders that has
/// it, with its version and the digest of its files. Its details have a line kEngineFolderKey for each of them. The
/// folders are those in which an interpreter looks for modules, in its order.
[[nodiscard]] Fact engine_fact(const InRoot& root, std::vector<std::string> sites, KeyMemory& memory);
/// Says whether a package of this name is one of a serving engine.
[[nodiscard]] bool is_engine_module(std::string_view name);
/// The lines of the python fact's details that name the folders in which the interpreter looks for modules, in order.
inline constexpr const char* kSiteKey = "site";

/// Says whether a device ran the probe's kernel with the right results. kUntried means that there was no kernel for the
/// device, or that it was busy; nothing speaks against the device then.
enum class Runs { kYes, kNo, kUntried };

/// One CUDA device as the driver describes it. Immutable value.
struct GpuDevice {
  std::string name;
  std::string capability;  ///< "9.0"
  int64_t multiprocessors = 0;
  uint64_t memory_bytes = 0;
  std::string uuid;
  Runs runs = Runs::kUntried;
  std::string why;  ///< the reason, unless the kernel ran (kYes)
  Lines details;
};
enum class GpuState { kPresent, kAbsent, kUnknown };
struct GpuAnswer {
  GpuState state = GpuState::kUnknown;
  std::string detail;  ///< why absent or unknown
  std::string source;
  int driver = 0;                      ///< the driver's CUDA level: 13020 is 13.2
  std::string driver_release;          ///< the kernel driver's own version, "580.65.06"; empty if it is not reported
  std::string kernel;                  ///< the architectures that the probe's kernel is compiled for
  std::vector<std::string> of_builds;  ///< OtherDevices::of_builds
  std::vector<GpuDevice> devices;
};
/// Returns the addresses of the NVIDIA GPUs that the kernel driver or the PCI bus shows below `root`, sorted. They can
/// be seen even if the driver cannot be asked: in a container without device nodes, or before the driver is loaded.
[[nodiscard]] std::vector<std::string> nvidia_devices(const std::string& root);
/// Other makers' devices that can run what torch compiles, as far as the PCI bus and device nodes show them; sorted.
struct OtherDevices {
  /// AMD's and Intel's: a torch uses them only if it is built for them (kBuiltForKey).
  std::vector<std::string> of_builds;
  std::vector<std::string> accelerators;  ///< others, which any torch uses by a plugin
  std::vector<std::string> displays;      ///< those of the latter that may be no more than a screen's
};
[[nodiscard]] OtherDevices other_devices(const std::string& root);
/// Says whether this value of CUDA_VISIBLE_DEVICES hides every device: its first index is none.
[[nodiscard]] bool hides_all_devices(std::string_view value);
/// The lines of the gpu fact's details that name OtherDevices::of_builds.
inline constexpr const char* kOfBuildKey = "unasked";
/// The line of the torch fact's details that names the platform if it is not CUDA: "ROCm" or "XPU".
inline constexpr const char* kBuiltForKey = "built_for";
/// Makes gpu, gpu-arch and cuda unknown where they say nothing of the devices that the torch of these facts uses.
void doubt_for_torch(Fingerprint& facts);
/// Runs the probe child and reads its answer. An answer that there is no GPU is believed only if nvidia_devices() and
/// other_devices() show none. `root` is prepended to /dev, /proc and /sys for that.
[[nodiscard]] GpuAnswer ask_gpu(const ProbeOptions& options, const std::string& root = {});
/// Formats CUDA's packed version: 13020 is "13.2".
[[nodiscard]] std::string cuda_level(int packed);
/// Returns "580.65.06" from the text of /proc/driver/nvidia/version; empty when the text names no version.
[[nodiscard]] std::string driver_release(std::string_view text);
/// Parses the probe's JSON; kUnknown for anything that is not such an answer.
[[nodiscard]] GpuAnswer parse_gpu_answer(std::string_view text);
[[nodiscard]] Fact gpu_fact(const GpuAnswer& gpu);
[[nodiscard]] Fact gpu_arch_fact(const GpuAnswer& gpu);
/// Returns what torch was built with: the lines of the cuda facet without the driver's.
[[nodiscard]] Fact cuda_of_torch(const Result<PythonFacts>& python);
[[nodiscard]] Fact cuda_fact(const Fact& of_torch, const GpuAnswer& gpu);
[[nodiscard]] inline Fact cuda_fact(const Result<PythonFacts>& python, const GpuAnswer& gpu) {
  return cuda_fact(cuda_of_torch(python), gpu);
}

[[nodiscard]] Fact libc_fact();
/// What a host shows about its CPUs. Immutable value.
struct CpuSight {
  std::string cpuinfo;     ///< text of /proc/cpuinfo
  std::string machine;     ///< uname(2)'s machine
  uint64_t xcr0 = 0;       ///< as for read_x86()
  uint64_t permitted = 0;  ///< as for read_x86()
  std::optional<X86Cpu> x86;
};
[[nodiscard]] Fact cpu_fact(const CpuSight& sight);
[[nodiscard]] Fact cpu_isa_fact(const CpuSight& sight);
/// Returns the two facts above for this host.
[[nodiscard]] std::pair<Fact, Fact> cpu_facts();

/// The line of the torch fact's details that is "no" when keys_thread_count() is false.
inline constexpr const char* kThreadCountInKey = "thread_count_in_key";
/// Says whether the key of a graph has the number of threads for which its C++ code is made (codecache.py,
/// FxGraphHashDetails: parallel_num_threads()). Up to torch 2.9 it does not.
[[nodiscard]] bool keys_thread_count(const InRoot& root, const std::string& torch_directory);
/// Returns the number of cores of these processors, as MKL counts them: torch starts with so many threads
/// (aten/src/ATen/ParallelOpenMP.cpp, init_num_threads). `cpuinfo` is the text of /proc/cpuinfo.
[[nodiscard]] size_t core_count(std::string_view cpuinfo, const std::set<size_t>& processors);
/// Adds to the cpu-isa fact the number of threads that torch starts with in a process that may run where this process
/// may; only for a torch whose keys do not have it.
[[nodiscard]] Fact with_thread_count(Fact isa, const Fact& torch);

/// Set in the GPU probe's environment, because a program that links this module and does not know the command
/// `gpu-probe` would otherwise probe again, without end.
inline constexpr std::string_view kProbeMarker = "INDUCTORFS_GPU_PROBE";
/// Exit codes of the probe child.
inline constexpr int kProbePresent = 0;
inline constexpr int kProbeFailed = 1;
inline constexpr int kProbeAbsent = 3;

}  // namespace inductorfs::fingerprint
