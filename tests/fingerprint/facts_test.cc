// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/facts.h"

#include <gtest/gtest.h>

#include "fake_packages.h"
#include "support/temporary_directory.h"

namespace inductorfs::fingerprint {
namespace {

using inductorfs::testing::TemporaryDirectory;
using testing::write_script;
using testing::write_text;

std::string cpu_block(const std::string& flags, const std::string& model = "143") {
  return "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: " + model +
         "\nmodel name\t: Intel(R) Xeon(R)\nstepping\t: 8\nmicrocode\t: 0x2b\ncpu MHz\t\t: 2600.000\nflags\t\t: " +
         flags + "\nbugs\t\t: spectre_v1\nbogomips\t: 5200.00\n\n";
}

bool has_line(const Fact& fact, const std::string& line) {
  return ("\n" + fact.value + "\n").find("\n" + line + "\n") != std::string::npos;
}

TEST(Canonical, SortsAndLeavesOutRepeatsAndLineBreaks) {
  EXPECT_EQ(canonical({{"b", "2"}, {"a", "1\n1"}, {"b", "2"}, {"b", "1"}}), "a=1 1\nb=1\nb=2");
  EXPECT_EQ(canonical({}), "");
}

TEST(CpuFact, IsTheSameForTwoHostsThatRunTheSameCode) {
  const Fact one = cpu_fact(cpu_block("fpu sse avx2 fma constant_tsc md_clear"), "x86_64", "0xe7");
  const Fact two = cpu_fact(cpu_block("avx2 fma fpu sse hypervisor ibrs_enhanced") + cpu_block("fpu sse avx2 fma"),
                            "x86_64", "0xe7");
  EXPECT_EQ(one.value,
            "arch=x86_64\nfamily=6\nflags=avx2 fma fpu sse\nmodel=143\nstepping=8\nvendor=GenuineIntel\nxcr0=0xe7");
  EXPECT_EQ(two.value, one.value);
}

TEST(CpuFact, DiffersByFlagModelAndSavedRegisters) {
  const Fact base = cpu_fact(cpu_block("sse avx2"), "x86_64", "0x7");
  EXPECT_NE(cpu_fact(cpu_block("sse avx2 avx512f"), "x86_64", "0x7").value, base.value);
  EXPECT_NE(cpu_fact(cpu_block("sse avx2", "85"), "x86_64", "0x7").value, base.value);
  EXPECT_NE(cpu_fact(cpu_block("sse avx2"), "x86_64", "0xe7").value, base.value);
}

TEST(CpuFact, NamesWhatOnlySomeCoresHave) {
  const Fact fact = cpu_fact(cpu_block("sse avx2 avx512f", "151") + cpu_block("sse avx2 gfni", "154"), "x86_64", "");
  EXPECT_TRUE(has_line(fact, "flags=avx2 sse")) << fact.value;
  EXPECT_TRUE(has_line(fact, "heterogeneous=avx512f gfni")) << fact.value;
  EXPECT_TRUE(has_line(fact, "model=151,154")) << fact.value;
}

TEST(CpuFact, ReadsTheFormOfArmKernels) {
  const Fact fact =
      cpu_fact("processor : 0\nFeatures : fp asimd sve\nCPU implementer : 0x41\nCPU part : 0xd40\n", "aarch64", "");
  EXPECT_EQ(fact.value, "arch=aarch64\nflags=asimd fp sve\nmodel=0xd40\nvendor=0x41");
}

TEST(CpuFact, IsUnknownWithoutFlags) {
  EXPECT_FALSE(cpu_fact("", "x86_64", "").known);
  EXPECT_FALSE(cpu_fact("processor : 0\n", "x86_64", "").known);
  EXPECT_FALSE(cpu_isa_fact("", "x86_64").known);
}

TEST(CpuIsaFact, FollowsTorchsConditions) {
  const Fact plain = cpu_isa_fact(cpu_block("sse avx2 fma"), "x86_64");
  EXPECT_EQ(plain.value, "amx_fp16=no\namx_tile=no\navx2=yes\navx512=no\navx512_bf16=no\navx512_vnni=no");
  const Fact large = cpu_isa_fact(
      cpu_block("fma avx2 avx512f avx512dq avx512bw avx512vl avx512_vnni avx512_bf16 amx_tile amx_fp16"), "x86_64");
  EXPECT_EQ(large.value, "amx_fp16=yes\namx_tile=yes\navx2=yes\navx512=yes\navx512_bf16=yes\navx512_vnni=yes");
  EXPECT_TRUE(has_line(cpu_isa_fact(cpu_block("fma avx2 avx512f"), "x86_64"), "avx512=no")) << "Knights Landing";
  EXPECT_TRUE(has_line(cpu_isa_fact(cpu_block("avx2 fma") + cpu_block("sse"), "x86_64"), "avx2=no"));
}

TEST(CpuIsaFact, IsNotGuessedElsewhere) {
  const Fact fact = cpu_isa_fact("Features : fp asimd\n", "aarch64");
  EXPECT_FALSE(fact.known);
  EXPECT_NE(fact.problem.find("x86_64"), std::string::npos);
}

TEST(CpuFacts, AreKnownOnThisHost) {
  const auto [cpu, isa] = cpu_facts();
  EXPECT_TRUE(cpu.known) << cpu.problem;
  EXPECT_TRUE(isa.known || !isa.problem.empty());
}

TEST(LibcFact, NamesThisLibrary) {
  const Fact fact = libc_fact();
  EXPECT_TRUE(fact.known);
  EXPECT_TRUE(fact.value.starts_with("name=glibc\nversion=2.")) << fact.value;
}

constexpr const char* kGccText =
    "Using built-in "
    "specs.\nCOLLECT_GCC=/opt/here/g++\nCOLLECT_LTO_WRAPPER=/usr/lib/gcc/x86_64-linux-gnu/12/lto-wrapper\n"
    "Target: x86_64-linux-gnu\nConfigured with: ../src/configure "
    "--prefix=/usr\nThread model: posix\n"
    "Supported LTO compression algorithms: zlib zstd\ngcc version 12.2.0 "
    "(Debian 12.2.0-14+deb12u1) \n";

TEST(CompilerIdentity, LeavesOutWhereTheCompilerWasCalled) {
  EXPECT_EQ(canonical(compiler_identity(kGccText)),
            "configured=../src/configure --prefix=/usr\ntarget=x86_64-linux-gnu\nthreads=posix\n"
            "version=gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)");
  EXPECT_EQ(
      canonical(compiler_identity("Debian clang version 14.0.6\nTarget: x86_64-pc-linux-gnu\nThread model: posix\n"
                                  "InstalledDir: /usr/bin\nSelected GCC "
                                  "installation: /usr/lib/gcc/12\n")),
      "target=x86_64-pc-linux-gnu\nthreads=posix\nversion=Debian clang version 14.0.6");
  EXPECT_TRUE(compiler_identity("Target: x86_64-linux-gnu\n").empty());
  EXPECT_TRUE(compiler_identity("").empty());
}

TEST(CompilerFact, AsksTheNamedCompilerWithItsWords) {
  const TemporaryDirectory temporary;
  write_text(temporary / "libstdc++.so.6.0.99", "");
  write_script(temporary / "cxx", "[ \"$1\" = word ] || exit 1\nif [ \"$2\" = -v ]; then\ncat >&2 <<'END'\n" +
                                      std::string(kGccText) + "END\nelse echo " + temporary.path() +
                                      "/libstdc++.so.6.0.99; fi");
  ProbeOptions options;
  options.compiler = temporary / "cxx" + " word";
  const Fact fact = compiler_fact(options);
  ASSERT_TRUE(fact.known) << fact.problem;
  EXPECT_TRUE(has_line(fact, "libstdcxx=libstdc++.so.6.0.99")) << fact.value;
  EXPECT_TRUE(has_line(fact, "version=gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)"));
  EXPECT_EQ(fact.value.find(temporary.path()), std::string::npos);
}

TEST(CompilerFact, SaysWhyThereIsNone) {
  const TemporaryDirectory temporary;
  ProbeOptions options;
  options.compiler = temporary / "absent";
  EXPECT_FALSE(compiler_fact(options).known);
  EXPECT_NE(compiler_fact(options).problem.find("no such program"), std::string::npos);
  write_script(temporary / "broken", "echo gcc version 1 >&2; exit 4");
  options.compiler = temporary / "broken";
  EXPECT_NE(compiler_fact(options).problem.find("code 4"), std::string::npos);
}

}  // namespace
}  // namespace inductorfs::fingerprint
