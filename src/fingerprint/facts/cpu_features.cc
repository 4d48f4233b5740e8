// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/facts/cpu_features.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <utility>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace inductorfs::fingerprint {
namespace {

enum class Register { kEax, kEbx, kEcx, kEdx };
/// What of the processor's state the kernel has to save before an extension can be used.
enum class Needs { kNothing, kXsave, kAvx, kAvx512, kAmx, kApx };

struct Feature {
  const char* name;
  uint32_t leaf;
  uint32_t subleaf;
  Register place;
  unsigned bit;
  Needs needs = Needs::kNothing;
};

constexpr uint32_t kExtended = 0x80000001;
constexpr uint32_t kCapacity = 0x80000008;

/// All that gcc's and LLVM's -march=native derive from CPUID (gcc/common/config/i386/cpuinfo.h get_available_features,
/// llvm/lib/TargetParser/Host.cpp getHostCPUFeatures).
constexpr Feature kFeatures[] = {{"cx8", 1, 0, Register::kEdx, 8},
                                 {"cmov", 1, 0, Register::kEdx, 15},
                                 {"mmx", 1, 0, Register::kEdx, 23},
                                 {"fxsr", 1, 0, Register::kEdx, 24},
                                 {"sse", 1, 0, Register::kEdx, 25},
                                 {"sse2", 1, 0, Register::kEdx, 26},
                                 {"sse3", 1, 0, Register::kEcx, 0},
                                 {"pclmul", 1, 0, Register::kEcx, 1},
                                 {"ssse3", 1, 0, Register::kEcx, 9},
                                 {"fma", 1, 0, Register::kEcx, 12, Needs::kAvx},
                                 {"cx16", 1, 0, Register::kEcx, 13},
                                 {"sse4.1", 1, 0, Register::kEcx, 19},
                                 {"sse4.2", 1, 0, Register::kEcx, 20},
                                 {"movbe", 1, 0, Register::kEcx, 22},
                                 {"popcnt", 1, 0, Register::kEcx, 23},
                                 {"aes", 1, 0, Register::kEcx, 25},
                                 {"xsave", 1, 0, Register::kEcx, 26, Needs::kXsave},
                                 {"avx", 1, 0, Register::kEcx, 28, Needs::kAvx},
                                 {"f16c", 1, 0, Register::kEcx, 29, Needs::kAvx},
                                 {"rdrnd", 1, 0, Register::kEcx, 30},
                                 {"fsgsbase", 7, 0, Register::kEbx, 0},
                                 {"sgx", 7, 0, Register::kEbx, 2},
                                 {"bmi", 7, 0, Register::kEbx, 3},
                                 {"hle", 7, 0, Register::kEbx, 4},
                                 {"avx2", 7, 0, Register::kEbx, 5, Needs::kAvx},
                                 {"bmi2", 7, 0, Register::kEbx, 8},
                                 {"invpcid", 7, 0, Register::kEbx, 10},
                                 {"rtm", 7, 0, Register::kEbx, 11},
                                 {"avx512f", 7, 0, Register::kEbx, 16, Needs::kAvx512},
                                 {"avx512dq", 7, 0, Register::kEbx, 17, Needs::kAvx512},
                                 {"rdseed", 7, 0, Register::kEbx, 18},
                                 {"adx", 7, 0, Register::kEbx, 19},
                                 {"avx512ifma", 7, 0, Register::kEbx, 21, Needs::kAvx512},
                                 {"clflushopt", 7, 0, Register::kEbx, 23},
                                 {"clwb", 7, 0, Register::kEbx, 24},
                                 {"avx512pf", 7, 0, Register::kEbx, 26, Needs::kAvx512},
                                 {"avx512er", 7, 0, Register::kEbx, 27, Needs::kAvx512},
                                 {"avx512cd", 7, 0, Register::kEbx, 28, Needs::kAvx512},
                                 {"sha", 7, 0, Register::kEbx, 29},
                                 {"avx512bw", 7, 0, Register::kEbx, 30, Needs::kAvx512},
                                 {"avx512vl", 7, 0, Register::kEbx, 31, Needs::kAvx512},
                                 {"prefetchwt1", 7, 0, Register::kEcx, 0},
                                 {"avx512vbmi", 7, 0, Register::kEcx, 1, Needs::kAvx512},
                                 {"pku", 7, 0, Register::kEcx, 4},
                                 {"waitpkg", 7, 0, Register::kEcx, 5},
                                 {"avx512vbmi2", 7, 0, Register::kEcx, 6, Needs::kAvx512},
                                 {"shstk", 7, 0, Register::kEcx, 7},
                                 {"gfni", 7, 0, Register::kEcx, 8},
                                 {"vaes", 7, 0, Register::kEcx, 9, Needs::kAvx},
                                 {"vpclmulqdq", 7, 0, Register::kEcx, 10, Needs::kAvx},
                                 {"avx512vnni", 7, 0, Register::kEcx, 11, Needs::kAvx512},
                                 {"avx512bitalg", 7, 0, Register::kEcx, 12, Needs::kAvx512},
                                 {"avx512vpopcntdq", 7, 0, Register::kEcx, 14, Needs::kAvx512},
                                 {"rdpid", 7, 0, Register::kEcx, 22},
                                 {"cldemote", 7, 0, Register::kEcx, 25},
                                 {"movdiri", 7, 0, Register::kEcx, 27},
                                 {"movdir64b", 7, 0, Register::kEcx, 28},
                                 {"enqcmd", 7, 0, Register::kEcx, 29},
                                 {"avx5124vnniw", 7, 0, Register::kEdx, 2, Needs::kAvx512},
                                 {"avx5124fmaps", 7, 0, Register::kEdx, 3, Needs::kAvx512},
                                 {"uintr", 7, 0, Register::kEdx, 5},
                                 {"avx512vp2intersect", 7, 0, Register::kEdx, 8, Needs::kAvx512},
                                 {"serialize", 7, 0, Register::kEdx, 14},
                                 {"tsxldtrk", 7, 0, Register::kEdx, 16},
                                 {"pconfig", 7, 0, Register::kEdx, 18},
                                 {"amx-bf16", 7, 0, Register::kEdx, 22, Needs::kAmx},
                                 {"avx512fp16", 7, 0, Register::kEdx, 23, Needs::kAvx512},
                                 {"amx-tile", 7, 0, Register::kEdx, 24, Needs::kAmx},
                                 {"amx-int8", 7, 0, Register::kEdx, 25, Needs::kAmx},
                                 {"sha512", 7, 1, Register::kEax, 0, Needs::kAvx},
                                 {"sm3", 7, 1, Register::kEax, 1, Needs::kAvx},
                                 {"sm4", 7, 1, Register::kEax, 2, Needs::kAvx},
                                 {"raoint", 7, 1, Register::kEax, 3},
                                 {"avxvnni", 7, 1, Register::kEax, 4, Needs::kAvx},
                                 {"avx512bf16", 7, 1, Register::kEax, 5, Needs::kAvx512},
                                 {"cmpccxadd", 7, 1, Register::kEax, 7},
                                 {"amx-fp16", 7, 1, Register::kEax, 21, Needs::kAmx},
                                 {"hreset", 7, 1, Register::kEax, 22},
                                 {"avxifma", 7, 1, Register::kEax, 23, Needs::kAvx},
                                 {"movrs", 7, 1, Register::kEax, 31},
                                 {"avxvnniint8", 7, 1, Register::kEdx, 4, Needs::kAvx},
                                 {"avxneconvert", 7, 1, Register::kEdx, 5, Needs::kAvx},
                                 {"amx-complex", 7, 1, Register::kEdx, 8, Needs::kAmx},
                                 {"avxvnniint16", 7, 1, Register::kEdx, 10, Needs::kAvx},
                                 {"prefetchi", 7, 1, Register::kEdx, 14},
                                 {"usermsr", 7, 1, Register::kEdx, 15},
                                 {"avx10.1", 7, 1, Register::kEdx, 19, Needs::kAvx512},
                                 {"apxf", 7, 1, Register::kEdx, 21, Needs::kApx},
                                 {"xsaveopt", 0xd, 1, Register::kEax, 0, Needs::kXsave},
                                 {"xsavec", 0xd, 1, Register::kEax, 1, Needs::kXsave},
                                 {"xsaves", 0xd, 1, Register::kEax, 3, Needs::kXsave},
                                 {"ptwrite", 0x14, 0, Register::kEbx, 4},
                                 {"kl", 0x19, 0, Register::kEbx, 0},
                                 {"widekl", 0x19, 0, Register::kEbx, 2},
                                 {"amx-fp8", 0x1e, 1, Register::kEax, 4, Needs::kAmx},
                                 {"amx-transpose", 0x1e, 1, Register::kEax, 5, Needs::kAmx},
                                 {"amx-tf32", 0x1e, 1, Register::kEax, 6, Needs::kAmx},
                                 {"amx-avx512", 0x1e, 1, Register::kEax, 7, Needs::kAmx},
                                 {"amx-movrs", 0x1e, 1, Register::kEax, 8, Needs::kAmx},
                                 {"sahf", kExtended, 0, Register::kEcx, 0},
                                 {"lzcnt", kExtended, 0, Register::kEcx, 5},
                                 {"sse4a", kExtended, 0, Register::kEcx, 6},
                                 {"prfchw", kExtended, 0, Register::kEcx, 8},
                                 {"xop", kExtended, 0, Register::kEcx, 11, Needs::kAvx},
                                 {"lwp", kExtended, 0, Register::kEcx, 15},
                                 {"fma4", kExtended, 0, Register::kEcx, 16, Needs::kAvx},
                                 {"tbm", kExtended, 0, Register::kEcx, 21},
                                 {"mwaitx", kExtended, 0, Register::kEcx, 29},
                                 {"3dnowa", kExtended, 0, Register::kEdx, 30},
                                 {"3dnow", kExtended, 0, Register::kEdx, 31},
                                 {"clzero", kCapacity, 0, Register::kEbx, 0},
                                 {"rdpru", kCapacity, 0, Register::kEbx, 4},
                                 {"wbnoinvd", kCapacity, 0, Register::kEbx, 9}};

/// Flags of /proc/cpuinfo (arch/x86/include/asm/cpufeatures.h) whose name differs by more than its punctuation.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"pni", "sse3"},       {"pclmulqdq", "pclmul"}, {"rdrand", "rdrnd"},
    {"sha_ni", "sha"},     {"lahf_lm", "sahf"},     {"abm", "lzcnt"},
    {"bmi1", "bmi"},       {"ospke", "pku"},        {"3dnowprefetch", "prfchw"},
    {"sse4_1", "sse4.1"},  {"sse4_2", "sse4.2"},    {"user_shstk", "shstk"},
    {"3dnowext", "3dnowa"}};

