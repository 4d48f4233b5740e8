// SPDX-License-Identifier: Apache-2.0
// This host's own interpreter and compilers.
#include <gtest/gtest.h>
#include <poll.h>

#include <filesystem>
#include <string>

#include "fake_packages.h"
#include "fingerprint/facts.h"
#include "support/lacks.h"
#include "support/temporary_directory.h"

namespace inductorfs::fingerprint {
namespace {

using testing::memory_name;
using testing::write_text;

TEST(RealPython, IsRememberedWithWhatItsAnswerDependsOn) {
  const inductorfs::testing::TemporaryDirectory temporary;
  constexpr const char* kPython = "/usr/bin/python3";
  if (!std::filesystem::exists(kPython)) INDUCTORFS_LACKS("/usr/bin/python3");
  const std::string venv = temporary / "venv";
  const std::string site = venv + "/lib/" + std::filesystem::canonical(kPython).filename().string() + "/site-packages";
  std::filesystem::create_directories(venv + "/bin");
  std::filesystem::create_symlink(kPython, venv + "/bin/python");
  write_text(venv + "/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\n");
  write_text(site + "/hook.pth", "import sys\n");  // its files alone do not say where torch is
  ProbeOptions real;
  real.python = venv + "/bin/python";
  KeyMemory memory("");
  auto first = learn_python(real, memory);
  ASSERT_TRUE(first) << first.error().to_string();
  // What has just been written may change again within the resolution of its time: it is remembered a moment later.
  const auto is_kept = [&] { return memory.find("python files " + memory_name(first->executable), "").has_value(); };
  for (const Deadline end = Deadline::after(Milliseconds(20000)); !is_kept() && !end.passed();) {
    (void)poll(nullptr, 0, 100);
    first = learn_python(real, memory);
  }
  const auto files = memory.find("python files " + memory_name(first->executable), "");
  ASSERT_TRUE(files) << first->executable;
  EXPECT_NE(files->find(first->executable + "\n"), std::string::npos);
  EXPECT_NE(files->find("-packages\n"), std::string::npos) << *files;
  const auto second = learn_python(real, memory);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->soabi, first->soabi);
  EXPECT_EQ(second->extensions, first->extensions);
}

TEST(RealCompilers, AgreeWithTheCpuFacet) {
  const Fact cpu = cpu_facts().first;
  size_t asked = 0;
  for (const char* name : {"g++", "clang++"}) {
    ProbeOptions options;
    options.compiler = name;
    KeyMemory nothing("");
    const Fact fact = compiler_fact(options, cpu, nothing);
    if (!fact.known || cpu.value.find("x86_64") == std::string::npos) continue;
    ++asked;
    EXPECT_NE(fact.details.find("native_march="), std::string::npos) << name << ": " << fact.details;
    EXPECT_EQ(fact.details.find("warning"), std::string::npos) << name << ": " << fact.details << "\n" << cpu.value;
  }
  if (asked == 0) INDUCTORFS_LACKS("g++ or clang++ for x86-64");
}

}  // namespace
}  // namespace inductorfs::fingerprint
