// SPDX-License-Identifier: Apache-2.0
#include "gpu_target.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace inductorfs::layout {
namespace {

/// The first ABI version of cubins that has the architecture in bits 8 to 23 of e_flags: sm_100 since CUDA 12.8, all
/// since 13. Before it stands in bits 0 to 7, with the PTX's in bits 16 to 23.
constexpr uint8_t kWideAbi = 8;
constexpr uint32_t kNarrowExact = 0x800;  // EF_CUDA_ACCELERATORS_V1
constexpr uint32_t kWideExact = 0x8;      // EF_CUDA_ACCELERATORS; CUDA 13 says it in .nv.compat instead
constexpr int kFirstArchitecture = 20;
constexpr int kLastArchitecture = 999;

constexpr uint64_t kSectionSize = 64;
constexpr uint32_t kSectionCompatibility = 0x70000086;  // SHT_CUDA_COMPAT_INFO, .nv.compat

/// .nv.compat of CUDA 12.8 and later is a list of attributes: form, number, and two bytes of value, or of the length of
/// the value that follows. Read from cubins of ptxas 12.8 to 13.4, and compared with what cuobjdump says of them.
constexpr uint8_t kFormLong = 4;              // EIFMT_SVAL
constexpr uint8_t kAttributeExactTarget = 9;  // EICOMPAT_ATTR_CUDA_ACCELERATOR_TARGET
constexpr uint64_t kAttributeSize = 4;

/// Integrated GPUs: their code runs on no other GPU, nor another's on them (CUDA programming guide, binary
/// compatibility). Their devices are sold as Jetson and DRIVE.
constexpr int kIntegrated[] = {53, 62, 72, 87, 101, 110};

bool is_integrated(int architecture) {
  return std::find(std::begin(kIntegrated), std::end(kIntegrated), architecture) != std::end(kIntegrated);
}

/// Whether the attribute list says that the code is for one architecture alone.
Result<bool> is_exact_in(const Artefact& artefact, Reader& reader, uint64_t begin, uint64_t size) {
  const uint64_t end = begin + size;
  for (uint64_t at = begin; end - at >= kAttributeSize;) {
    const uint64_t form = reader.number(at, 1);
    const uint64_t value = reader.number(at + 2, 2);
    if (reader.number(at + 1, 1) == kAttributeExactTarget && form != kFormLong) return (value & 0xffU) != 0;
    const uint64_t length = kAttributeSize + (form == kFormLong ? value : 0);
    if (length > end - at) return corrupt(artefact, "cubin: an attribute is longer than its section");
    at += length;
  }
  return false;
}

Result<bool> says_exact(const Artefact& artefact) {
  if (!artefact.whole()) return wants_whole();
  Reader reader(artefact.bytes);
  const uint64_t table = reader.number(40, 8);
  const uint64_t count = reader.number(60, 2);
  if (count > 0 && reader.number(58, 2) != kSectionSize) return corrupt(artefact, "cubin: sections of an unknown form");
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t at = table + i * kSectionSize;
    if (reader.number(at + 4, 4) != kSectionCompatibility) continue;
    const uint64_t offset = reader.number(at + 24, 8);
    const uint64_t size = reader.number(at + 32, 8);
    if (!reader.has(offset, size)) return corrupt(artefact, "cubin is cut off: a section lies beyond its end");
    return is_exact_in(artefact, reader, offset, size);
  }
  return false;
}

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/// The text behind a directive that stands first in a line: `.target sm_90a // comment` gives "sm_90a".
std::optional<std::string_view> directive(std::string_view text, std::string_view name) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    while (!line.empty() && is_space(line.front())) line.remove_prefix(1);
    if (!line.starts_with(name) || line.size() == name.size() || !is_space(line[name.size()])) continue;
    line.remove_prefix(name.size());
    line = line.substr(0, line.find("//"));
    while (!line.empty() && is_space(line.front())) line.remove_prefix(1);
    while (!line.empty() && is_space(line.back())) line.remove_suffix(1);
    return line;
  }
  return std::nullopt;
}

