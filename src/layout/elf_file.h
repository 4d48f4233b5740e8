// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "artefact.h"

/// Reads from an ELF file what it needs of the host. The bytes are untrusted: everything is checked against their end
/// and against limits. The functions are pure; safe for concurrent use.
namespace inductorfs::layout {

/// The fields of the file header that checks use. Immutable after construction.
struct ElfHeader {
  uint16_t type = 0;
  uint16_t machine = 0;
  uint8_t os_abi = 0;
  uint8_t abi_version = 0;
  uint32_t flags = 0;
};
/// Reads the header. kCorrupt unless it is ELF of 64 bit and little endian, whose tables of segments and of sections
/// lie within the size: linkers put one of the tables at the end, so that a file that was cut off is detected.
[[nodiscard]] Result<ElfHeader> read_elf_header(const Artefact& artefact);

/// What a dynamic object needs of the host. Immutable after construction.
struct ElfNeeds {
  std::vector<std::string> libraries;  ///< DT_NEEDED
  std::vector<std::string> versions;   ///< "GLIBC_2.34", "GLIBCXX_3.4.29", ... (.gnu.version_r)
  bool own_search_path = false;        ///< DT_RPATH or DT_RUNPATH: only the loader knows where it then looks
  uint32_t x86_isa = 0;                ///< GNU_PROPERTY_X86_ISA_1_NEEDED: bit n is x86-64-v<n+1>
  uint32_t operating_system = 0;       ///< from the GNU ABI note; 0 is Linux, also when there is no note
};
/// Reads the needs of a whole file whose header read_elf_header() accepted. kCorrupt when something that the header
/// points to does not lie within the bytes.
[[nodiscard]] Result<ElfNeeds> read_elf_needs(const Artefact& artefact);

/// Returns the names of the sections of a whole file whose header read_elf_header() accepted; none if it was stripped
/// of them. kCorrupt when a name does not lie within the bytes. The names lie in the artefact's bytes.
[[nodiscard]] Result<std::vector<std::string_view>> read_section_names(const Artefact& artefact);

inline constexpr uint16_t kElfRelocatable = 1;       // ET_REL
inline constexpr uint16_t kElfSharedObject = 3;      // ET_DYN
inline constexpr uint16_t kElfMachineX86 = 62;       // EM_X86_64
inline constexpr uint16_t kElfMachineAarch64 = 183;  // EM_AARCH64
inline constexpr uint16_t kElfMachineCuda = 190;     // EM_CUDA
inline constexpr uint16_t kElfMachineAmdGpu = 224;   // EM_AMDGPU

}  // namespace inductorfs::layout