/// Instructions of the kernel, of transactions, of cache control and of random numbers. Hypervisors, microcode and
/// settings of the firmware turn them on and off on hosts that run the same code. Not here: shstk, which changes what
/// setjmp becomes under -fcf-protection, and what newer compilers choose by themselves (gfni, cmpccxadd, raoint).
constexpr std::string_view kOnlyAskedFor[] = {
    "cldemote", "clflushopt", "clwb",      "clzero",  "enqcmd",    "fsgsbase", "hle",      "hreset",  "invpcid",
    "kl",       "lwp",        "movdir64b", "movdiri", "mwaitx",    "pconfig",  "pku",      "ptwrite", "rdpid",
    "rdpru",    "rdrnd",      "rdseed",    "rtm",     "serialize", "sgx",      "tsxldtrk", "uintr",   "usermsr",
    "waitpkg",  "wbnoinvd",   "widekl",    "xsavec",  "xsaveopt",  "xsaves"};

constexpr uint64_t kAvxState = 0x6;
constexpr uint64_t kAvx512State = 0xe6;
constexpr uint64_t kTileState = 0x60000;
constexpr uint64_t kTileData = 0x40000;
constexpr uint64_t kApxState = 0x80000;

bool is_enabled(Needs needs, uint64_t xcr0, uint64_t permitted) {
  switch (needs) {
    case Needs::kNothing:
      return true;
    case Needs::kXsave:
      return xcr0 != 0;
    case Needs::kAvx:
      return (xcr0 & kAvxState) == kAvxState;
    case Needs::kAvx512:
      return (xcr0 & kAvx512State) == kAvx512State;
    case Needs::kAmx:
      return (xcr0 & kTileState) == kTileState && (permitted & kTileData) != 0;
    case Needs::kApx:
      return (xcr0 & kApxState) == kApxState;
  }
  return false;
}

