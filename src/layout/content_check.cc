// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "content.h"
#include "elf_file.h"
#include "gpu_target.h"
#include "host_check.h"
#include "inductorfs/codec/digest.h"
#include "json_check.h"
#include "json_text.h"
#include "name_shapes.h"
#include "pickle_frame.h"

namespace inductorfs::layout {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachineHost = kElfMachineX86;
#elif defined(__aarch64__)
constexpr uint16_t kMachineHost = kElfMachineAarch64;
#else
#error "a host of this architecture needs its ELF machine number here"
#endif

/// Enough for the checks of families that are not checked whole.
constexpr uint64_t kHeadSize = 64ULL * 1024;

/// A file that a crash of its host tore has zeros where its bytes were; Python refuses source with a NUL by an
/// exception that torch does not catch.
Result<void> check_text(const Content& content) {
  if (content.bytes.find('\0') != std::string_view::npos) return corrupt(content, "text with a NUL");
  return {};
}

/// Triton reads its texts with Path.read_text(), which raises for what is no UTF-8.
Result<void> check_triton_text(const Content& content) {
  INDUCTORFS_TRY(check_text(content));
  return is_utf8(content.bytes) ? Result<void>{} : corrupt(content, "text that is no UTF-8");
}

constexpr char kPickleProtocol = '\x80';

Result<void> check_pickle(const Content& content) {
  if (auto whole = check_pickle_frame(content.bytes); !whole) return corrupt(content, whole.error().what());
  return {};
}

/// The name is the hash of the bytes. A pickle has to be a whole one too; what does not begin as one is taken by its
/// name, for a later torch may wrap its pickles.
Result<void> check_candidate(const Content& content) {
  if (codec::torch_hash(content.bytes) != content.name) return corrupt(content, "is not the hash of its content");
  return content.bytes.front() == kPickleProtocol ? check_pickle(content) : Result<void>{};
}

/// str.strip() of Python, for the white space of ASCII: nothing else was seen at the ends of generated source.
std::string_view stripped(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\v\f\r\x1c\x1d\x1e\x1f";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

/// codecache.py: write() names a source by code_hash(content.strip(), extra). Everything that a graph refers to is
/// written without `extra`; only a candidate of max-autotune is written with one (select_algorithm.py: TritonTemplate,
/// generate_and_load: the values of its tuning parameters), and no part of the file holds it as it was hashed.
Result<void> check_generated_code(const Content& content) {
  constexpr std::string_view kTemplate = "triton_heuristics.template(";
  INDUCTORFS_TRY(check_text(content));
  const std::string name = "c" + codec::torch_hash(stripped(content.bytes)) + ".py";
  if (name == content.name || content.bytes.find(kTemplate) != std::string_view::npos) return {};
  return corrupt(content, "is not the hash of its content");
}

Result<void> check_binary(const Content& content, uint16_t type, const HostLimits& host) {
  INDUCTORFS_TRY_ASSIGN(const auto header, read_elf_header(content));
  if (header.machine != kMachineHost) return foreign(content, "ELF for another machine");
  if (header.type != type) return corrupt(content, "ELF of another type");
  INDUCTORFS_TRY_ASSIGN(const auto needs, read_elf_needs(content));
  return check_elf_needs(content, needs, host);
}

Result<void> check_cubin(const Content& content, const HostLimits& host) {
  INDUCTORFS_TRY_ASSIGN(const auto header, read_elf_header(content));
  if (header.machine != kElfMachineCuda) return corrupt(content, "ELF for another machine");
  INDUCTORFS_TRY_ASSIGN(const auto target, cubin_target(content, header));
  if (host.cuda_architectures.empty() || runs_cubin(target, host.cuda_architectures)) return {};
  return foreign(
      content, "for " + target.name() + ", and this host's devices are " + capabilities_text(host.cuda_architectures));
}

Result<void> check_hsaco(const Content& content) {
  INDUCTORFS_TRY_ASSIGN(const auto header, read_elf_header(content));
  return header.machine == kElfMachineAmdGpu ? Result<void>{} : corrupt(content, "ELF for another machine");
}

Result<void> check_ptx(const Content& content, const HostLimits& host) {
  INDUCTORFS_TRY_ASSIGN(const auto target, ptx_target(content));
  INDUCTORFS_TRY(check_triton_text(content));
  if (host.cuda_architectures.empty() || runs_ptx(target, host.cuda_architectures)) return {};
  return foreign(
      content, "for " + target.name() + ", and this host's devices are " + capabilities_text(host.cuda_architectures));
}

/// The path's last component but one: a group's key.
std::string_view key_of(const Place& place) {
  const std::string_view directory = place.key_directory;
  return directory.substr(directory.rfind('/') + 1);
}

/// Either form: as a writer made it, or as the cluster has it.
Result<void> check_group(const Place& place, const Content& content) {
  const auto written = group_children(content.bytes, key_of(place));
  if (written) return {};
  if (render_group(content.bytes, "/" + std::string(key_of(place)))) return {};
  return corrupt(content, written.error().what());
}

Result<void> check_triton_file(const Place& place, const Content& content, const HostLimits& host) {
  if (is_group_file(content.name)) return check_group(place, content);
  if (content.name.ends_with(".json")) return check_triton_metadata(content);
  if (content.name.ends_with(".cubin")) return check_cubin(content, host);
  if (content.name.ends_with(".hsaco")) return check_hsaco(content);
  if (content.name.ends_with(".ptx")) return check_ptx(content, host);
  for (const std::string_view text : {".source", ".ttir", ".ttgir", ".llir", ".amdgcn"}) {
    if (content.name.ends_with(text)) return check_triton_text(content);
  }
  return {};
}

Result<void> check_precompiled_header(const Content& content) {
  if (!content.name.ends_with(".gch")) return check_text(content);
  return content.bytes.starts_with("gpch") ? Result<void>{} : corrupt(content, "no precompiled header of g++");
}

Result<void> check_family(const Place& place, const Content& content, const HostLimits& host) {
  switch (place.family) {
    case Family::kFxGraph:
    case Family::kAotAutograd:
      return check_candidate(content);
    case Family::kAotAutogradEntry:
      return check_pickle(content);
    case Family::kGeneratedCode:
      return check_generated_code(content);
    case Family::kCppSource:
      return check_text(content);
    case Family::kBestConfig:
      return check_best_config(content);
    case Family::kTritonAutotune:
      return check_triton_autotune(content);
    case Family::kCppBinary:
      return check_binary(content, content.name.ends_with(".so") ? kElfSharedObject : kElfRelocatable, host);
    case Family::kPrecompiledHeader:
      return check_precompiled_header(content);
    case Family::kSystemAutotune:
      return check_system_autotune(content);
    case Family::kTritonKernel:
      return check_triton_file(place, content, host);
    case Family::kTritonLauncher:
      return check_binary(content, kElfSharedObject, host);
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
      break;
  }
  return {};  // nothing is known of what these hold: an operator who shares one vouches for it
}

}  // namespace

bool needs_whole(Family family) {
  constexpr std::array kHeadOnly = {Family::kPrecompiledHeader, Family::kVecIsaMarker};
  if (family > Family::kTritonAutotune) return false;
  return family != Family::kKernelPerf && std::find(kHeadOnly.begin(), kHeadOnly.end(), family) == kHeadOnly.end();
}

uint64_t bytes_to_check(const Place& place, uint64_t size) {
  return needs_whole(place.family) ? size : std::min(size, kHeadSize);
}

Result<void> check_content(const Place& place, std::string_view bytes, uint64_t size) {
  return check_content(place, bytes, size, HostLimits());
}

Result<void> check_content(const Place& place, std::string_view bytes, uint64_t size, const HostLimits& host) {
  const size_t slash = place.canonical.rfind('/');
  const std::string_view name = std::string_view(place.canonical).substr(slash == std::string::npos ? 0 : slash + 1);
  const Content content{name, bytes, size};
  if (bytes.size() > size) return fail(ErrorCode::kInvalid, "more bytes than the size says");
  if (!rule_of(place.family).shared) return {};
  if (place.family == Family::kVecIsaMarker) {
    return size == 0 ? Result<void>{} : corrupt(content, "a marker has no content");
  }
  if (size == 0) return corrupt(content, "is empty");
  if (needs_whole(place.family) && !content.whole()) return wants_whole();
  return check_family(place, content, host);
}

}  // namespace inductorfs::layout
