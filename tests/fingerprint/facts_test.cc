// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/facts/facts.h"

#include <gtest/gtest.h>

#include "fake_packages.h"
#include "support/temporary_directory.h"

namespace inductorfs::fingerprint {
namespace {

using inductorfs::testing::TemporaryDirectory;
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

X86Cpu x86(const Flags& features) {
  X86Cpu cpu;
  cpu.vendor = "GenuineIntel";
  cpu.family = 6;
  cpu.model = 143;
  cpu.stepping = 8;
  cpu.microarchitecture = "sapphirerapids";
  cpu.features = features;
  return cpu;
}

CpuSight sight(const std::string& cpuinfo, const X86Cpu& cpu) { return {cpuinfo, "x86_64", 0xe7, 0, cpu}; }

TEST(CpuFact, IsTheSameForTwoHostsThatRunTheSameCode) {
  const Fact one = cpu_fact(sight(cpu_block("fpu sse avx2 fma constant_tsc md_clear"), x86({"sse", "avx2", "fma"})));
  EXPECT_EQ(one.value, "arch=x86_64\nflags=avx2 fma sse\nmicroarchitecture=sapphirerapids\nvendor=GenuineIntel");
  // Another kernel with other mitigations, in a virtual machine, with newer microcode, of a later stepping, with a
  // protection key register that the kernel saves.
  X86Cpu other = x86({"sse", "avx2", "fma"});
  other.stepping = 11;
  other.hypervisor = true;
  CpuSight two =
      sight(cpu_block("avx2 fma fpu sse hypervisor ibrs_enhanced") + cpu_block("avx2 fma fpu sse hypervisor"), other);
  two.xcr0 = 0x2e7;
  const size_t microcode = two.cpuinfo.find("0x2b");
  two.cpuinfo.replace(microcode, 4, "0x3c");
  EXPECT_EQ(cpu_fact(two).value, one.value);
  EXPECT_NE(cpu_fact(two).details, one.details);
  EXPECT_EQ(cpu_fact(two).digest(), one.digest());
}

TEST(CpuFact, DiffersByWhatMarchNativeWouldResolveTo) {
  const Fact base = cpu_fact(sight(cpu_block("sse avx2"), x86({"sse", "avx2"})));
  EXPECT_NE(cpu_fact(sight(cpu_block("sse avx2"), x86({"sse", "avx2", "avx512f"}))).value, base.value)
      << "what CPUID has counts, also where the kernel is too old to name it";
  X86Cpu tuned = x86({"sse", "avx2"});
  tuned.microarchitecture = "icelake-server";
  EXPECT_NE(cpu_fact(sight(cpu_block("sse avx2"), tuned)).value, base.value);
}

TEST(CpuFact, TakesFamilyAndModelWhereNoNameIsKnown) {
  X86Cpu unknown = x86({"sse"});
  unknown.microarchitecture.clear();
  const Fact fact = cpu_fact(sight(cpu_block("sse"), unknown));
  EXPECT_TRUE(has_line(fact, "family=6")) << fact.value;
  EXPECT_TRUE(has_line(fact, "model=143")) << fact.value;
}

TEST(CpuFact, LeavesOutWhatOnlySomeCoresHave) {
  X86Cpu cpu = x86({"sse", "avx2", "avx512f", "gfni"});
  cpu.hybrid = true;
  const Fact fact =
      cpu_fact(sight(cpu_block("sse avx2 avx512f constant_tsc", "151") + cpu_block("sse avx2 gfni", "154"), cpu));
  EXPECT_TRUE(has_line(fact, "flags=avx2 sse")) << fact.value;
  EXPECT_TRUE(has_line(fact, "heterogeneous=avx512f gfni")) << fact.value;
  EXPECT_TRUE(has_line(fact, "model=151,154")) << fact.value;
  EXPECT_NE(fact.details.find("hybrid=yes"), std::string::npos);
}

TEST(CpuFact, SaysWhatTheKernelAndAHypervisorWithhold) {
  X86Cpu cpu = x86({"sse"});
  cpu.withheld = {"amx-tile", "avx512f"};
  cpu.hypervisor = true;
  const Fact fact = cpu_fact(sight(cpu_block("sse"), cpu));
  EXPECT_NE(fact.details.find("withheld_by_kernel=amx-tile avx512f"), std::string::npos) << fact.details;
  EXPECT_NE(fact.details.find("hypervisor=yes"), std::string::npos);
  EXPECT_NE(fact.details.find("microcode=0x2b"), std::string::npos);
}

TEST(CpuFact, ReadsTheFormOfArmKernels) {
  const CpuSight arm{
      "processor : 0\nFeatures : fp asimd sve\nCPU implementer : 0x41\nCPU part : 0xd40\nCPU revision : 1\n",
      "aarch64",
      0,
      0,
      {}};
  EXPECT_EQ(cpu_fact(arm).value, "arch=aarch64\nflags=asimd fp sve\nmodel=0xd40\nvendor=0x41");
  EXPECT_FALSE(cpu_isa_fact(arm).known);
  EXPECT_NE(cpu_isa_fact(arm).problem.find("x86_64"), std::string::npos);
}

TEST(CpuFact, IsUnknownWithoutFlags) {
  EXPECT_FALSE(cpu_fact({"", "aarch64", 0, 0, {}}).known);
  EXPECT_FALSE(cpu_fact({"processor : 0\n", "aarch64", 0, 0, {}}).known);
  EXPECT_FALSE(cpu_fact(sight("", X86Cpu{})).known);
  EXPECT_FALSE(cpu_isa_fact(sight("", X86Cpu{})).known);
}

TEST(CpuIsaFact, FollowsTorchsConditions) {
  const auto isa = [](const Flags& features) { return cpu_isa_fact(sight("", x86(features))); };
  EXPECT_EQ(isa({"sse", "avx2", "fma"}).value,
            "amx_fp16=no\namx_tile=no\navx2=yes\navx512=no\navx512_bf16=no\navx512_vnni=no");
  const Flags large = {"fma",      "avx2",       "avx512f",    "avx512dq", "avx512bw",
                       "avx512vl", "avx512vnni", "avx512bf16", "amx-tile", "amx-fp16"};
  EXPECT_EQ(isa(large).value, "amx_fp16=yes\namx_tile=yes\navx2=yes\navx512=yes\navx512_bf16=yes\navx512_vnni=yes");
  EXPECT_TRUE(has_line(isa({"fma", "avx2", "avx512f"}), "avx512=no")) << "Knights Landing";
  const Fact mixed = cpu_isa_fact(sight(cpu_block("avx2 fma") + cpu_block("sse"), x86({"avx2", "fma"})));
  EXPECT_TRUE(has_line(mixed, "avx2=no")) << "only some cores have it";
}

TEST(CoreCount, CountsTheCoresOfItsProcessorsOnce) {
  const auto processor = [](int number, int package, int core) {
    return "processor\t: " + std::to_string(number) + "\nmodel name\t: X\nphysical id\t: " + std::to_string(package) +
           "\nsiblings\t: 4\ncore id\t\t: " + std::to_string(core) + "\ncpu cores\t: 2\napicid\t\t: 0\n\n";
  };
  // Two packages of two cores, each with two threads.
  std::string host;
  for (int i = 0; i < 8; ++i) host += processor(i, i / 2 % 2, i % 2);
  EXPECT_EQ(core_count(host, {0, 1, 2, 3, 4, 5, 6, 7}), 4U);
  EXPECT_EQ(core_count(host, {0, 4}), 1U) << "two threads of one core";
  EXPECT_EQ(core_count(host, {0, 1, 5}), 2U);
  EXPECT_EQ(core_count(host, {0}), 1U);
  EXPECT_EQ(core_count(host, {16, 17, 18}), 3U) << "a container that shows processors by other numbers";
  EXPECT_EQ(core_count("processor\t: 0\n\nprocessor\t: 1\n\n", {0, 1}), 2U) << "no cores are named";
  EXPECT_EQ(core_count("", {}), 0U);
}

TEST(ThreadCount, IsInTheCpuIsaFacetWhereTorchsKeyDoesNotHaveIt) {
  const TemporaryDirectory torch;
  EXPECT_TRUE(keys_thread_count(InRoot::host(), torch.path())) << "no Inductor, no graphs";
  write_text(torch / "_inductor/codecache.py", "from .utils import x\nself.torch_version = torch_key()\n");
  EXPECT_FALSE(keys_thread_count(InRoot::host(), torch.path()));
  write_text(torch / "_inductor/codecache.py", "self.cpp_runtime_thread_count = parallel_num_threads()\n");
  EXPECT_TRUE(keys_thread_count(InRoot::host(), torch.path()));

  Fact old = known_fact("version=2.9.1", "/torch");
  old.details = "thread_count_in_key=no";
  const Fact isa = known_fact("avx2=yes", "CPUID");
  EXPECT_EQ(with_thread_count(isa, known_fact("version=2.15.0", "/torch")).value, "avx2=yes");
  EXPECT_EQ(with_thread_count(isa, unknown_fact("x")).value, "avx2=yes");
  const Fact with = with_thread_count(isa, old);
  EXPECT_TRUE(with.known) << with.problem;
  EXPECT_GE(std::stoul(value_of(with.value, "threads").value_or("0")), 1U) << with.value;
  EXPECT_FALSE(with_thread_count(unknown_fact("an Arm"), old).known);
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

TEST(CpuFact, IsTheSameWithAndWithoutWhatIsOnlyAskedFor) {
  const std::string flags = "fpu sse avx2 rtm";
  const Fact with = cpu_fact(sight(cpu_block(flags) + cpu_block("fpu sse avx2"), x86({"sse", "avx2", "rtm", "pku"})));
  const Fact without = cpu_fact(sight(cpu_block("fpu sse avx2"), x86({"sse", "avx2"})));
  EXPECT_EQ(with.value, without.value);
  EXPECT_TRUE(with.details.find("only_asked_for=pku rtm") != std::string::npos) << with.details;
}

}  // namespace
}  // namespace inductorfs::fingerprint
