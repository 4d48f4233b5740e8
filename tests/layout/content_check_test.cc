// SPDX-License-Identifier: Apache-2.0
#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "inductorfs/codec/digest.h"
#include "inductorfs/layout/layout.h"
#include "sample_names.h"

namespace inductorfs::layout {
namespace {

using namespace samples;

#if defined(__x86_64__)
constexpr uint16_t kHostMachine = EM_X86_64;
constexpr uint16_t kForeignMachine = EM_AARCH64;
#else
constexpr uint16_t kHostMachine = EM_AARCH64;
constexpr uint16_t kForeignMachine = EM_X86_64;
#endif
constexpr uint16_t kMachineCuda = 190;

/// A header and two empty sections at the end, as a linker writes them.
std::string elf(uint16_t type, uint16_t machine) {
  constexpr size_t kBody = 300;
  Elf64_Ehdr header{};
  std::copy_n("\177ELF\2\1\1", 7, header.e_ident);
  header.e_type = type;
  header.e_machine = machine;
  header.e_ehsize = sizeof header;
  header.e_shoff = sizeof header + kBody;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 2;
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  return bytes + std::string(kBody + 2 * sizeof(Elf64_Shdr), '\0');
}

std::string kernel(const std::string& name) { return "triton/0/" + kKey + "/" + name; }
std::string code(const std::string& suffix) { return "ab/" + kCode + suffix; }

::testing::AssertionResult accepts(const std::string& path, const std::string& bytes) {
  const auto checked = check_content(classify(path), bytes, bytes.size());
  if (checked) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << checked.error().to_string();
}

::testing::AssertionResult refuses(const std::string& path, const std::string& bytes) {
  const auto checked = check_content(classify(path), bytes, bytes.size());
  if (checked) return ::testing::AssertionFailure() << path << " was accepted";
  if (checked.error().code() != ErrorCode::kCorrupt || checked.error().what().empty()) {
    return ::testing::AssertionFailure() << checked.error().to_string();
  }
  return ::testing::AssertionSuccess();
}

TEST(CheckContent, HoldsCandidatesToTheHashInTheirName) {
  const std::string pickle = "\x80\x05]\x94.";
  const std::string name = codec::torch_hash(pickle);
  for (const std::string& directory : {"fxgraph/ab/" + kGraphKey + "/", "aotautograd/" + kAutogradKey + "/"}) {
    EXPECT_TRUE(accepts(directory + name, pickle));
    EXPECT_TRUE(refuses(directory + name, pickle + "x"));
    EXPECT_TRUE(refuses(directory + name, pickle.substr(0, 3)));
    EXPECT_TRUE(refuses(directory + name, ""));
    EXPECT_TRUE(refuses(directory + kHash, pickle));
  }
}

TEST(CheckContent, AsksForEveryByteWhereAHeadProvesNothing) {
  const Place place = classify("fxgraph/ab/" + kGraphKey + "/" + kHash);
  ASSERT_TRUE(needs_whole(place.family));

  const auto checked = check_content(place, "head", 5);

  ASSERT_FALSE(checked.has_value());
  EXPECT_EQ(checked.error().code(), ErrorCode::kInvalid);
  for (const Family family : {Family::kAotAutograd, Family::kAotAutogradEntry, Family::kBestConfig,
                              Family::kSystemAutotune, Family::kTritonAutotune}) {
    EXPECT_TRUE(needs_whole(family));
  }
  EXPECT_FALSE(needs_whole(Family::kPrecompiledHeader));
}

TEST(CheckContent, RefusesAPickleThatIsCutOff) {
  const std::string path = "aotautograd/" + kAutogradKey + "/entry";
  EXPECT_TRUE(accepts(path, "\x80\x05]\x94."));
  EXPECT_TRUE(refuses(path, "\x80\x05]\x94"));
  EXPECT_TRUE(refuses(path, "{}."));
  EXPECT_TRUE(refuses(path, ""));
}

TEST(CheckContent, WantsAJsonObjectForABestConfig) {
  const std::string path = "ab/" + kHex + ".best_config";
  EXPECT_TRUE(accepts(path, R"({"XBLOCK": 128, "num_warps": 4, "found_by_coordesc": false, "time_taken_ms": NaN})"));
  EXPECT_TRUE(refuses(path, R"({"XBLOCK": 128, "num_warps": 4)"));
  EXPECT_TRUE(refuses(path, "[1]"));
  EXPECT_TRUE(refuses(path, ""));
  EXPECT_TRUE(accepts(kernel("add.autotune.json"), R"({"key": [1, "x"], "configs_timings": [[{}, [0.1, 0.2]]]})"));
  EXPECT_TRUE(refuses(kernel("add.autotune.json"), R"({"key": [1, "x"], )"));
}

TEST(CheckContent, WantsTheTimingsOfTheSystemThatTheNameSays) {
  const std::string path = "cache/" + kHex;
  EXPECT_TRUE(accepts(path, R"({"system": {"hash": ")" + kHex + R"("}, "cache": {"mm": {}}})"));
  EXPECT_TRUE(refuses(path, R"({"system": {"hash": ")" + kHash + R"("}, "cache": {}})"));
  EXPECT_TRUE(refuses(path, R"({"system": {}, "cache": {}})"));
  EXPECT_TRUE(refuses(path, R"({"system": {"hash": 1}, "cache": {}})"));
  EXPECT_TRUE(refuses(path, R"({"system": {"hash": ")" + kHex + R"("}, "cache": []})"));
  EXPECT_TRUE(refuses(path, "{}"));
}

TEST(CheckContent, WantsAWholeElfOfThisMachineForBinaries) {
  const std::string library = elf(ET_DYN, kHostMachine);
  const std::string object = elf(ET_REL, kHostMachine);
  for (const std::string& path : {code(".main.so"), code(".so"), kernel("cuda_utils.so")}) {
    EXPECT_TRUE(accepts(path, library));
    EXPECT_TRUE(refuses(path, object));
    EXPECT_TRUE(refuses(path, elf(ET_DYN, kForeignMachine)));
    EXPECT_TRUE(refuses(path, library.substr(0, library.size() - 1)));
    EXPECT_TRUE(refuses(path, library.substr(0, 63)));
    EXPECT_TRUE(refuses(path, std::string(library.size(), '\0')));
    EXPECT_TRUE(refuses(path, ""));
  }
  EXPECT_TRUE(accepts(code(".main.o"), object));
  EXPECT_TRUE(refuses(code(".main.o"), library));
}

TEST(CheckContent, RefusesAnElfWhoseTablesOverflow) {
  std::string library = elf(ET_DYN, kHostMachine);
  for (const size_t offset_field : {size_t{32}, size_t{40}}) {
    std::string hostile = library;
    hostile.replace(offset_field, 8, std::string(8, '\xff'));
    EXPECT_TRUE(refuses(code(".main.so"), hostile));
  }
}

TEST(CheckContent, LooksAtTheHeadOfALargeBinary) {
  const std::string library = elf(ET_DYN, kHostMachine);
  const Place place = classify(code(".main.so"));
  EXPECT_TRUE(check_content(place, library.substr(0, 64), library.size()).has_value());
  EXPECT_FALSE(check_content(place, library.substr(0, 64), library.size() - 1).has_value());
  EXPECT_FALSE(check_content(place, library, library.size() - 1).has_value());
}

TEST(CheckContent, KnowsTritonsFilesByTheirExtension) {
  EXPECT_TRUE(accepts(kernel("add.cubin"), elf(ET_EXEC, kMachineCuda)));
  EXPECT_TRUE(refuses(kernel("add.cubin"), elf(ET_EXEC, kHostMachine)));
  EXPECT_TRUE(refuses(kernel("add.cubin"), "text"));
  EXPECT_TRUE(accepts(kernel("add.hsaco"), elf(ET_DYN, 224)));
  EXPECT_TRUE(accepts(kernel("add.ptx"), "//\n.version 8.7\n.target sm_90a\n"));
  EXPECT_TRUE(refuses(kernel("add.ptx"), "//\n.version 8.7\n"));
  EXPECT_TRUE(accepts(kernel("add.json"), R"({"hash": "x", "target": {"backend": "cuda"}, "shared": 0})"));
  EXPECT_TRUE(refuses(kernel("add.json"), R"({"hash": "x")"));
  EXPECT_TRUE(refuses(kernel("__grp__add.json"), "not json"));
  EXPECT_TRUE(accepts(kernel("add.ttir"), "module {}"));
  EXPECT_TRUE(refuses(kernel("add.ttir"), std::string("module\0{}", 9)));
  EXPECT_TRUE(refuses(kernel("add.ttir"), ""));
  EXPECT_TRUE(accepts(kernel("add.newformat"), "anything"));
}

TEST(CheckContent, RefusesSourceThatACrashTore) {
  for (const std::string& path : {code(".py"), code(".main.cpp"), "precompiled_headers/" + kCode + ".h"}) {
    EXPECT_TRUE(accepts(path, "text\n"));
    EXPECT_TRUE(refuses(path, std::string("te\0t", 4)));
    EXPECT_TRUE(refuses(path, ""));
  }
}

TEST(CheckContent, AcceptsSourceWhoseNameHashesMoreThanItsText) { EXPECT_TRUE(accepts(code(".py"), "import torch\n")); }

TEST(CheckContent, KnowsPrecompiledHeadersAndMarkers) {
  EXPECT_TRUE(accepts("precompiled_headers/" + kCode + ".h.gch", "gpch.014..."));
  EXPECT_TRUE(refuses("precompiled_headers/" + kCode + ".h.gch", "CPCH"));
  EXPECT_TRUE(accepts(code(".so.load_ok"), ""));
  EXPECT_TRUE(refuses(code(".so.load_ok"), "1"));
}

TEST(CheckContent, SaysNothingOfFamiliesThatAreNotShared) {
  for (const std::string path : {"locks/x.lock", "dynamo/x.pkl", "README", ""}) EXPECT_TRUE(accepts(path, ""));
}

}  // namespace
}  // namespace inductorfs::layout
