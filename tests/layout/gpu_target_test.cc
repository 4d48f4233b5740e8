// SPDX-License-Identifier: Apache-2.0
#include "gpu_target.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "elf_builder.h"

namespace inductorfs::layout {
namespace {

using namespace std::string_view_literals;
using Kind = CudaTarget::Kind;

/// Headers of real cubins of an empty kernel: ptxas 12.8 and 12.9 (narrow form; wide from sm_100), 13.0 and 13.4 (wide
/// throughout, with the accelerator target in .nv.compat). What cuobjdump 13.4 calls them stands last.
struct RealCubin {
  uint8_t abi_version;
  uint32_t flags;
  std::string_view compatibility;  ///< the first bytes of .nv.compat
  const char* name;
};
const RealCubin kRealCubins[] = {
    {7, 0x004b054b, ""sv, "sm_75"},
    {7, 0x00500550, ""sv, "sm_80"},
    {7, 0x00590559, ""sv, "sm_89"},
    {7, 0x005a055a, ""sv, "sm_90"},
    {7, 0x005a0d5a, ""sv, "sm_90a"},
    {8, 0x06006402, "\2\2\1\0\2\5\5\0\2\3\0\0\2\6\1\0"sv, "sm_100"},
    {8, 0x0600640a, "\2\2\1\0\2\5\5\0\2\3\0\0\2\6\1\0"sv, "sm_100a"},
    {8, 0x0600780a, "\2\2\1\0\2\5\5\0\2\3\0\0\2\6\1\0"sv, "sm_120a"},
    {8, 0x06005004, ""sv, "sm_80"},
    {8, 0x06005a04, "\2\x09\0\0\2\2\1\0\2\5\5\0\3\7\1\1"sv, "sm_90"},
    {8, 0x06005a04, "\2\x09\1\0\2\2\1\0\2\5\5\0\3\7\1\1"sv, "sm_90a"},
    {8, 0x06006402, "\2\x09\0\0\2\x0c\0\0\2\2\1\0\3\x0d\1\1"sv, "sm_100"},  // and of sm_100f
    {8, 0x06006402, "\2\x09\1\0\2\x0c\0\0\2\2\1\0\2\5\5\0"sv, "sm_100a"},
    {8, 0x06006702, "\2\x09\1\0\2\2\1\0\2\5\5\0\3\7\1\1"sv, "sm_103a"},
    {8, 0x06007902, "\2\x09\1\0\2\2\1\0\2\5\5\0\3\7\1\1"sv, "sm_121a"},
};

Result<CudaTarget> target_of(const std::string& bytes) {
  const Artefact artefact{"k.cubin", bytes, bytes.size()};
  const auto header = read_elf_header(artefact);
  if (!header) return fail(header.error());
  return cubin_target(artefact, *header);
}

TEST(CubinTarget, ReadsTheHeadersOfEveryToolkit) {
  for (const RealCubin& real : kRealCubins) {
    const auto target = target_of(samples::cubin(real.abi_version, real.flags, std::string(real.compatibility)));
    ASSERT_TRUE(target.has_value()) << real.name << ": " << target.error().to_string();
    EXPECT_EQ(target->name(), real.name) << std::hex << real.flags;
  }
}

TEST(CubinTarget, StepsOverLongAttributes) {
  const std::string before(
      "\4\x0b\x08\0"
      "12345678\4\x66\4\0"
      "1234",
      20);
  EXPECT_EQ(target_of(samples::cubin(8, 0x06005a04, before + std::string("\2\x09\1\0", 4)))->name(), "sm_90a");
  // The number of the attribute within a long one's value is none.
  const std::string within("\4\x0b\4\0\2\x09\1\0", 8);
  EXPECT_EQ(target_of(samples::cubin(8, 0x06005a04, within))->name(), "sm_90");
}

TEST(CubinTarget, RefusesWhatIsDamaged) {
  const std::string torn(
      "\4\x0b\xff\xff"
      "1234",
      8);
  for (const std::string& bytes : {samples::cubin(7, 0), samples::cubin(8, 0), samples::cubin(8, 0x00ffff00),
                                   samples::cubin(8, 0x06005a04, torn)}) {
    const auto target = target_of(bytes);
    ASSERT_FALSE(target.has_value());
    EXPECT_EQ(target.error().code(), ErrorCode::kCorrupt);
  }
  const std::string whole = samples::cubin(8, 0x06005a04, std::string("\2\x09\1\0", 4));
  for (size_t cut = 0; cut < whole.size(); ++cut) EXPECT_FALSE(target_of(whole.substr(0, cut)).has_value()) << cut;
}

TEST(CubinTarget, RefusesSectionsOfAnotherForm) {
  std::string whole = samples::cubin(8, 0x06005a04, std::string("\2\x09\1\0", 4));
  std::string beyond = whole;
  whole[58] = 63;  // e_shentsize
  EXPECT_FALSE(target_of(whole).has_value());
  // The last section's size.
  EXPECT_FALSE(target_of(beyond.replace(beyond.size() - 32, 8, std::string(8, '\xff'))).has_value());
}

TEST(CubinTarget, WantsEveryByteWhereTheHeaderDoesNotTell) {
  const std::string whole = samples::cubin(8, 0x06005a04, std::string("\2\x09\1\0", 4));
  const Artefact head{"k.cubin", std::string_view(whole).substr(0, 64), whole.size()};
  const auto target = cubin_target(head, *read_elf_header(head));
  ASSERT_FALSE(target.has_value());
  EXPECT_EQ(target.error().code(), ErrorCode::kInvalid);
}

struct Pair {
  int target;
  Kind kind;
  int device;
  bool runs;
};

TEST(RunsCubin, FollowsBinaryCompatibility) {
  const Pair pairs[] = {{80, Kind::kPlain, 80, true},
                        {80, Kind::kPlain, 86, true},
                        {86, Kind::kPlain, 80, false},
                        {80, Kind::kPlain, 90, false},
                        {90, Kind::kPlain, 80, false},
                        {90, Kind::kExact, 90, true},
                        {100, Kind::kPlain, 103, true},
                        {100, Kind::kExact, 103, false},
                        {100, Kind::kExact, 100, true},
                        {120, Kind::kPlain, 121, true},
                        {100, Kind::kPlain, 120, false},
                        {103, Kind::kPlain, 100, false},
                        // Integrated GPUs run their own code only, and nobody else runs theirs.
                        {86, Kind::kPlain, 87, false},
                        {87, Kind::kPlain, 89, false},
                        {87, Kind::kPlain, 87, true},
                        {100, Kind::kPlain, 101, false}};
  for (const Pair& pair : pairs) {
    const int devices[] = {pair.device};
    EXPECT_EQ(runs_cubin({pair.target, pair.kind}, devices), pair.runs)
        << CudaTarget{pair.target, pair.kind}.name() << " on " << pair.device;
  }
  const int mixed[] = {80, 90};
  EXPECT_TRUE(runs_cubin({90, Kind::kExact}, mixed));
  EXPECT_TRUE(runs_cubin({80, Kind::kPlain}, mixed));
  EXPECT_FALSE(runs_cubin({100, Kind::kPlain}, mixed));
}

TEST(RunsPtx, TakesAnyDeviceThatIsNotOlder) {
  const Pair pairs[] = {{80, Kind::kPlain, 80, true},     {80, Kind::kPlain, 120, true},
                        {90, Kind::kPlain, 80, false},    {90, Kind::kExact, 90, true},
                        {90, Kind::kExact, 100, false},   {100, Kind::kFamily, 103, true},
                        {100, Kind::kFamily, 120, false}, {103, Kind::kFamily, 100, false}};
  for (const Pair& pair : pairs) {
    const int devices[] = {pair.device};
    EXPECT_EQ(runs_ptx({pair.target, pair.kind}, devices), pair.runs)
        << CudaTarget{pair.target, pair.kind}.name() << " on " << pair.device;
  }
}

std::string ptx_name(const std::string& text) {
  const auto target = ptx_target({"k.ptx", text, text.size()});
  if (!target) return target.error().code() == ErrorCode::kCorrupt ? "corrupt" : "another error";
  return target->name();
}

TEST(PtxTarget, ReadsTheDirectives) {
  EXPECT_EQ(ptx_name("//\n// Generated by LLVM\n//\n\n.version 8.7\n.target sm_90a\n.address_size 64\n"), "sm_90a");
  EXPECT_EQ(ptx_name(".version 9.0\r\n.target\tsm_120f // family\r\n"), "sm_120f");
  EXPECT_EQ(ptx_name("  .version 8.0\n  .target sm_80, texmode_independent, debug\n"), "sm_80");
  EXPECT_EQ(ptx_name(".version 8.0\n.target sm_80 , debug\n"), "sm_80");
}

TEST(PtxTarget, RefusesWhatIsNotWellFormed) {
  for (const char* text :
       {"", ".version 8.7\n", ".target sm_90\n", ".version\n.target sm_90\n", ".version 8\n.target sm_90\n",
        ".version 8.7.1\n.target sm_90\n", ".version x.y\n.target sm_90\n", ".version 8.7\n.target sm_\n",
        ".version 8.7\n.target compute_90\n", ".version 8.7\n.target sm_90b\n", ".version 8.7\n.target xm_90\n",
        ".version 8.7\n.target sm_9999\n", ".version 8.7\n.target sm_1\n", "// .version 8.7\n// .target sm_90\n",
        ".versions 8.7\n.target sm_90\n"}) {
    EXPECT_EQ(ptx_name(text), "corrupt") << text;
  }
}

TEST(Capability, IsWrittenAsTheFacetWritesIt) {
  EXPECT_EQ(capability_text(90), "9.0");
  EXPECT_EQ(capability_text(121), "12.1");
  const int devices[] = {80, 100};
  EXPECT_EQ(capabilities_text(devices), "8.0, 10.0");
}

}  // namespace
}  // namespace inductorfs::layout
