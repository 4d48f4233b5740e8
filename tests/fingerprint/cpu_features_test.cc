// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/facts/cpu_features.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

namespace inductorfs::fingerprint {
namespace {

using Leaves = std::map<std::pair<uint32_t, uint32_t>, CpuidAnswer>;

constexpr uint64_t kNoVectors = 0x3;
constexpr uint64_t kAvx = 0x7;
constexpr uint64_t kAvx512 = 0xe7;
constexpr uint64_t kTiles = 0x600e7;
constexpr uint64_t kTilesPermitted = 0x40000;

Cpuid table(Leaves leaves) {
  return [leaves = std::move(leaves)](uint32_t leaf, uint32_t subleaf) -> std::optional<CpuidAnswer> {
    const auto found = leaves.find({leaf, subleaf});
    if (found == leaves.end()) return std::nullopt;
    return found->second;
  };
}

/// An Intel CPU of this model ("GenuineIntel") with AVX2, AVX-512 and AMX.
Leaves intel(uint32_t signature = 0x000806f8) {
  return {{{0, 0}, {0x20, 0x756e6547, 0x6c65746e, 0x49656e69}},
          {{1, 0}, {signature, 0, (1U << 12) | (1U << 28) | (1U << 26) | (1U << 27), (1U << 25) | (1U << 26)}},
          {{7, 0}, {2, (1U << 5) | (1U << 16), 1U << 11, (1U << 24) | (1U << 25)}},
          {{7, 1}, {(1U << 4) | (1U << 5), 0, 0, 0}},
          {{0x80000001, 0}, {0, 0, 1U << 5, 0}}};
}

Leaves amd(uint32_t signature) {
  Leaves leaves = intel(signature);
  leaves[{0, 0}] = {0x10, 0x68747541, 0x444d4163, 0x69746e65};
  return leaves;
}

TEST(X86Cpu, ListsWhatTheKernelHasEnabled) {
  const X86Cpu cpu = read_x86(table(intel()), kTiles, kTilesPermitted);
  EXPECT_EQ(cpu.vendor, "GenuineIntel");
  EXPECT_EQ(cpu.family, 6U);
  EXPECT_EQ(cpu.model, 0x8fU);
  EXPECT_EQ(cpu.stepping, 8U);
  EXPECT_EQ(cpu.features, (Flags{"amx-int8", "amx-tile", "avx", "avx2", "avx512bf16", "avx512f", "avx512vnni",
                                 "avxvnni", "fma", "lzcnt", "sse", "sse2", "xsave"}));
  EXPECT_TRUE(cpu.withheld.empty());
}

TEST(X86Cpu, WithholdsWhatNoRegistersAreSavedFor) {
  const auto withheld = [](uint64_t xcr0, uint64_t permitted) {
    return read_x86(table(intel()), xcr0, permitted).withheld;
  };
  const Flags tiles = {"amx-int8", "amx-tile"};
  const Flags wide = {"avx512bf16", "avx512f", "avx512vnni"};
  EXPECT_EQ(withheld(kTiles, 0), tiles) << "the kernel gives no process the right";
  EXPECT_EQ(withheld(kAvx512, kTilesPermitted), tiles);
  Flags both = tiles;
  both.insert(wide.begin(), wide.end());
  EXPECT_EQ(withheld(kAvx, 0), both);
  both.insert({"avx", "avx2", "avxvnni", "fma"});
  EXPECT_EQ(withheld(kNoVectors, 0), both);
  EXPECT_TRUE(read_x86(table(intel()), 0, 0).withheld.contains("xsave"));
}

TEST(X86Cpu, ReadsNoLeafThatTheCpuDoesNotHave) {
  Leaves leaves = intel();
  leaves[{7, 0}].eax = 0;  // no subleaf 1: what stands there means nothing
  EXPECT_FALSE(read_x86(table(leaves), kTiles, kTilesPermitted).features.contains("avxvnni"));
  leaves.erase({7, 0});
  EXPECT_FALSE(read_x86(table(leaves), kTiles, kTilesPermitted).features.contains("avx2"));
  EXPECT_TRUE(read_x86(table({}), kTiles, kTilesPermitted).features.empty());
}

TEST(X86Cpu, NamesMicroarchitecturesAsCompilersDo) {
  const std::pair<uint32_t, const char*> models[] = {{0x000806f8, "sapphirerapids"},
                                                     {0x000c06f2, "emeraldrapids"},
                                                     {0x000606a6, "icelake-server"},
                                                     {0x000906ed, "skylake"},
                                                     {0x000806ec, "skylake"},
                                                     {0x000306f2, "haswell"},
                                                     {0x000a0671, "rocketlake"},
                                                     {0x000a06d1, "graniterapids"},
                                                     {0x00000f4a, ""},
                                                     {0x000f06f1, ""}};
  for (const auto& [signature, name] : models) {
    EXPECT_EQ(read_x86(table(intel(signature)), kTiles, 0).microarchitecture, name) << std::hex << signature;
  }
  const std::pair<uint32_t, const char*> others[] = {{0x00800f11, "znver1"}, {0x00830f10, "znver2"},
                                                     {0x00a00f11, "znver3"}, {0x00a10f11, "znver4"},
                                                     {0x00b00f21, "znver5"}, {0x00600f20, ""}};
  for (const auto& [signature, name] : others) {
    EXPECT_EQ(read_x86(table(amd(signature)), kTiles, 0).microarchitecture, name) << std::hex << signature;
  }
}

TEST(X86Cpu, TellsTheGenerationsOfOneModelApart) {
  Leaves leaves = intel(0x00050657);
  EXPECT_EQ(read_x86(table(leaves), kAvx512, 0).microarchitecture, "cooperlake");
  leaves[{7, 1}].eax = 0;
  EXPECT_EQ(read_x86(table(leaves), kAvx512, 0).microarchitecture, "cascadelake");
  leaves[{7, 0}].ecx = 0;
  EXPECT_EQ(read_x86(table(leaves), kAvx512, 0).microarchitecture, "skylake-avx512");
}

TEST(X86Cpu, SaysWhatMayHideSomething) {
  Leaves leaves = intel();
  EXPECT_FALSE(read_x86(table(leaves), kTiles, 0).hypervisor);
  leaves[{1, 0}].ecx |= 1U << 31;
  leaves[{7, 0}].edx |= 1U << 15;
  EXPECT_TRUE(read_x86(table(leaves), kTiles, 0).hypervisor);
  EXPECT_TRUE(read_x86(table(leaves), kTiles, 0).hybrid);
}

TEST(FeatureOfFlag, FindsTheCompilersName) {
  const std::pair<const char*, const char*> names[] = {{"avx512_vnni", "avx512vnni"},
                                                       {"amx_tile", "amx-tile"},
                                                       {"pni", "sse3"},
                                                       {"sse4_2", "sse4.2"},
                                                       {"sha_ni", "sha"},
                                                       {"avx2", "avx2"},
                                                       {"lahf_lm", "sahf"},
                                                       {"avx_vnni", "avxvnni"},
                                                       {"constant_tsc", ""},
                                                       {"md_clear", ""},
                                                       {"ibrs_enhanced", ""},
                                                       {"", ""}};
  for (const auto& [flag, name] : names) EXPECT_EQ(feature_of_flag(flag), name) << flag;
  EXPECT_TRUE(is_known_feature("avx512vnni"));
  EXPECT_FALSE(is_known_feature("avx512_vnni"));
}

}  // namespace
}  // namespace inductorfs::fingerprint
