// SPDX-License-Identifier: Apache-2.0
#include "elf_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "content_checks.h"
#include "elf_builder.h"
#include "shared_object.h"

namespace inductorfs::layout {
namespace {

using samples::SharedObject;

Artefact artefact_of(const std::string& bytes) { return {"x.so", bytes, bytes.size()}; }

Result<ElfNeeds> needs_of(const std::string& bytes) {
  const Artefact artefact = artefact_of(bytes);
  INDUCTORFS_TRY(read_elf_header(artefact));
  return read_elf_needs(artefact);
}

SharedObject kernel() {
  SharedObject file;
  file.libraries = {"libgomp.so.1", "libstdc++.so.6", "libc.so.6"};
  file.versions = {{"libstdc++.so.6", {"GLIBCXX_3.4.21", "CXXABI_1.3.9"}}, {"libc.so.6", {"GLIBC_2.14", "GLIBC_2.34"}}};
  return file;
}

TEST(ElfNeeds, NamesLibrariesAndVersions) {
  const auto needs = needs_of(kernel().build());

  ASSERT_TRUE(needs.has_value()) << needs.error().to_string();
  EXPECT_EQ(needs->libraries, (std::vector<std::string>{"libgomp.so.1", "libstdc++.so.6", "libc.so.6"}));
  EXPECT_EQ(needs->versions, (std::vector<std::string>{"GLIBCXX_3.4.21", "CXXABI_1.3.9", "GLIBC_2.14", "GLIBC_2.34"}));
  EXPECT_FALSE(needs->own_search_path);
  EXPECT_EQ(needs->x86_isa, 0U);
  EXPECT_EQ(needs->operating_system, 0U);
}

TEST(ElfNeeds, ReadsARealProgram) {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::string program((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  ASSERT_GT(program.size(), 4096U);

  const auto needs = needs_of(program);

  ASSERT_TRUE(needs.has_value()) << needs.error().to_string();
  EXPECT_NE(std::find(needs->libraries.begin(), needs->libraries.end(), "libc.so.6"), needs->libraries.end());
  EXPECT_TRUE(std::any_of(needs->versions.begin(), needs->versions.end(),
                          [](const std::string& version) { return version.starts_with("GLIBC_2."); }));
}

TEST(ElfNeeds, SeesASearchPathOfItsOwn) {
  SharedObject file = kernel();
  file.run_path = "$ORIGIN";
  EXPECT_TRUE(needs_of(file.build())->own_search_path);
}

TEST(ElfNeeds, ReadsTheNotesOfTheToolchain) {
  SharedObject file = kernel();
  // Another maker's note, and another property, come first.
  file.notes = samples::gnu_note(3, "build id") + samples::property_note(0xc0000002, 3) +
               samples::property_note(0xc0008002, 0b0101) +
               samples::gnu_note(1, std::string("\2\0\0\0"
                                                "rest",
                                                8));
  const auto needs = needs_of(file.build());

  ASSERT_TRUE(needs.has_value()) << needs.error().to_string();
  EXPECT_EQ(needs->x86_isa, 0b0101U);
  EXPECT_EQ(needs->operating_system, 2U);
}

TEST(ElfNeeds, ReadsTheNotesOfAnObjectFile) {
  samples::Sections file;
  file.sections = {{SHT_PROGBITS, "code"}, {SHT_NOTE, samples::property_note(0xc0008002, 8)}};
  EXPECT_EQ(needs_of(file.build())->x86_isa, 8U);
}

Result<std::vector<std::string>> section_names_of(const std::string& bytes) {
  const Artefact artefact = artefact_of(bytes);
  INDUCTORFS_TRY(read_elf_header(artefact));
  INDUCTORFS_TRY_ASSIGN(const auto names, read_section_names(artefact));
  return std::vector<std::string>(names.begin(), names.end());
}

samples::Sections named_sections() {
  samples::Sections file;
  file.sections = {{SHT_PROGBITS, "code"}, {SHT_PROGBITS, "more"}};
  file.names = {".text", ".nv_fatbin"};
  return file;
}

TEST(ElfSections, HaveNames) {
  const auto names = section_names_of(named_sections().build());
  ASSERT_TRUE(names.has_value()) << names.error().to_string();
  EXPECT_EQ(*names, (std::vector<std::string>{".text", ".nv_fatbin", ""}));
}

TEST(ElfSections, OfAStrippedFileHaveNone) {
  EXPECT_TRUE(section_names_of(kernel().build())->empty());
  samples::Sections file = named_sections();
  file.names.clear();
  EXPECT_TRUE(section_names_of(file.build())->empty());
}

TEST(ElfSections, OfARealProgramHaveNames) {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::string program((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto names = section_names_of(program);
  ASSERT_TRUE(names.has_value()) << names.error().to_string();
  EXPECT_NE(std::find(names->begin(), names->end(), ".dynstr"), names->end());
}

TEST(ElfSections, AreReadWithinTheFileWhateverItSays) {
  const std::string whole = named_sections().build();
  size_t refused = 0;
  for (size_t at = 16; at + 4 <= whole.size(); ++at) {
    std::string hostile = whole;
    hostile.replace(at, 4, "\xff\xff\xff\xff");
    refused += section_names_of(hostile).has_value() ? 0U : 1U;
  }
  EXPECT_GT(refused, 20U);
}

TEST(ElfNeeds, RefusesEveryPrefix) {
  SharedObject file = kernel();
  file.notes = samples::property_note(0xc0008002, 4);
  const std::string whole = file.build();
  ASSERT_TRUE(needs_of(whole).has_value());
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    const auto needs = needs_of(whole.substr(0, cut));
    ASSERT_FALSE(needs.has_value()) << cut;
    EXPECT_EQ(needs.error().code(), ErrorCode::kCorrupt);
  }
}

/// Every 4 bytes of the headers, tables and strings in turn become all ones: whatever is read from there, nothing
/// outside of the file is.
TEST(ElfNeeds, StaysWithinTheFileWhateverItSays) {
  SharedObject file = kernel();
  file.notes = samples::property_note(0xc0008002, 4);
  const std::string whole = file.build();
  size_t refused = 0;
  for (size_t at = 16; at + 4 <= whole.size(); ++at) {
    std::string hostile = whole;
    hostile.replace(at, 4, "\xff\xff\xff\xff");
    refused += needs_of(hostile).has_value() ? 0U : 1U;
  }
  EXPECT_GT(refused, whole.size() / 8);
}

TEST(ElfNeeds, RefusesTablesOfAnotherForm) {
  std::string segments = kernel().build();
  segments[54] = 57;  // e_phentsize
  EXPECT_FALSE(needs_of(segments).has_value());
  samples::Sections file;
  file.sections = {{SHT_NOTE, samples::property_note(0xc0008002, 8)}, {SHT_PROGBITS, std::string(64, 'c')}};
  std::string sections = file.build();
  sections[58] = 63;  // e_shentsize
  EXPECT_FALSE(needs_of(sections).has_value());
}

/// Nothing is loaded from such a segment; some linkers write no place for it at all.
TEST(ElfNeeds, LooksAtSegmentsThatMatterOnly) {
  SharedObject file = kernel();
  file.notes = samples::property_note(0xc0008002, 8);
  std::string whole = file.build();
  const size_t notes = sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Phdr);
  const uint32_t stack = PT_GNU_STACK;
  whole.replace(notes, 4, samples::bytes_of(stack));
  whole.replace(notes + 8, 8, std::string(8, '\x7f'));
  const auto needs = needs_of(whole);
  ASSERT_TRUE(needs.has_value()) << needs.error().to_string();
  EXPECT_EQ(needs->x86_isa, 0U);
}

/// The file with another value of a dynamic entry.
std::string with_entry(std::string bytes, uint64_t tag, uint64_t value) {
  const size_t load = sizeof(Elf64_Ehdr);
  const size_t dynamic = load + sizeof(Elf64_Phdr);
  uint64_t at = 0;
  for (size_t i = 0; i < 8; ++i) at |= uint64_t{static_cast<uint8_t>(bytes[dynamic + 8 + i])} << (8 * i);
  while (bytes.compare(at, 8, samples::bytes_of(tag)) != 0) at += 16;
  return bytes.replace(at + 8, 8, samples::bytes_of(value));
}

TEST(ElfNeeds, RefusesAddressesOutsideOfTheFile) {
  const std::string whole = kernel().build();
  for (const uint64_t tag : {uint64_t{DT_STRTAB}, uint64_t{DT_STRSZ}, uint64_t{DT_VERNEED}, uint64_t{DT_NEEDED}}) {
    for (const uint64_t value : {uint64_t{1}, uint64_t{SharedObject::kBase} + whole.size(), UINT64_MAX}) {
      if (tag == DT_NEEDED && value == 1) continue;  // a name of its own
      EXPECT_FALSE(needs_of(with_entry(whole, tag, value)).has_value()) << tag << " " << value;
    }
  }
  EXPECT_FALSE(needs_of(with_entry(whole, DT_VERNEEDNUM, UINT64_MAX)).has_value());
}

TEST(ElfNeeds, NeedsNoStringsWhereNothingIsNeeded) {
  EXPECT_TRUE(needs_of(with_entry(SharedObject().build(), DT_STRTAB, 1)).has_value());
}

TEST(ElfNeeds, RefusesNotesThatAreLongerThanTheirPlace) {
  std::string note = samples::property_note(0xc0008002, 8);
  note[4] = 17;  // of its content: a byte more than there is
  SharedObject file = kernel();
  file.notes = note;
  EXPECT_FALSE(needs_of(file.build()).has_value());

  std::string property = samples::property_note(0xc0008002, 8);
  property[20] = 9;  // of its value: 8 bytes are left
  file.notes = property;
  EXPECT_FALSE(needs_of(file.build()).has_value());

  samples::Sections object;
  object.sections = {{SHT_NOTE, samples::property_note(0xc0008002, 8)}};
  std::string endless = object.build();
  const size_t size_field = endless.size() - sizeof(Elf64_Shdr) + 32;
  EXPECT_FALSE(needs_of(endless.replace(size_field, 8, std::string(8, '\xff'))).has_value());
}

TEST(ElfNeeds, HasLimits) {
  SharedObject file;
  file.libraries.assign(4096, "libx.so");
  EXPECT_TRUE(needs_of(file.build()).has_value());
  file.libraries.emplace_back("libx.so");
  EXPECT_FALSE(needs_of(file.build()).has_value());

  SharedObject versions;
  versions.versions = {{"a", std::vector<std::string>(65535, "X")}, {"b", {"X"}}};
  EXPECT_EQ(needs_of(versions.build())->versions.size(), 65536U);
  versions.versions[1].second.emplace_back("X");
  EXPECT_FALSE(needs_of(versions.build()).has_value());

  SharedObject name;
  name.libraries = {std::string(4095, 'x')};
  EXPECT_TRUE(needs_of(name.build()).has_value());
  name.libraries = {std::string(4096, 'x')};
  EXPECT_FALSE(needs_of(name.build()).has_value());
}

TEST(ElfNeeds, RefusesVersionsThatLeadNowhere) {
  const std::string whole = kernel().build();
  // The count of the first library's versions says more than there are.
  const size_t first = whole.find(std::string("\1\0\2\0", 4));
  ASSERT_NE(first, std::string::npos);
  std::string hostile = whole;
  hostile[first + 2] = 9;
  EXPECT_FALSE(needs_of(hostile).has_value());
}

struct HostCase {
  std::string needs;
  bool fits;
};

Result<void> check(const SharedObject& file, const HostLimits& host) {
  const std::string bytes = file.build();
  const Artefact artefact = artefact_of(bytes);
  return check_elf_needs(artefact, *read_elf_needs(artefact), host);
}

TEST(HostCheck, ComparesVersionsAsNumbers) {
  HostLimits host;
  host.glibc = "2.36";
  host.glibcxx = "3.4.30";
  host.cxxabi = "1.3.13";
  const HostCase cases[] = {{"GLIBC_2.4", true},       {"GLIBC_2.36", true},
                            {"GLIBC_2.37", false},     {"GLIBC_2.36.1", false},
                            {"GLIBC_3.0", false},      {"GLIBCXX_3.4", true},
                            {"GLIBCXX_3.4.9", true},   {"GLIBCXX_3.4.30", true},
                            {"GLIBCXX_3.4.31", false}, {"CXXABI_1.3.13", true},
                            {"CXXABI_1.3.14", false},  {"CXXABI_TM_1", true},
                            {"GLIBC_PRIVATE", true},   {"GLIBC_ABI_DT_RELR", true},
                            {"GOMP_9.9", true},        {"GLIBC_2.99999999999999999999", true},
                            {"GLIBC_9..3", true},      {"GLIBC_9.1.1.1.1", true}};
  for (const HostCase& one : cases) {
    SharedObject file;
    file.libraries = {"libc.so.6"};
    file.versions = {{"libc.so.6", {"GLIBC_2.2.5", one.needs}}};
    const auto checked = check(file, host);
    EXPECT_EQ(checked.has_value(), one.fits) << one.needs;
    if (checked) continue;
    EXPECT_EQ(checked.error().code(), ErrorCode::kNotSupported);
    EXPECT_NE(checked.error().what().find(one.needs), std::string::npos) << checked.error().what();
    EXPECT_TRUE(check(file, HostLimits()).has_value()) << "an empty limit is not checked";
  }
  host.glibc = "2.35";
  SharedObject packed;
  packed.versions = {{"libc.so.6", {"GLIBC_ABI_DT_RELR"}}};
  EXPECT_FALSE(check(packed, host).has_value());
}

TEST(HostCheck, AsksForEachLibrary) {
  HostLimits host;
  host.resolves = [](std::string_view soname) { return soname != "libcudart.so.12"; };
  SharedObject file = kernel();
  EXPECT_TRUE(check(file, host).has_value());

  file.libraries.emplace_back("libcudart.so.12");
  const auto checked = check(file, host);

  ASSERT_FALSE(checked.has_value());
  EXPECT_EQ(checked.error().code(), ErrorCode::kNotSupported);
  EXPECT_NE(checked.error().what().find("needs libcudart.so.12"), std::string::npos) << checked.error().what();
  EXPECT_TRUE(check(file, HostLimits()).has_value());
  file.run_path = "/opt/cuda/lib64";
  EXPECT_TRUE(check(file, host).has_value()) << "only its loader knows what is there";
}

TEST(HostCheck, ComparesTheIsaLevel) {
  for (unsigned level = 1; level <= 4; ++level) {
    SharedObject file = kernel();
    file.notes = samples::property_note(0xc0008002, 1U << (level - 1));
    for (unsigned has = 1; has <= 4; ++has) {
      HostLimits host;
      host.x86_isa_level = has;
      EXPECT_EQ(check(file, host).has_value(), level <= has) << level << " on " << has;
    }
    EXPECT_TRUE(check(file, HostLimits()).has_value());
  }
}

TEST(HostCheck, RefusesAnotherOperatingSystem) {
  SharedObject file = kernel();
  file.notes = samples::gnu_note(1, std::string("\3\0\0\0\0\0\0\0", 8));
  const auto checked = check(file, HostLimits());
  ASSERT_FALSE(checked.has_value());
  EXPECT_EQ(checked.error().code(), ErrorCode::kNotSupported);
}

}  // namespace
}  // namespace inductorfs::layout
