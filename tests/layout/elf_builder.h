// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

/// ELF files as assemblers and ptxas make them, with exactly what a test asks for; linked ones are in shared_object.h.
namespace inductorfs::layout::samples {

#if defined(__x86_64__)
inline constexpr uint16_t kHostMachine = EM_X86_64;
inline constexpr uint16_t kForeignMachine = EM_AARCH64;
#else
inline constexpr uint16_t kHostMachine = EM_AARCH64;
inline constexpr uint16_t kForeignMachine = EM_X86_64;
#endif
inline constexpr uint16_t kMachineCuda = 190;
inline constexpr uint32_t kCudaCompatibility = 0x70000086;

template <typename Record>
std::string bytes_of(const Record& record) {
  return {reinterpret_cast<const char*>(&record), sizeof record};
}

/// A note of the GNU toolchain.
inline std::string gnu_note(uint32_t type, const std::string& content) {
  Elf64_Nhdr header{};
  header.n_namesz = 4;
  header.n_descsz = static_cast<Elf64_Word>(content.size());
  header.n_type = type;
  return bytes_of(header) + std::string("GNU\0", 4) + content + std::string((4 - content.size() % 4) % 4, '\0');
}

/// NT_GNU_PROPERTY_TYPE_0 with one property of four bytes.
inline std::string property_note(uint32_t type, uint32_t value) {
  const uint32_t size = 4;
  return gnu_note(5, bytes_of(type) + bytes_of(size) + bytes_of(value) + std::string(4, '\0'));
}

/// A file of sections only: an object file, or a cubin.
struct Sections {
  uint16_t type = ET_REL;
  uint16_t machine = kHostMachine;
  uint8_t os_abi = 0;
  uint8_t abi_version = 0;
  uint32_t flags = 0;
  std::vector<std::pair<uint32_t, std::string>> sections;  ///< type, content
  std::vector<std::string> names;                          ///< of the sections; none: a stripped file

  [[nodiscard]] std::string build() const {
    Elf64_Ehdr header{};
    std::string("\177ELF\2\1\1").copy(reinterpret_cast<char*>(header.e_ident), 7);
    header.e_ident[EI_OSABI] = os_abi;
    header.e_ident[EI_ABIVERSION] = abi_version;
    header.e_type = type;
    header.e_machine = machine;
    header.e_flags = flags;
    header.e_ehsize = sizeof header;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = static_cast<Elf64_Half>(sections.size() + 1);
    std::string contents;
    std::string table = bytes_of(Elf64_Shdr{});
    for (const auto& [section_type, content] : sections) {
      Elf64_Shdr section{};
      section.sh_type = section_type;
      section.sh_offset = sizeof header + contents.size();
      section.sh_size = content.size();
      contents += content;
      table += bytes_of(section);
    }
    if (!names.empty()) add_names(header, contents, table);
    header.e_shoff = sizeof header + contents.size();
    return bytes_of(header) + contents + table;
  }

 private:
  /// A last section with the names of all.
  void add_names(Elf64_Ehdr& header, std::string& contents, std::string& table) const {
    std::string strings(1, '\0');
    for (size_t i = 0; i < names.size(); ++i) {
      const auto at = static_cast<Elf64_Word>(strings.size());
      bytes_of(at).copy(table.data() + (i + 1) * sizeof(Elf64_Shdr), sizeof at);
      strings += names[i] + '\0';
    }
    Elf64_Shdr section{};
    section.sh_type = SHT_STRTAB;
    section.sh_offset = sizeof header + contents.size();
    section.sh_size = strings.size();
    header.e_shstrndx = header.e_shnum++;
    contents += strings;
    table += bytes_of(section);
  }
};

/// A cubin as ptxas writes it: the ABI version, e_flags, and .nv.compat where there is one.
inline std::string cubin(uint8_t abi_version, uint32_t flags, const std::string& compatibility = {}) {
  Sections file;
  file.type = ET_EXEC;
  file.machine = kMachineCuda;
  file.abi_version = abi_version;
  file.flags = flags;
  file.sections = {{SHT_NOTE, std::string(12, 'n')}};
  if (!compatibility.empty()) file.sections.emplace_back(kCudaCompatibility, compatibility);
  return file.build();
}

}  // namespace inductorfs::layout::samples
