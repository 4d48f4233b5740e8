// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "fingerprint/facts/facts.h"
#include "inductorfs/base/host_files.h"
#include "inductorfs/base/text.h"

namespace inductorfs::fingerprint {
namespace {

/// 4 KiB a CPU on recent x86.
constexpr uint64_t kCpuInfoLimit = uint64_t{64} << 20;

struct CpuText {
  std::map<std::string, std::set<std::string>, std::less<>> values;  ///< by key: the distinct values of all CPUs
  Flags common;                                                      ///< flags that every CPU has
  Flags all;                                                         ///< flags that some CPU has
  size_t blocks = 0;                                                 ///< CPUs
};

CpuText parse_cpuinfo(std::string_view text) {
  CpuText cpu;
  bool first = true;
  std::string_view last;
  while (!text.empty()) {
    const std::string_view line = take_part(text, '\n');
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view key = trimmed(line.substr(0, colon));
    const std::string_view value = trimmed(line.substr(colon + 1));
    if (key == "processor") ++cpu.blocks;
    if (key == "flags" || key == "Features") {
      if (!first && value == last) continue;  // as on all CPUs of most hosts
      last = value;
      Flags flags;
      for (const std::string_view word : words_of(value)) flags.emplace(word);
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

/// Values of the keys that `names` gives, as lines.
Lines lines_of(const CpuText& cpu, std::initializer_list<std::pair<const char*, const char*>> names) {
  Lines lines;
  for (const auto& [key, name] : names) {
    const auto found = cpu.values.find(std::string_view(key));
    if (found != cpu.values.end()) lines.emplace_back(name, joined(found->second, ","));
  }
  return lines;
}

/// The extensions that some CPU of this host lacks, by the compilers' names, of those that change what they make.
Flags partial_features(const CpuText& cpu) {
  Flags result;
  for (const std::string& flag : cpu.all) {
    if (cpu.common.contains(flag)) continue;
    std::string feature = feature_of_flag(flag);
    if (!feature.empty() && !is_only_asked_for(feature)) result.insert(std::move(feature));
  }
  return result;
}

/// What every CPU of this host can run, of what changes what compilers make.
Flags usable_features(const CpuSight& sight, const CpuText& cpu) {
  const Flags partial = partial_features(cpu);
  Flags result;
  std::set_difference(sight.x86->features.begin(), sight.x86->features.end(), partial.begin(), partial.end(),
                      std::inserter(result, result.end()));
  std::erase_if(result, is_only_asked_for);
  return result;
}

Flags asked_for_of(const Flags& features) {
  Flags result;
  std::copy_if(features.begin(), features.end(), std::inserter(result, result.end()), is_only_asked_for);
  return result;
}

std::string hexadecimal(uint64_t value) {
  char text[24];
  (void)std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

/// For people, and for the reader of a miss: nothing of this changes what a compiler makes or a CPU runs. The stepping
/// and the microcode's revision change neither -march=native nor -mtune=native; mitigations change the kernel's code
/// only.
std::string cpu_details(const CpuSight& sight, const CpuText& cpu) {
  Lines lines = lines_of(cpu, {{"model name", "model_name"},
                               {"microcode", "microcode"},
                               {"stepping", "stepping"},
                               {"CPU revision", "stepping"}});
  lines.emplace_back("cpus", std::to_string(cpu.blocks));
  if (sight.x86) {
    const X86Cpu& x86 = *sight.x86;
    lines.emplace_back("family", std::to_string(x86.family));
    lines.emplace_back("model", std::to_string(x86.model));
    lines.emplace_back("hypervisor", x86.hypervisor ? "yes: it may hide what the processor has" : "no");
    lines.emplace_back("hybrid", x86.hybrid ? "yes" : "no");
    lines.emplace_back("xcr0", hexadecimal(sight.xcr0));
    lines.emplace_back("xcomp_permitted", hexadecimal(sight.permitted));
    if (const Flags more = asked_for_of(x86.features); !more.empty()) {
      lines.emplace_back(kOnlyAskedForKey, joined(more, " "));
    }
    if (!x86.withheld.empty()) lines.emplace_back("withheld_by_kernel", joined(x86.withheld, " "));
  }
  return canonical(lines);
}

Fact x86_fact(const CpuSight& sight, const CpuText& cpu) {
  const X86Cpu& x86 = *sight.x86;
  if (x86.features.empty()) return unknown_fact("CPUID lists no instruction set extension", "CPUID");
  Lines lines = {{"arch", sight.machine}, {"vendor", x86.vendor}, {"flags", joined(usable_features(sight, cpu), " ")}};
  const auto models = cpu.values.find(std::string_view("model"));
  const bool mixed = models != cpu.values.end() && models->second.size() > 1;
  if (mixed || x86.microarchitecture.empty()) {
    lines.emplace_back("family", std::to_string(x86.family));
    lines.emplace_back("model", mixed ? joined(models->second, ",") : std::to_string(x86.model));
  } else {
    lines.emplace_back("microarchitecture", x86.microarchitecture);
  }
  if (const Flags partial = partial_features(cpu); !partial.empty()) {
    lines.emplace_back("heterogeneous", joined(partial, " "));
  }
  return known_fact(canonical(lines), "CPUID, XGETBV, arch_prctl, " + std::string(kCpuInfo));
}

/// Arm kernels list instruction set extensions and nothing else.
Fact other_fact(const CpuSight& sight, const CpuText& cpu) {
  if (cpu.all.empty()) return unknown_fact("no CPU flags in " + std::string(kCpuInfo), kCpuInfo);
  Lines lines = lines_of(cpu, {{"CPU implementer", "vendor"}, {"CPU part", "model"}, {"CPU variant", "variant"}});
  lines.emplace_back("arch", sight.machine);
  lines.emplace_back("flags", joined(cpu.common, " "));
  if (cpu.common != cpu.all) {
    Flags partial;
    std::set_difference(cpu.all.begin(), cpu.all.end(), cpu.common.begin(), cpu.common.end(),
                        std::inserter(partial, partial.end()));
    lines.emplace_back("heterogeneous", joined(partial, " "));
  }
  return known_fact(canonical(lines), kCpuInfo);
}

}  // namespace

Fact libc_fact() {
  return known_fact(canonical({{"name", "glibc"}, {"version", gnu_get_libc_version()}}), "gnu_get_libc_version");
}

Fact cpu_fact(const CpuSight& sight) {
  const CpuText cpu = parse_cpuinfo(sight.cpuinfo);
  Fact fact = sight.x86 ? x86_fact(sight, cpu) : other_fact(sight, cpu);
  fact.details = cpu_details(sight, cpu);
  return fact;
}

Fact cpu_isa_fact(const CpuSight& sight) {
  if (!sight.x86) return unknown_fact("which vector ISA torch picks is only known here for x86_64", kCpuInfo);
  if (sight.x86->features.empty()) return unknown_fact("CPUID lists no instruction set extension", "CPUID");
  const Flags features = usable_features(sight, parse_cpuinfo(sight.cpuinfo));
  const auto has = [&features](std::initializer_list<std::string_view> names) {
    return std::all_of(names.begin(), names.end(), [&features](std::string_view f) { return features.contains(f); });
  };
  // torch/_inductor/cpu_vec_isa.py x86_isa_checker over torch/cpu/__init__.py. AVX-512 with all that
  // VecAVX512._arch_flags compiles for; 2.15 asks for F alone, which differs only on Knights Landing. The names are
  // torch's, so that tests/fingerprint/against_torch.py can compare them.
  const bool avx512 = has({"avx512f", "avx512vl", "avx512bw", "avx512dq", "fma"});
  const std::pair<const char*, bool> isas[] = {{"avx2", has({"avx2", "fma"})},
                                               {"avx512", avx512},
                                               {"avx512_bf16", avx512 && has({"avx512bf16"})},
                                               {"avx512_vnni", avx512 && has({"avx512vnni"})},
                                               {"amx_tile", has({"amx-tile"})},
                                               {"amx_fp16", has({"amx-fp16"})}};
  Lines lines;
  for (const auto& [name, present] : isas) lines.emplace_back(name, present ? "yes" : "no");
  return known_fact(canonical(lines), "CPUID, XGETBV, arch_prctl, " + std::string(kCpuInfo));
}

std::pair<Fact, Fact> cpu_facts() {
  utsname host{};
  auto text = cpu_info(kCpuInfoLimit);
  if (!text || uname(&host) != 0) {
    const Fact unknown = unknown_fact(std::string(kCpuInfo) + " or uname cannot be read", kCpuInfo);
    return {unknown, unknown};
  }
  CpuSight sight{std::move(*text), host.machine, host_xcr0(), host_permitted(), {}};
  if (sight.machine == "x86_64") sight.x86 = read_x86(host_cpuid(), sight.xcr0, sight.permitted);
  return {cpu_fact(sight), cpu_isa_fact(sight)};
}

}  // namespace inductorfs::fingerprint
