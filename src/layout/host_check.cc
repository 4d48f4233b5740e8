// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "content_checks.h"

namespace inductorfs::layout {
namespace {

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
