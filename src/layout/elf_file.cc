// SPDX-License-Identifier: Apache-2.0
#include "elf_file.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace inductorfs::layout {
namespace {

constexpr uint64_t kHeaderSize = 64;
constexpr uint64_t kSegmentSize = 56;
constexpr uint64_t kSectionSize = 64;
constexpr uint64_t kDynamicSize = 16;

constexpr uint32_t kSegmentLoad = 1;
constexpr uint32_t kSegmentDynamic = 2;
constexpr uint32_t kSegmentNote = 4;
constexpr uint32_t kSectionNote = 7;

constexpr uint64_t kTagNeeded = 1;
constexpr uint64_t kTagStrings = 5;
constexpr uint64_t kTagStringsSize = 10;
constexpr uint64_t kTagRpath = 15;
constexpr uint64_t kTagRunpath = 29;
constexpr uint64_t kTagVersions = 0x6ffffffe;
constexpr uint64_t kTagVersionCount = 0x6fffffff;

constexpr uint32_t kNoteAbiTag = 1;
constexpr uint32_t kNoteProperty = 5;
constexpr uint32_t kPropertyX86IsaNeeded = 0xc0008002;

/// Far beyond what a linker makes; without them a small file could name the same records over and over.
constexpr size_t kLibraryLimit = 4096;
constexpr size_t kVersionLimit = 65536;
constexpr uint64_t kNameLimit = 4096;

/// A table of `count` records of `record` bytes at `offset` lies within `size`.
bool table_fits(uint64_t offset, uint64_t record, uint64_t count, uint64_t size) {
  return offset <= size && record * count <= size - offset;
}

uint64_t aligned(uint64_t size, uint64_t alignment) { return (size + alignment - 1) / alignment * alignment; }

struct Extent {
  uint64_t offset = 0;
  uint64_t size = 0;
};

/// Part of the file that a program header maps.
struct Mapping {
  uint64_t address = 0;
  uint64_t offset = 0;
  uint64_t size = 0;  ///< in the file
};

struct Dynamic {
  std::vector<uint64_t> needed;  ///< offsets into the strings
  uint64_t strings = 0;          ///< addresses
  uint64_t strings_size = 0;
  uint64_t versions = 0;
  uint64_t version_count = 0;
  bool own_search_path = false;
};

/// Reads one file. Confined to the thread of one check.
class NeedsReader {
 public:
  explicit NeedsReader(const Artefact& artefact) : artefact_(artefact), reader_(artefact.bytes) {}

  Result<ElfNeeds> read() {
    INDUCTORFS_TRY(read_segments());
    // A relocatable file has no segments: its notes stand in sections only.
    if (mappings_.empty()) INDUCTORFS_TRY(read_sections());
    for (const Extent& note : notes_) INDUCTORFS_TRY(read_notes(note));
    if (dynamic_at_.size > 0) INDUCTORFS_TRY(read_dynamic());
    return std::move(needs_);
  }

 private:
  [[nodiscard]] tl::unexpected<Error> broken(std::string_view what) const {
    return corrupt(artefact_, "ELF: " + std::string(what));
  }

  Result<void> read_segments() {
    const uint64_t table = reader_.number(32, 8);
    const uint64_t record = reader_.number(54, 2);
    const uint64_t count = reader_.number(56, 2);
    if (count > 0 && record != kSegmentSize) return broken("segments of an unknown form");
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t at = table + i * kSegmentSize;
      const auto type = static_cast<uint32_t>(reader_.number(at, 4));
      const Extent extent{reader_.number(at + 8, 8), reader_.number(at + 32, 8)};
      const bool wanted = type == kSegmentLoad || type == kSegmentDynamic || type == kSegmentNote;
      if (!wanted) continue;
      if (!reader_.has(extent.offset, extent.size)) return broken("cut off: a segment lies beyond its end");
      if (type == kSegmentLoad) mappings_.push_back({reader_.number(at + 16, 8), extent.offset, extent.size});
      if (type == kSegmentDynamic) dynamic_at_ = extent;
      if (type == kSegmentNote) notes_.push_back(extent);
    }
    return reader_.ok() ? Result<void>{} : broken("cut off in its segments");
  }

