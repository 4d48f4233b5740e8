// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inductorfs/base/result.h"
#include "inductorfs/fingerprint/fingerprint.h"
#include "key_memory.h"

/// One function for each facet; each answers an unknown fact with the reason rather than an error.
namespace inductorfs::fingerprint {

using Lines = std::vector<std::pair<std::string, std::string>>;

/// The canonical text of a facet: `key=value` lines, sorted, without duplicates, no newline at the end. Line breaks in
/// a value become spaces: a value is one line.
[[nodiscard]] std::string canonical(const Lines& lines);
[[nodiscard]] Fact known_fact(std::string value, std::string source);
[[nodiscard]] Fact unknown_fact(std::string problem, std::string source = {});

/// What the interpreter says about itself and where its packages are. Immutable value.
struct PythonFacts {
  std::string executable;
  std::string implementation;  ///< sys.implementation.name
  std::string version;         ///< major.minor
  std::string soabi;
  std::vector<std::string> extensions;  ///< importlib.machinery.EXTENSION_SUFFIXES
  std::string torch;                    ///< package folder; empty when there is none
  std::string triton;
};
[[nodiscard]] Result<PythonFacts> learn_python(const ProbeOptions& options);
[[nodiscard]] Fact python_fact(const Result<PythonFacts>& python);

[[nodiscard]] Fact torch_fact(const Result<PythonFacts>& python, KeyMemory& memory);
[[nodiscard]] Fact triton_fact(const Result<PythonFacts>& python, KeyMemory& memory);

/// One CUDA device as the driver describes it. Immutable value.
struct GpuDevice {
  std::string name;
  std::string capability;  ///< "9.0"
  int64_t multiprocessors = 0;
  uint64_t memory_bytes = 0;
  std::string uuid;
};
enum class GpuState { kPresent, kAbsent, kUnknown };
struct GpuAnswer {
  GpuState state = GpuState::kUnknown;
  std::string detail;  ///< why absent or unknown
  std::string source;
  int driver = 0;  ///< the driver's CUDA level: 13020 is 13.2
  std::vector<GpuDevice> devices;
};
/// Runs the probe child and reads its answer.
[[nodiscard]] GpuAnswer ask_gpu(const ProbeOptions& options);
/// The answer in the probe's JSON; kUnknown for anything that is not such an answer.
[[nodiscard]] GpuAnswer parse_gpu_answer(std::string_view text);
[[nodiscard]] Fact gpu_fact(const GpuAnswer& gpu);
[[nodiscard]] Fact gpu_arch_fact(const GpuAnswer& gpu);
[[nodiscard]] Fact cuda_fact(const Result<PythonFacts>& python, const GpuAnswer& gpu);

[[nodiscard]] Fact libc_fact();
/// Both take the text of /proc/cpuinfo and the machine name of uname(2); `xcr0` is empty where it cannot be read.
[[nodiscard]] Fact cpu_fact(std::string_view cpuinfo, const std::string& machine, const std::string& xcr0);
[[nodiscard]] Fact cpu_isa_fact(std::string_view cpuinfo, const std::string& machine);
/// The two above for this host.
[[nodiscard]] std::pair<Fact, Fact> cpu_facts();

[[nodiscard]] Fact compiler_fact(const ProbeOptions& options);
/// The identity lines of `gcc -v` or `clang -v`, without paths that depend on where it was called; empty when the text
/// names no version.
[[nodiscard]] Lines compiler_identity(std::string_view text);

/// Set in the GPU probe's environment: a program that links this module and does not know the command `gpu-probe` would
/// otherwise probe again, without end.
inline constexpr std::string_view kProbeMarker = "INDUCTORFS_GPU_PROBE";
/// Exit codes of the probe child.
inline constexpr int kProbePresent = 0;
inline constexpr int kProbeFailed = 1;
inline constexpr int kProbeAbsent = 3;

}  // namespace inductorfs::fingerprint