uint32_t value_in(const CpuidAnswer& answer, Register place) {
  switch (place) {
    case Register::kEax:
      return answer.eax;
    case Register::kEbx:
      return answer.ebx;
    case Register::kEcx:
      return answer.ecx;
    case Register::kEdx:
      return answer.edx;
  }
  return 0;
}

/// Models that compilers take for one and the same (gcc/common/config/i386/cpuinfo.h get_intel_cpu,
/// llvm/lib/TargetParser/Host.cpp getIntelProcessorTypeAndSubtype). Only models that all compilers since gcc 12 and
/// LLVM 14 agree on stand together; a newer one that older compilers do not know has a name of its own.
struct IntelModels {
  const char* name;
  std::array<unsigned, 8> models;  ///< 0 ends it
};
constexpr IntelModels kIntel[] = {{"nehalem", {0x1a, 0x1e, 0x1f, 0x2e}},
                                  {"westmere", {0x25, 0x2c, 0x2f}},
                                  {"sandybridge", {0x2a, 0x2d}},
                                  {"ivybridge", {0x3a, 0x3e}},
                                  {"haswell", {0x3c, 0x3f, 0x45, 0x46}},
                                  {"broadwell", {0x3d, 0x47, 0x4f, 0x56}},
                                  {"skylake", {0x4e, 0x5e, 0x8e, 0x9e, 0xa5, 0xa6}},
                                  {"cannonlake", {0x66}},
                                  {"icelake-client", {0x7d, 0x7e, 0x9d}},
                                  {"icelake-server", {0x6a, 0x6c}},
                                  {"tigerlake", {0x8c, 0x8d}},
                                  {"rocketlake", {0xa7}},
                                  {"alderlake", {0x97, 0x9a}},
                                  {"raptorlake", {0xb7, 0xba, 0xbf}},
                                  {"meteorlake", {0xaa, 0xac}},
                                  {"arrowlake", {0xc5}},
                                  {"arrowlake-s", {0xc6}},
                                  {"lunarlake", {0xbd}},
                                  {"sapphirerapids", {0x8f}},
                                  {"emeraldrapids", {0xcf}},
                                  {"graniterapids", {0xad}},
                                  {"graniterapids-d", {0xae}},
                                  {"sierraforest", {0xaf}},
                                  {"grandridge", {0xb6}},
                                  {"clearwaterforest", {0xdd}},
                                  {"knl", {0x57}},
                                  {"knm", {0x85}},
                                  {"silvermont", {0x37, 0x4a, 0x4d, 0x5a, 0x5d}},
                                  {"goldmont", {0x5c, 0x5f}},
                                  {"goldmont-plus", {0x7a}},
                                  {"tremont", {0x86, 0x96, 0x9c}}};