  Result<void> read_sections() {
    const uint64_t table = reader_.number(40, 8);
    const uint64_t record = reader_.number(58, 2);
    const uint64_t count = reader_.number(60, 2);
    if (count > 0 && record != kSectionSize) return broken("sections of an unknown form");
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t at = table + i * kSectionSize;
      if (reader_.number(at + 4, 4) != kSectionNote) continue;
      const Extent extent{reader_.number(at + 24, 8), reader_.number(at + 32, 8)};
      if (!reader_.has(extent.offset, extent.size)) return broken("cut off: a note lies beyond its end");
      notes_.push_back(extent);
    }
    return reader_.ok() ? Result<void>{} : broken("cut off in its sections");
  }

  /// Notes of the GNU toolchain: name "GNU", padded to 4 bytes; a property note's content to 8.
  Result<void> read_notes(const Extent& notes) {
    constexpr uint64_t kNoteHeader = 12;
    constexpr uint64_t kNoteAlignment = 4;
    const uint64_t end = notes.offset + notes.size;
    for (uint64_t at = notes.offset; end - at >= kNoteHeader;) {
      const uint64_t name_size = reader_.number(at, 4);
      const uint64_t size = reader_.number(at + 4, 4);
      const auto type = static_cast<uint32_t>(reader_.number(at + 8, 4));
      const uint64_t name_at = at + kNoteHeader;
      const uint64_t content_at = name_at + aligned(name_size, kNoteAlignment);
      if (content_at > end || size > end - content_at) return broken("a note is longer than its segment");
      const bool gnu = reader_.piece(name_at, name_size) == std::string_view("GNU\0", 4);
      if (gnu && type == kNoteAbiTag) needs_.operating_system = static_cast<uint32_t>(reader_.number(content_at, 4));
      if (gnu && type == kNoteProperty) INDUCTORFS_TRY(read_properties({content_at, size}));
      at = std::min(end, content_at + aligned(size, kNoteAlignment));
    }
    return reader_.ok() ? Result<void>{} : broken("cut off in its notes");
  }

  Result<void> read_properties(const Extent& properties) {
    constexpr uint64_t kPropertyHeader = 8;
    constexpr uint64_t kPropertyAlignment = 8;
    const uint64_t end = properties.offset + properties.size;
    for (uint64_t at = properties.offset; end - at >= kPropertyHeader;) {
      const auto type = static_cast<uint32_t>(reader_.number(at, 4));
      const uint64_t size = reader_.number(at + 4, 4);
      const uint64_t value_at = at + kPropertyHeader;
      if (size > end - value_at) return broken("a property is longer than its note");
      if (type == kPropertyX86IsaNeeded && size >= 4)
        needs_.x86_isa |= static_cast<uint32_t>(reader_.number(value_at, 4));
      at = std::min(end, value_at + aligned(size, kPropertyAlignment));
    }
    return {};
  }

  Result<void> read_dynamic() {
    Dynamic dynamic;
    const uint64_t count = dynamic_at_.size / kDynamicSize;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t at = dynamic_at_.offset + i * kDynamicSize;
      const uint64_t tag = reader_.number(at, 8);
      const uint64_t value = reader_.number(at + 8, 8);
      if (tag == 0) break;
      if (tag == kTagNeeded) dynamic.needed.push_back(value);
      if (tag == kTagStrings) dynamic.strings = value;
      if (tag == kTagStringsSize) dynamic.strings_size = value;
      if (tag == kTagVersions) dynamic.versions = value;
      if (tag == kTagVersionCount) dynamic.version_count = value;
      dynamic.own_search_path = dynamic.own_search_path || tag == kTagRpath || tag == kTagRunpath;
    }
    if (dynamic.needed.size() > kLibraryLimit) return broken("needs too many libraries");
    needs_.own_search_path = dynamic.own_search_path;
    if (dynamic.needed.empty() && dynamic.version_count == 0) return {};
    const uint64_t strings = offset_of(dynamic.strings, dynamic.strings_size);
    if (strings == 0) return broken("its strings are not in it");
    strings_ = {strings, dynamic.strings_size};
    for (const uint64_t name : dynamic.needed) needs_.libraries.emplace_back(string_at(name));
    if (dynamic.version_count > 0) INDUCTORFS_TRY(read_versions(dynamic));
    return reader_.ok() ? Result<void>{} : broken("cut off in its dynamic section");
  }

  /// Verneed records, each with its list of Vernaux (the System V ABI's symbol versioning).
  Result<void> read_versions(const Dynamic& dynamic) {
    uint64_t at = offset_of(dynamic.versions, kVersionRecord);
    if (at == 0) return broken("its needed versions are not in it");
    for (uint64_t i = 0; i < dynamic.version_count; ++i) {
      const uint64_t count = reader_.number(at + 2, 2);
      uint64_t name_at = at + reader_.number(at + 8, 4);
      for (uint64_t k = 0; k < count; ++k) {
        if (needs_.versions.size() == kVersionLimit) return broken("needs too many versions");
        needs_.versions.emplace_back(string_at(reader_.number(name_at + 8, 4)));
        const uint64_t next = reader_.number(name_at + 12, 4);
        if (!reader_.ok() || (next == 0 && k + 1 < count)) return broken("its needed versions are cut off");
        name_at += next;
      }
      const uint64_t next = reader_.number(at + 12, 4);
      if (!reader_.ok() || (next == 0 && i + 1 < dynamic.version_count)) {
        return broken("its needed versions are cut off");
      }
      at += next;
    }
    return {};
  }

  std::string_view string_at(uint64_t offset) {
    if (offset >= strings_.size) {
      (void)reader_.number(reader_.size(), 1);  // marks the reader: the caller looks at ok() once
      return {};
    }
    return reader_.text(strings_.offset + offset, kNameLimit);
  }

  /// Where an address stands in the file; 0, where the file's own header is, when no segment maps that much.
  [[nodiscard]] uint64_t offset_of(uint64_t address, uint64_t size) const {
    for (const Mapping& mapping : mappings_) {
      if (address < mapping.address || address - mapping.address > mapping.size) continue;
      const uint64_t within = address - mapping.address;
      if (size <= mapping.size - within) return mapping.offset + within;
    }
    return 0;
  }

  static constexpr uint64_t kVersionRecord = 16;

  const Artefact& artefact_;
  Reader reader_;
  std::vector<Mapping> mappings_;
  std::vector<Extent> notes_;
  Extent dynamic_at_;
  Extent strings_;
  ElfNeeds needs_;
};

}  // namespace

