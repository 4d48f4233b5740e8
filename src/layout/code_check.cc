// SPDX-License-Identifier: Apache-2.0
#include <string_view>

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

}  // namespace inductorfs::layout
