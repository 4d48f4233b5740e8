// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "facts.h"
#include "inductorfs/base/fd.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace inductorfs::fingerprint {
namespace {

using Flags = std::set<std::string, std::less<>>;

constexpr const char* kCpuInfo = "/proc/cpuinfo";
/// 4 KiB a CPU on recent x86.
constexpr uint64_t kCpuInfoLimit = uint64_t{64} << 20;

/// Flags of the kernel's own state, of mitigations, timers and virtualisation (arch/x86/include/asm/cpufeatures.h):
/// they come and go with the kernel's version and settings, and no compiler asks for them.
constexpr std::string_view kNotInstructions[] = {"acpi",
                                                 "aperfmperf",
                                                 "apic",
                                                 "arat",
                                                 "arch_capabilities",
                                                 "arch_lbr",
                                                 "arch_perfmon",
                                                 "art",
                                                 "bts",
                                                 "bus_lock_detect",
                                                 "cat_l2",
                                                 "cat_l3",
                                                 "cdp_l2",
                                                 "cdp_l3",
                                                 "constant_tsc",
                                                 "cpuid",
                                                 "cpuid_fault",
                                                 "cqm",
                                                 "cqm_llc",
                                                 "cqm_mbm_local",
                                                 "cqm_mbm_total",
                                                 "cqm_occup_llc",
                                                 "dtes64",
                                                 "dtherm",
                                                 "dts",
                                                 "epb",
                                                 "ept",
                                                 "ept_ad",
                                                 "est",
                                                 "flexpriority",
                                                 "flush_l1d",
                                                 "ht",
                                                 "hwp",
                                                 "hwp_act_window",
                                                 "hwp_epp",
                                                 "hwp_notify",
                                                 "hwp_pkg_req",
                                                 "hypervisor",
                                                 "ibpb",
                                                 "ibrs",
                                                 "ibrs_enhanced",
                                                 "ida",
                                                 "intel_ppin",
                                                 "intel_pt",
                                                 "mba",
                                                 "md_clear",
                                                 "monitor",
                                                 "nonstop_tsc",
                                                 "nopl",
                                                 "pbe",
                                                 "pcid",
                                                 "pconfig",
                                                 "pdcm",
                                                 "pebs",
                                                 "pln",
                                                 "pti",
                                                 "pts",
                                                 "rdt_a",
                                                 "rep_good",
                                                 "ssbd",
                                                 "smap",
                                                 "smep",
                                                 "smx",
                                                 "split_lock_detect",
                                                 "ss",
                                                 "stibp",
                                                 "tm",
                                                 "tm2",
                                                 "tme",
                                                 "tpr_shadow",
                                                 "tsc_adjust",
                                                 "tsc_deadline_timer",
                                                 "tsc_known_freq",
                                                 "umip",
                                                 "user_shstk",
                                                 "vmx",
                                                 "vnmi",
                                                 "vpid",
                                                 "x2apic",
                                                 "xtopology",
                                                 "xtpr"};

struct CpuText {
  std::map<std::string, std::set<std::string>, std::less<>> values;  ///< by key: the distinct values of all CPUs
  Flags common;                                                      ///< flags that every CPU has
  Flags all;                                                         ///< flags that some CPU has
};

std::string_view trimmed(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t");
  if (start == std::string_view::npos) return {};
  return text.substr(start, text.find_last_not_of(" \t") - start + 1);
}

Flags words_of(std::string_view text) {
  Flags words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (end > 0) words.emplace(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

CpuText parse_cpuinfo(std::string_view text) {
  CpuText cpu;
  bool first = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view key = trimmed(line.substr(0, colon));
    const std::string_view value = trimmed(line.substr(colon + 1));
    if (key == "flags" || key == "Features") {
      const Flags flags = words_of(value);
      Flags both;
      std::set_intersection(cpu.common.begin(), cpu.common.end(), flags.begin(), flags.end(),
                            std::inserter(both, both.end()));
      cpu.common = first ? flags : both;
      cpu.all.insert(flags.begin(), flags.end());
      first = false;
    } else {
      cpu.values[std::string(key)].emplace(value);
    }
  }
  return cpu;
}

template <typename Texts>
std::string joined(const Texts& texts, std::string_view separator) {
  std::string result;
  for (const auto& text : texts) {
    if (!result.empty()) result += separator;
    result += text;
  }
  return result;
}

Flags instruction_flags(const Flags& flags) {
  Flags result = flags;
  for (std::string_view name : kNotInstructions) {
    const auto found = result.find(name);
    if (found != result.end()) result.erase(found);
  }
  return result;
}

/// Which register sets the kernel saves: AVX-512 or AMX that is off there faults although CPUID lists it.
std::string read_xcr0() {
#if defined(__x86_64__)
  constexpr unsigned kOsxsave = 1U << 27;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid_count(1, 0, &eax, &ebx, &ecx, &edx) == 0 || (ecx & kOsxsave) == 0) return {};
  unsigned low = 0;
  unsigned high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  char text[24];
  (void)std::snprintf(text, sizeof text, "0x%llx", (static_cast<unsigned long long>(high) << 32) | low);
  return text;
#else
  return {};
#endif
}

}  // namespace