/// Digits only, at most three; nothing else.
std::optional<int> small_number(std::string_view text) {
  if (text.empty() || text.size() > 3) return std::nullopt;
  int value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

bool is_version(std::string_view text) {
  const size_t point = text.find('.');
  return point != std::string_view::npos && small_number(text.substr(0, point)) && small_number(text.substr(point + 1));
}

std::optional<CudaTarget> target_from_name(std::string_view name) {
  constexpr std::string_view kPrefix = "sm_";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  CudaTarget target;
  if (name.ends_with('a')) target.kind = CudaTarget::Kind::kExact;
  if (name.ends_with('f')) target.kind = CudaTarget::Kind::kFamily;
  if (target.kind != CudaTarget::Kind::kPlain) name.remove_suffix(1);
  const auto number = small_number(name);
  if (!number || *number < kFirstArchitecture) return std::nullopt;
  target.architecture = *number;
  return target;
}

}  // namespace

std::string CudaTarget::name() const {
  const char* suffix = kind == Kind::kExact ? "a" : kind == Kind::kFamily ? "f" : "";
  return "sm_" + std::to_string(architecture) + suffix;
}

Result<CudaTarget> cubin_target(const Artefact& artefact, const ElfHeader& header) {
  const bool wide = header.abi_version >= kWideAbi;
  CudaTarget target;
  target.architecture = static_cast<int>(wide ? (header.flags >> 8U) & 0xffffU : header.flags & 0xffU);
  if (target.architecture < kFirstArchitecture || target.architecture > kLastArchitecture) {
    return corrupt(artefact, "cubin for no known architecture");
  }
  bool exact = (header.flags & (wide ? kWideExact : kNarrowExact)) != 0;
  if (wide && !exact) {
    INDUCTORFS_TRY_ASSIGN(const auto said, says_exact(artefact));
    exact = said;
  }
  if (exact) target.kind = CudaTarget::Kind::kExact;
  return target;
}

bool runs_cubin(const CudaTarget& target, std::span<const int> architectures) {
  return std::any_of(architectures.begin(), architectures.end(), [&target](int device) {
    const bool alone =
        target.kind == CudaTarget::Kind::kExact || is_integrated(target.architecture) || is_integrated(device);
    if (alone) return device == target.architecture;
    return device / 10 == target.architecture / 10 && device >= target.architecture;
  });
}

Result<CudaTarget> ptx_target(const Artefact& artefact) {
  const auto version = directive(artefact.bytes, ".version");
  const auto names = directive(artefact.bytes, ".target");
  if (!version || !names) return corrupt(artefact, "no PTX: .version or .target is missing");
  if (!is_version(*version)) return corrupt(artefact, "PTX: its .version is no version");
  // `.target sm_90a, texmode_independent`
  std::string_view name = names->substr(0, names->find(','));
  while (!name.empty() && is_space(name.back())) name.remove_suffix(1);
  const auto target = target_from_name(name);
  if (!target) return corrupt(artefact, "PTX: its .target names no architecture");
  return *target;
}

bool runs_ptx(const CudaTarget& target, std::span<const int> architectures) {
  return std::any_of(architectures.begin(), architectures.end(), [&target](int device) {
    if (target.kind == CudaTarget::Kind::kExact) return device == target.architecture;
    const bool family = target.kind == CudaTarget::Kind::kFamily;
    return device >= target.architecture && (!family || device / 10 == target.architecture / 10);
  });
}

std::string capability_text(int architecture) {
  return std::to_string(architecture / 10) + "." + std::to_string(architecture % 10);
}

std::string capabilities_text(std::span<const int> architectures) {
  std::string text;
  for (const int architecture : architectures) text += (text.empty() ? "" : ", ") + capability_text(architecture);
  return text;
}

}  // namespace inductorfs::layout