/// Three generations of servers have this model; compilers tell them apart by their flags.
constexpr unsigned kSkylakeServer = 0x55;

std::string intel_name(const X86Cpu& cpu) {
  if (cpu.family != 6) return {};
  if (cpu.model == kSkylakeServer) {
    if (cpu.features.contains("avx512bf16")) return "cooperlake";
    return cpu.features.contains("avx512vnni") ? "cascadelake" : "skylake-avx512";
  }
  for (const IntelModels& known : kIntel) {
    if (std::find(known.models.begin(), known.models.end(), cpu.model) != known.models.end()) return known.name;
  }
  return {};
}

struct AmdModels {
  unsigned family;
  unsigned first;
  unsigned last;
  const char* name;
};
constexpr AmdModels kAmd[] = {{0x17, 0x00, 0x2f, "znver1"}, {0x17, 0x30, 0x3f, "znver2"}, {0x17, 0x47, 0x47, "znver2"},
                              {0x17, 0x60, 0x7f, "znver2"}, {0x17, 0x84, 0x87, "znver2"}, {0x17, 0x90, 0xaf, "znver2"},
                              {0x19, 0x00, 0x0f, "znver3"}, {0x19, 0x20, 0x5f, "znver3"}, {0x19, 0x10, 0x1f, "znver4"},
                              {0x19, 0x60, 0x7f, "znver4"}, {0x19, 0xa0, 0xaf, "znver4"}, {0x1a, 0x00, 0x77, "znver5"}};

std::string amd_name(const X86Cpu& cpu) {
  for (const AmdModels& known : kAmd) {
    if (cpu.family == known.family && cpu.model >= known.first && cpu.model <= known.last) return known.name;
  }
  return {};
}

void append_bytes(std::string& text, uint32_t value) {
  for (unsigned shift = 0; shift < 32; shift += 8) text += static_cast<char>((value >> shift) & 0xff);
}

/// "avx512_vnni", "amx-tile" and "sse4.1" without their punctuation.
std::string bare(std::string_view name) {
  std::string result;
  std::copy_if(name.begin(), name.end(), std::back_inserter(result),
               [](char c) { return c != '_' && c != '-' && c != '.'; });
  return result;
}

}  // namespace

