// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "elf_builder.h"

namespace inductorfs::layout::samples {

/// A shared object as a linker makes it, with exactly what a test asks for.
struct SharedObject {
  std::vector<std::string> libraries;
  std::vector<std::pair<std::string, std::vector<std::string>>> versions;  ///< library, its versions
  std::string run_path;
  std::string notes;
  uint16_t type = ET_DYN;
  uint16_t machine = kHostMachine;

  /// Mapped away from its place in the file, so that addresses and offsets are not the same.
  static constexpr uint64_t kBase = 0x10000;

  [[nodiscard]] std::string build() const {
    std::string strings(1, '\0');
    const auto add = [&strings](const std::string& text) {
      const size_t at = strings.size();
      strings += text + '\0';
      return at;
    };
    std::string dynamic;
    const auto entry = [&dynamic](uint64_t tag, uint64_t value) { dynamic += bytes_of(tag) + bytes_of(value); };
    for (const std::string& library : libraries) entry(DT_NEEDED, add(library));
    if (!run_path.empty()) entry(DT_RUNPATH, add(run_path));
    std::string needed;
    for (size_t i = 0; i < versions.size(); ++i) {
      const bool last = i + 1 == versions.size();
      const size_t count = versions[i].second.size();
      Elf64_Verneed need{};
      need.vn_version = 1;
      need.vn_cnt = static_cast<Elf64_Half>(count);
      need.vn_file = static_cast<Elf64_Word>(add(versions[i].first));
      need.vn_aux = sizeof need;
      need.vn_next = last ? 0 : static_cast<Elf64_Word>(sizeof need + count * sizeof(Elf64_Vernaux));
      needed += bytes_of(need);
      for (size_t k = 0; k < count; ++k) {
        Elf64_Vernaux version{};
        version.vna_name = static_cast<Elf64_Word>(add(versions[i].second[k]));
        version.vna_next = k + 1 == count ? 0 : sizeof version;
        needed += bytes_of(version);
      }
    }
    constexpr size_t kSegments = 3;
    const uint64_t strings_at = sizeof(Elf64_Ehdr) + kSegments * sizeof(Elf64_Phdr);
    const uint64_t versions_at = strings_at + strings.size();
    entry(DT_STRTAB, kBase + strings_at);
    entry(DT_STRSZ, strings.size());
    if (!versions.empty()) {
      entry(DT_VERNEED, kBase + versions_at);
      entry(DT_VERNEEDNUM, versions.size());
    }
    entry(DT_NULL, 0);
    const uint64_t dynamic_at = versions_at + needed.size();
    const uint64_t notes_at = dynamic_at + dynamic.size();

    Elf64_Ehdr header{};
    std::string("\177ELF\2\1\1").copy(reinterpret_cast<char*>(header.e_ident), 7);
    header.e_type = type;
    header.e_machine = machine;
    header.e_ehsize = sizeof header;
    header.e_phoff = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = kSegments;
    const uint64_t end = notes_at + notes.size();
    return bytes_of(header) + segment(PT_LOAD, 0, end) + segment(PT_DYNAMIC, dynamic_at, dynamic.size()) +
           segment(PT_NOTE, notes_at, notes.size()) + strings + needed + dynamic + notes;
  }

 private:
  static std::string segment(uint32_t type, uint64_t offset, uint64_t size) {
    Elf64_Phdr segment{};
    segment.p_type = type;
    segment.p_offset = offset;
    segment.p_vaddr = kBase + offset;
    segment.p_filesz = size;
    segment.p_memsz = size;
    return bytes_of(segment);
  }
};

}  // namespace inductorfs::layout::samples
