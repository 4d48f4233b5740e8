// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

/// Reads what an x86 CPU offers from CPUID itself: /proc/cpuinfo shows only features for which its kernel has a name,
/// and mixes them with the kernel's own state.
namespace inductorfs::fingerprint {

struct CpuidAnswer {
  uint32_t eax = 0;
  uint32_t ebx = 0;
  uint32_t ecx = 0;
  uint32_t edx = 0;
};
/// Answers a CPUID query; empty for a leaf that the CPU does not have.
using Cpuid = std::function<std::optional<CpuidAnswer>(uint32_t leaf, uint32_t subleaf)>;

using Flags = std::set<std::string, std::less<>>;

struct X86Cpu {
  std::string vendor;
  unsigned family = 0;
  unsigned model = 0;
  unsigned stepping = 0;
  /// The name that compilers use for -march; empty when this model is not known here.
  std::string microarchitecture;
  /// Instruction set extensions that a process can use, by the names of gcc's -m options.
  Flags features;
  /// Extensions that CPUID lists and the kernel has not enabled (no register state saved, no permission for AMX).
  Flags withheld;
  bool hypervisor = false;
  bool hybrid = false;  ///< cores of two kinds
};
/// Reads a CPU. `xcr0` has the register sets that the kernel saves (XGETBV; 0 if it cannot be read). `permitted` has
/// those that a process may ask for (arch_prctl ARCH_GET_XCOMP_SUPP; 0 before Linux 5.16).
[[nodiscard]] X86Cpu read_x86(const Cpuid& cpuid, uint64_t xcr0, uint64_t permitted);

/// Says whether `name` is an extension that X86Cpu::features would hold on a CPU that has it.
[[nodiscard]] bool is_known_feature(std::string_view name);
/// Says whether compilers emit the instructions of this extension only where a program calls them by name (an
/// intrinsic, a target attribute, assembly), so that the same source becomes the same code with and without it. Shown
/// for this host's compilers by RealCompilers.MakeTheSameCodeWithoutWhatIsOnlyAskedFor.
[[nodiscard]] bool is_only_asked_for(std::string_view feature);
/// Lists them all.
[[nodiscard]] std::span<const std::string_view> only_asked_for();
/// Returns the gcc name of a flag of /proc/cpuinfo: "avx512_vnni" is "avx512vnni"; empty for a flag that is no such
/// extension.
[[nodiscard]] std::string feature_of_flag(std::string_view flag);

/// Returns the CPUID of this CPU; it answers nothing if this is not an x86 program.
[[nodiscard]] Cpuid host_cpuid();
/// These return XCR0 and what arch_prctl permits on this host; 0 if that cannot be asked for.
[[nodiscard]] uint64_t host_xcr0();
[[nodiscard]] uint64_t host_permitted();

}  // namespace inductorfs::fingerprint
