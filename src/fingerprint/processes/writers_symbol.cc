// SPDX-License-Identifier: Apache-2.0
#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <bit>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "fingerprint/processes/writers_process.h"
#include "inductorfs/base/fd.h"

namespace inductorfs::fingerprint {
namespace {

/// python's own table has 3,000 symbols, a program that exports all of LLVM 200,000.
constexpr uint64_t kTableLimit = uint64_t{16} << 20;
constexpr uint16_t kHeaderLimit = 4096;
constexpr unsigned char kOurData = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;

template <typename T>
bool read_at(int fd, uint64_t offset, T* out, size_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  const size_t size = count * sizeof(T);
  const auto got = pread_full(fd, reinterpret_cast<char*>(out), size, offset);
  return got && *got == size;
}

/// The address for which the file's first byte is meant; empty when no segment holds it.
std::optional<uint64_t> first_address(int fd, const Elf64_Ehdr& header) {
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > kHeaderLimit) return std::nullopt;
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  if (!read_at(fd, header.e_phoff, segments.data(), segments.size())) return std::nullopt;
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type == PT_LOAD && segment.p_offset == 0) return segment.p_vaddr;
  }
  return std::nullopt;
}

bool is_environ(std::string_view names, uint32_t at) {
  if (at >= names.size()) return false;
  const std::string_view rest = names.substr(at);
  const std::string_view name = rest.substr(0, rest.find('\0'));
  return name == "environ" || name == "__environ" || name == "_environ";
}

/// The value of the symbol in one table of dynamic symbols.
std::optional<uint64_t> find_in_table(int fd, const Elf64_Shdr& table, const Elf64_Shdr& strings) {
  if (table.sh_entsize != sizeof(Elf64_Sym) || table.sh_size > kTableLimit || strings.sh_size > kTableLimit) {
    return std::nullopt;
  }
  std::vector<Elf64_Sym> symbols(table.sh_size / sizeof(Elf64_Sym));
  std::string names(strings.sh_size, '\0');
  if (!read_at(fd, table.sh_offset, symbols.data(), symbols.size()) ||
      !read_at(fd, strings.sh_offset, names.data(), names.size())) {
    return std::nullopt;
  }
  for (const Elf64_Sym& symbol : symbols) {
    if (symbol.st_shndx != SHN_UNDEF && is_environ(names, symbol.st_name)) return symbol.st_value;
  }
  return std::nullopt;
}

std::optional<uint64_t> find_value(int fd, const Elf64_Ehdr& header) {
  if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shnum > kHeaderLimit) return std::nullopt;
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  if (!read_at(fd, header.e_shoff, sections.data(), sections.size())) return std::nullopt;
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type == SHT_DYNSYM && section.sh_link < sections.size()) {
      return find_in_table(fd, section, sections[section.sh_link]);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<SymbolPlace> find_environ(const Fd& fd) {
  Elf64_Ehdr header;
  if (!read_at(fd.get(), 0, &header, 1) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != kOurData) {
    return std::nullopt;
  }
  const auto value = find_value(fd.get(), header);
  if (!value) return std::nullopt;
  if (header.e_type == ET_EXEC) return SymbolPlace{true, *value};
  const auto first = first_address(fd.get(), header);
  if (!first || *value < *first) return std::nullopt;
  return SymbolPlace{false, *value - *first};
}

}  // namespace inductorfs::fingerprint