Result<ElfHeader> read_elf_header(const Artefact& artefact) {
  constexpr std::string_view kMagic64LittleEndian = "\177ELF\2\1";
  if (artefact.bytes.size() < kHeaderSize || !artefact.bytes.starts_with(kMagic64LittleEndian)) {
    return corrupt(artefact, "no 64-bit little-endian ELF");
  }
  Reader reader(artefact.bytes);
  ElfHeader header;
  header.os_abi = static_cast<uint8_t>(reader.number(7, 1));
  header.abi_version = static_cast<uint8_t>(reader.number(8, 1));
  header.type = static_cast<uint16_t>(reader.number(16, 2));
  header.machine = static_cast<uint16_t>(reader.number(18, 2));
  header.flags = static_cast<uint32_t>(reader.number(48, 4));
  const bool segments = table_fits(reader.number(32, 8), reader.number(54, 2), reader.number(56, 2), artefact.size);
  const bool sections = table_fits(reader.number(40, 8), reader.number(58, 2), reader.number(60, 2), artefact.size);
  if (!segments || !sections) return corrupt(artefact, "ELF is cut off");
  return header;
}

Result<std::vector<std::string_view>> read_section_names(const Artefact& artefact) {
  Reader reader(artefact.bytes);
  const uint64_t table = reader.number(40, 8);
  const uint64_t record = reader.number(58, 2);
  const uint64_t count = reader.number(60, 2);
  if (count > 0 && record != kSectionSize) return corrupt(artefact, "ELF: sections of an unknown form");
  const uint64_t strings = reader.number(62, 2);
  if (strings == 0 || strings >= count) return std::vector<std::string_view>();  // nothing names them
  const uint64_t names = reader.number(table + strings * kSectionSize + 24, 8);
  std::vector<std::string_view> found;
  for (uint64_t i = 1; i < count; ++i) {  // the first one is empty
    const uint64_t name = reader.number(table + i * kSectionSize, 4);
    if (!reader.has(names, name)) return corrupt(artefact, "ELF: the name of a section lies beyond its end");
    found.push_back(reader.text(names + name, kNameLimit));
  }
  if (!reader.ok()) return corrupt(artefact, "ELF: cut off in the names of its sections");
  return found;
}

Result<ElfNeeds> read_elf_needs(const Artefact& artefact) { return NeedsReader(artefact).read(); }

}  // namespace inductorfs::layout