Fact libc_fact() {
  return known_fact(canonical({{"name", "glibc"}, {"version", gnu_get_libc_version()}}), "gnu_get_libc_version");
}

Fact cpu_fact(std::string_view cpuinfo, const std::string& machine, const std::string& xcr0) {
  const CpuText cpu = parse_cpuinfo(cpuinfo);
  if (cpu.all.empty()) return unknown_fact("no CPU flags in " + std::string(kCpuInfo), kCpuInfo);
  Lines lines = {{"arch", machine}};
  // x86 first, then the names that arm64 kernels print for the same.
  constexpr std::pair<const char*, const char*> kKeys[] = {
      {"vendor_id", "vendor"},    {"cpu family", "family"},      {"model", "model"},
      {"stepping", "stepping"},   {"CPU implementer", "vendor"}, {"CPU part", "model"},
      {"CPU variant", "variant"}, {"CPU revision", "stepping"}};
  for (const auto& [key, name] : kKeys) {
    const auto found = cpu.values.find(std::string_view(key));
    if (found != cpu.values.end()) lines.emplace_back(name, joined(found->second, ","));
  }
  const Flags common = instruction_flags(cpu.common);
  const Flags all = instruction_flags(cpu.all);
  lines.emplace_back("flags", joined(common, " "));
  if (common != all) {
    Flags partial;
    std::set_difference(all.begin(), all.end(), common.begin(), common.end(), std::inserter(partial, partial.end()));
    lines.emplace_back("heterogeneous", joined(partial, " "));
  }
  if (!xcr0.empty()) lines.emplace_back("xcr0", xcr0);
  return known_fact(canonical(lines), xcr0.empty() ? kCpuInfo : std::string(kCpuInfo) + ", XGETBV");
}

Fact cpu_isa_fact(std::string_view cpuinfo, const std::string& machine) {
  if (machine != "x86_64") return unknown_fact("which vector ISA torch picks is only known here for x86_64", kCpuInfo);
  const CpuText cpu = parse_cpuinfo(cpuinfo);
  if (cpu.all.empty()) return unknown_fact("no CPU flags in " + std::string(kCpuInfo), kCpuInfo);
  const auto has = [&cpu](std::initializer_list<std::string_view> flags) {
    return std::all_of(flags.begin(), flags.end(), [&cpu](std::string_view f) { return cpu.common.contains(f); });
  };
  // torch/_inductor/cpu_vec_isa.py x86_isa_checker over torch/cpu/__init__.py. AVX-512 with all that
  // VecAVX512._arch_flags compiles for; 2.15 asks for F alone, which differs only on Knights Landing. The names are
  // torch's, so that tests/fingerprint/against_torch.py can compare them.
  const bool avx512 = has({"avx512f", "avx512vl", "avx512bw", "avx512dq", "fma"});
  const std::pair<const char*, bool> isas[] = {{"avx2", has({"avx2", "fma"})},
                                               {"avx512", avx512},
                                               {"avx512_bf16", avx512 && has({"avx512_bf16"})},
                                               {"avx512_vnni", avx512 && has({"avx512_vnni"})},
                                               {"amx_tile", has({"amx_tile"})},
                                               {"amx_fp16", has({"amx_fp16"})}};
  Lines lines;
  for (const auto& [name, present] : isas) lines.emplace_back(name, present ? "yes" : "no");
  return known_fact(canonical(lines), kCpuInfo);
}

std::pair<Fact, Fact> cpu_facts() {
  const auto text = read_file(AT_FDCWD, kCpuInfo, kCpuInfoLimit);
  utsname host{};
  if (!text || uname(&host) != 0) {
    const Fact unknown = unknown_fact(std::string(kCpuInfo) + " or uname cannot be read", kCpuInfo);
    return {unknown, unknown};
  }
  return {cpu_fact(*text, host.machine, read_xcr0()), cpu_isa_fact(*text, host.machine)};
}

}  // namespace inductorfs::fingerprint
