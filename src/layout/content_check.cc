// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string>
#include <string_view>

#include "inductorfs/codec/digest.h"
#include "inductorfs/layout/layout.h"
#include "json_text.h"
#include "system_autotune.h"

namespace inductorfs::layout {
namespace {

/// Deeper and larger than any metadata, tuning or list of timings that was seen.
constexpr JsonLimits kMetadataLimits{.bytes = size_t{8} << 20U, .depth = 32, .values = size_t{1} << 18U};

constexpr uint16_t kRelocatable = 1;   // ET_REL
constexpr uint16_t kSharedObject = 3;  // ET_DYN
constexpr uint16_t kAnyType = 0;
constexpr uint16_t kMachineCuda = 190;    // EM_CUDA
constexpr uint16_t kMachineAmdGpu = 224;  // EM_AMDGPU
#if defined(__x86_64__)
constexpr uint16_t kMachineHost = 62;  // EM_X86_64
#elif defined(__aarch64__)
constexpr uint16_t kMachineHost = 183;  // EM_AARCH64
#else
#error "a host of this architecture needs its ELF machine number here"
#endif

/// What a check looks at. Immutable after construction.
struct Content {
  std::string_view name;   ///< the path's last component
  std::string_view bytes;  ///< all, or the first part
  uint64_t size = 0;
  [[nodiscard]] bool whole() const { return bytes.size() == size; }
};

tl::unexpected<Error> corrupt(const Content& content, std::string_view what) {
  return fail(ErrorCode::kCorrupt, std::string(content.name) + ": " + std::string(what));
}

uint64_t little_endian(std::string_view bytes, size_t at, size_t length) {
  uint64_t value = 0;
  for (size_t i = length; i > 0; --i) value = (value << 8U) | static_cast<uint8_t>(bytes[at + i - 1]);
  return value;
}

/// A table of `count` records of `record` bytes at `offset` lies within `size`.
bool table_fits(uint64_t offset, uint64_t record, uint64_t count, uint64_t size) {
  return offset <= size && record * count <= size - offset;
}

/// ELF, 64 bit, little endian, of this type and machine, and not cut off: linkers put the table of sections, or for a
/// cubin that of segments, at the end.
Result<void> check_elf(const Content& content, uint16_t type, uint16_t machine) {
  constexpr size_t kHeaderSize = 64;
  constexpr std::string_view kMagic64LittleEndian = "\177ELF\2\1";
  if (content.bytes.size() < kHeaderSize || !content.bytes.starts_with(kMagic64LittleEndian)) {
    return corrupt(content, "no 64-bit little-endian ELF");
  }
  const auto field = [&content](size_t at, size_t length) { return little_endian(content.bytes, at, length); };
  if (type != kAnyType && field(16, 2) != type) return corrupt(content, "ELF of another type");
  if (field(18, 2) != machine) return corrupt(content, "ELF for another machine");
  const bool segments = table_fits(field(32, 8), field(54, 2), field(56, 2), content.size);
  const bool sections = table_fits(field(40, 8), field(58, 2), field(60, 2), content.size);
  if (!segments || !sections) return corrupt(content, "ELF is cut off");
  return {};
}

Result<void> check_json_object(const Content& content) {
  if (!content.whole()) {
    return content.bytes.starts_with('{') ? Result<void>{} : corrupt(content, "no JSON object");
  }
  const auto document = parse_json(content.bytes, kMetadataLimits);
  if (!document) return corrupt(content, document.error().what());
  if (!document->is_object()) return corrupt(content, "no JSON object");
  return {};
}

/// A file that a crash of its host tore has zeros where its bytes were; Python refuses source with a NUL by an
/// exception that torch does not catch.
Result<void> check_text(const Content& content) {
  if (content.bytes.find('\0') != std::string_view::npos) return corrupt(content, "text with a NUL");
  return {};
}

Result<void> check_pickle(const Content& content) {
  constexpr char kProtocol = '\x80';
  constexpr char kStop = '.';
  if (!content.bytes.starts_with(kProtocol)) return corrupt(content, "no pickle");
  if (content.whole() && !content.bytes.ends_with(kStop)) return corrupt(content, "pickle is cut off");
  return {};
}

/// The name is the hash of the bytes, so nothing else is asked: not even that they are a pickle, which a later torch
/// may wrap.
Result<void> check_content_name(const Content& content) {
  if (!content.whole()) return fail(ErrorCode::kInvalid, "the check needs every byte");
  if (codec::torch_hash(content.bytes) != content.name) return corrupt(content, "is not the hash of its content");
  return {};
}

Result<void> check_ptx(const Content& content) {
  const bool known = content.bytes.find(".version") != std::string_view::npos &&
                     content.bytes.find(".target") != std::string_view::npos;
  if (!known) return corrupt(content, "no PTX: .version or .target is missing");
  return check_text(content);
}

Result<void> check_triton_file(const Content& content) {
  if (content.name.ends_with(".json")) return check_json_object(content);
  if (content.name.ends_with(".cubin")) return check_elf(content, kAnyType, kMachineCuda);
  if (content.name.ends_with(".hsaco")) return check_elf(content, kAnyType, kMachineAmdGpu);
  if (content.name.ends_with(".ptx")) return check_ptx(content);
  for (const std::string_view text : {".source", ".ttir", ".ttgir", ".llir", ".amdgcn"}) {
    if (content.name.ends_with(text)) return check_text(content);
  }
  return {};
}

Result<void> check_system_autotune(const Content& content) {
  if (!content.whole()) return fail(ErrorCode::kInvalid, "the check needs every byte");
  const auto document = parse_system_autotune(content.bytes);
  if (!document) return corrupt(content, document.error().what());
  const JsonValue* hash = document->find("system")->find("hash");
  if (hash == nullptr || !hash->is_string() || hash->text != content.name) {
    return corrupt(content, "has the timings of another system");
  }
  return {};
}

Result<void> check_cpp_binary(const Content& content) {
  return check_elf(content, content.name.ends_with(".so") ? kSharedObject : kRelocatable, kMachineHost);
}

Result<void> check_precompiled_header(const Content& content) {
  if (!content.name.ends_with(".gch")) return check_text(content);
  return content.bytes.starts_with("gpch") ? Result<void>{} : corrupt(content, "no precompiled header of g++");
}

}  // namespace

bool needs_whole(Family family) {
  return family == Family::kFxGraph || family == Family::kAotAutograd || family == Family::kAotAutogradEntry ||
         family == Family::kBestConfig || family == Family::kSystemAutotune || family == Family::kTritonAutotune;
}

Result<void> check_content(const Place& place, std::string_view bytes, uint64_t size) {
  const size_t slash = place.canonical.rfind('/');
  const std::string_view name = std::string_view(place.canonical).substr(slash == std::string::npos ? 0 : slash + 1);
  const Content content{name, bytes, size};
  if (bytes.size() > size) return fail(ErrorCode::kInvalid, "more bytes than the size says");
  if (place.family == Family::kVecIsaMarker) {
    return size == 0 ? Result<void>{} : corrupt(content, "a marker has no content");
  }
  if (!rule_of(place.family).shared) return {};
  if (size == 0) return corrupt(content, "is empty");
  switch (place.family) {
    case Family::kFxGraph:
    case Family::kAotAutograd:
      return check_content_name(content);
    case Family::kAotAutogradEntry:
      return check_pickle(content);
    case Family::kGeneratedCode:
    case Family::kCppSource:
      return check_text(content);
    case Family::kBestConfig:
    case Family::kTritonAutotune:
      return check_json_object(content);
    case Family::kCppBinary:
      return check_cpp_binary(content);
    case Family::kPrecompiledHeader:
      return check_precompiled_header(content);
    case Family::kSystemAutotune:
      return check_system_autotune(content);
    case Family::kTritonKernel:
      return check_triton_file(content);
    case Family::kTritonLauncher:
      return check_elf(content, kSharedObject, kMachineHost);
    case Family::kVecIsaMarker:
    case Family::kKernelPerf:
    case Family::kDynamo:
    case Family::kObjectCache:
    case Family::kCutlass:
    case Family::kHalide:
    case Family::kAotInductor:
    case Family::kGenericCache:
    case Family::kLock:
    case Family::kTemporary:
    case Family::kTool:
    case Family::kOther:
      return {};
  }
  return {};
}

}  // namespace inductorfs::layout