X86Cpu read_x86(const Cpuid& asked, uint64_t xcr0, uint64_t permitted) {
  // In a virtual machine each CPUID leaves to the hypervisor.
  std::map<std::pair<uint32_t, uint32_t>, std::optional<CpuidAnswer>> answers;
  const auto cpuid = [&](uint32_t leaf, uint32_t subleaf) {
    const auto [at, is_new] = answers.try_emplace({leaf, subleaf});
    if (is_new) at->second = asked(leaf, subleaf);
    return at->second;
  };
  X86Cpu cpu;
  const auto names = cpuid(0, 0);
  const auto first = cpuid(1, 0);
  if (!names || !first) return cpu;
  for (uint32_t part : {names->ebx, names->edx, names->ecx}) append_bytes(cpu.vendor, part);
  // Family and model are in two pieces each; both extensions count for family 15, that of the model for 6 too.
  const unsigned family = (first->eax >> 8) & 0xf;
  cpu.stepping = first->eax & 0xf;
  cpu.family = family == 0xf ? family + ((first->eax >> 20) & 0xff) : family;
  cpu.model = (first->eax >> 4) & 0xf;
  if (family == 0xf || family == 6) cpu.model += ((first->eax >> 16) & 0xf) << 4;
  cpu.hypervisor = (first->ecx >> 31) != 0;
  const auto seventh = cpuid(7, 0);
  cpu.hybrid = seventh && ((seventh->edx >> 15) & 1) != 0;
  const uint32_t subleaves = seventh ? seventh->eax : 0;
  for (const Feature& feature : kFeatures) {
    if (feature.leaf == 7 && feature.subleaf > subleaves) continue;
    const auto answer = cpuid(feature.leaf, feature.subleaf);
    if (!answer || ((value_in(*answer, feature.place) >> feature.bit) & 1) == 0) continue;
    (is_enabled(feature.needs, xcr0, permitted) ? cpu.features : cpu.withheld).insert(feature.name);
  }
  if (cpu.vendor == "GenuineIntel") cpu.microarchitecture = intel_name(cpu);
  if (cpu.vendor == "AuthenticAMD") cpu.microarchitecture = amd_name(cpu);
  return cpu;
}

bool is_known_feature(std::string_view name) {
  return std::any_of(std::begin(kFeatures), std::end(kFeatures), [name](const Feature& f) { return f.name == name; });
}

bool is_only_asked_for(std::string_view feature) {
  return std::find(std::begin(kOnlyAskedFor), std::end(kOnlyAskedFor), feature) != std::end(kOnlyAskedFor);
}

std::span<const std::string_view> only_asked_for() { return kOnlyAskedFor; }

std::string feature_of_flag(std::string_view flag) {
  for (const auto& [kernel, compiler] : kOtherNames) {
    if (flag == kernel) return std::string(compiler);
  }
  const std::string wanted = bare(flag);
  const auto* const found = std::find_if(std::begin(kFeatures), std::end(kFeatures),
                                         [&wanted](const Feature& f) { return bare(f.name) == wanted; });
  return found == std::end(kFeatures) ? std::string() : found->name;
}

Cpuid host_cpuid() {
#if defined(__x86_64__)
  return [](uint32_t leaf, uint32_t subleaf) -> std::optional<CpuidAnswer> {
    CpuidAnswer answer;
    if (__get_cpuid_count(leaf, subleaf, &answer.eax, &answer.ebx, &answer.ecx, &answer.edx) == 0) return std::nullopt;
    return answer;
  };
#else
  return [](uint32_t, uint32_t) { return std::optional<CpuidAnswer>(); };
#endif
}

uint64_t host_xcr0() {
#if defined(__x86_64__)
  constexpr uint32_t kOsxsave = uint32_t{1} << 27;
  const auto first = host_cpuid()(1, 0);
  if (!first || (first->ecx & kOsxsave) == 0) return 0;
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
#else
  return 0;
#endif
}

uint64_t host_permitted() {
#if defined(__x86_64__)
  constexpr int kGetSupported = 0x1021;  // ARCH_GET_XCOMP_SUPP, in asm/prctl.h since Linux 5.16
  uint64_t mask = 0;
  return syscall(SYS_arch_prctl, kGetSupported, &mask) == 0 ? mask : 0;
#else
  return 0;
#endif
}

}  // namespace inductorfs::fingerprint
