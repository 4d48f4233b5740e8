// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "content_checks.h"
#include "gpu_target.h"

namespace inductorfs::layout {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachineHost = kElfMachineX86;
#elif defined(__aarch64__)
constexpr uint16_t kMachineHost = kElfMachineAarch64;
#else
#error "a host of this architecture needs its ELF machine number here"
#endif

constexpr size_t kNumberLimit = 4;          // parts of a version
constexpr uint64_t kPartLimit = 1'000'000;  // of one part

/// "2.36" as {2, 36}; nothing for what is no dotted list of numbers.
std::optional<std::vector<uint64_t>> numbers_of(std::string_view text) {
  std::vector<uint64_t> numbers;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('.', begin), text.size());
    if (end == begin || numbers.size() == kNumberLimit) return std::nullopt;
    uint64_t number = 0;
    for (size_t i = begin; i < end; ++i) {
      if (text[i] < '0' || text[i] > '9') return std::nullopt;
      number = number * 10 + static_cast<uint64_t>(text[i] - '0');
      if (number > kPartLimit) return std::nullopt;
    }
    numbers.push_back(number);
    begin = end + 1;
  }
  return numbers;
}

/// A library's versions, and which of them this host has: all up to one.
struct Versions {
  std::string_view prefix;
  std::string_view newest;
};

/// "needs GLIBC_2.38, and this host has 2.36"; empty when it is there.
std::string missing_version(std::string_view version, const HostLimits& host) {
  const Versions libraries[] = {{"GLIBC_", host.glibc}, {"GLIBCXX_", host.glibcxx}, {"CXXABI_", host.cxxabi}};
  // Not a number, but the mark of an object with relative relocations that are packed (ld -z pack-relative-relocs).
  const std::string_view counted = version == "GLIBC_ABI_DT_RELR" ? "GLIBC_2.36" : version;
  for (const Versions& library : libraries) {
    if (!counted.starts_with(library.prefix) || library.newest.empty()) continue;
    const auto needed = numbers_of(counted.substr(library.prefix.size()));
    const auto newest = numbers_of(library.newest);
    // Names such as GLIBC_PRIVATE and CXXABI_TM_1 have no place in this order.
    if (!needed || !newest || *needed <= *newest) return {};
    return "needs " + std::string(version) + ", and this host has " + std::string(library.newest);
  }
  return {};
}

/// 4 for x86-64-v4; 0 when nothing is asked.
unsigned isa_level(uint32_t needed) {
  constexpr unsigned kLevels = 4;
  for (unsigned level = kLevels; level > 0; --level) {
    if ((needed & (1U << (level - 1))) != 0) return level;
  }
  return 0;
}

}  // namespace

Result<void> check_text(const Artefact& artefact) {
  if (artefact.bytes.find('\0') != std::string_view::npos) return corrupt(artefact, "text with a NUL");
  return {};
}

Result<void> check_utf8_text(const Artefact& artefact) {
  INDUCTORFS_TRY(check_text(artefact));
  return is_utf8(artefact.bytes) ? Result<void>{} : corrupt(artefact, "text that is no UTF-8");
}

Result<ElfNeeds> needs_of_binary(const Artefact& artefact, uint16_t type) {
  INDUCTORFS_TRY_ASSIGN(const auto header, read_elf_header(artefact));
  if (header.machine != kMachineHost) return foreign(artefact, "ELF for another machine");
  if (header.type != type) return corrupt(artefact, "ELF of another type");
  return read_elf_needs(artefact);
}

Result<void> check_shared_object(const Artefact& artefact, const HostLimits& host) {
  INDUCTORFS_TRY_ASSIGN(const auto needs, needs_of_binary(artefact, kElfSharedObject));
  return check_elf_needs(artefact, needs, host);
}

Result<void> check_cubin(const Artefact& artefact, const HostLimits& host) {
  INDUCTORFS_TRY_ASSIGN(const auto header, read_elf_header(artefact));
  if (header.machine != kElfMachineCuda) return corrupt(artefact, "ELF for another machine");
  INDUCTORFS_TRY_ASSIGN(const auto target, cubin_target(artefact, header));
  if (host.cuda_architectures.empty() || runs_cubin(target, host.cuda_architectures)) return {};
  return foreign(
      artefact, "for " + target.name() + ", and this host's devices are " + capabilities_text(host.cuda_architectures));
}

Result<void> check_hsaco(const Artefact& artefact) {
  INDUCTORFS_TRY_ASSIGN(const auto header, read_elf_header(artefact));
  if (header.machine != kElfMachineAmdGpu) return corrupt(artefact, "ELF for another machine");
  // It runs on the architecture in its e_flags alone, and no fact of a host names one of AMD's.
  return foreign(artefact, "for an AMD GPU, and of these this release learns no facts");
}

Result<void> check_ptx(const Artefact& artefact, const HostLimits& host) {
  INDUCTORFS_TRY_ASSIGN(const auto target, ptx_target(artefact));
  INDUCTORFS_TRY(check_utf8_text(artefact));
  if (host.cuda_architectures.empty() || runs_ptx(target, host.cuda_architectures)) return {};
  return foreign(
      artefact, "for " + target.name() + ", and this host's devices are " + capabilities_text(host.cuda_architectures));
}

Result<void> check_elf_needs(const Artefact& artefact, const ElfNeeds& needs, const HostLimits& host) {
  constexpr uint32_t kLinux = 0;
  if (needs.operating_system != kLinux) return foreign(artefact, "for another operating system");
  for (const std::string& version : needs.versions) {
    if (const std::string problem = missing_version(version, host); !problem.empty()) return foreign(artefact, problem);
  }
  if (const unsigned level = isa_level(needs.x86_isa); host.x86_isa_level != 0 && level > host.x86_isa_level) {
    return foreign(artefact, "needs x86-64-v" + std::to_string(level) + ", and this host is x86-64-v" +
                                 std::to_string(host.x86_isa_level));
  }
  // With a search path of its own only the loader can tell.
  if (!host.resolves || needs.own_search_path) return {};
  for (const std::string& library : needs.libraries) {
    if (!host.resolves(library)) return foreign(artefact, "needs " + library + ", which this host does not have");
  }
  return {};
}

}  // namespace inductorfs::layout
