// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "fake_packages.h"
#include "fingerprint/common/child.h"
#include "fingerprint/facts/facts.h"
#include "support/lacks.h"
#include "support/temporary_directory.h"

namespace inductorfs::fingerprint {
namespace {

using testing::write_script;
using testing::write_text;

namespace fs = std::filesystem;

/// A virtual environment of this host's Python.
class PythonEnvironment : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(kPython)) INDUCTORFS_LACKS("/usr/bin/python3");
    version_ = fs::canonical(kPython).filename().string();
    site_ = venv_ + "/lib/" + version_ + "/site-packages";
    fs::create_directories(venv_ + "/bin");
    fs::create_directories(site_);
    fs::create_symlink(kPython, venv_ + "/bin/python");
    shares_packages("false");
    ASSERT_EQ(::setenv("PYTHONUSERBASE", (temporary_ / "user").c_str(), 1), 0);
  }
  void TearDown() override { ASSERT_EQ(::unsetenv("PYTHONUSERBASE"), 0); }
  void shares_packages(const std::string& value) {
    write_text(venv_ + "/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = " + value + "\n");
  }
  [[nodiscard]] Result<PythonFacts> learn() const {
    ProbeOptions options;
    options.python = venv_ + "/bin/python";
    return learn_python(options);
  }
  [[nodiscard]] PythonFacts facts() const {
    auto python = learn();
    EXPECT_TRUE(python) << python.error().to_string();
    return python ? std::move(*python) : PythonFacts();
  }
  /// What the interpreter itself says of its facts.
  [[nodiscard]] std::string said_by_interpreter() const {
    const auto answer = run_child({venv_ + "/bin/python", "-c",
                                   "import sys, sysconfig, importlib.machinery as m\n"
                                   "print(sys.executable, sys.implementation.name, '%d.%d' % sys.version_info[:2], "
                                   "sysconfig.get_config_var('SOABI'), *m.EXTENSION_SUFFIXES)\n"
                                   "print(*[p for p in sys.path if p.endswith('-packages')])"},
                                  Milliseconds(20000));
    return answer ? answer->out : answer.error().to_string();
  }
  static std::string said_by(const PythonFacts& facts) {
    std::string said = facts.executable + " " + facts.implementation + " " + facts.version + " " + facts.soabi;
    for (const std::string& suffix : facts.extensions) said += " " + suffix;
    said += "\n";
    std::string folders;
    for (const std::string& folder : facts.path) {
      if (folder.ends_with("-packages")) folders += (folders.empty() ? "" : " ") + folder;
    }
    return said + folders + "\n";
  }

  static constexpr const char* kPython = "/usr/bin/python3";
  inductorfs::testing::TemporaryDirectory temporary_;
  std::string version_;
  std::string venv_ = temporary_ / "venv";
  std::string site_;
};

TEST_F(PythonEnvironment, RunsNoCode) {
  write_text(site_ + "/x.pth", "import os; open('" + temporary_ / "ran" + "', 'w')\n");
  write_text(site_ + "/sitecustomize.py", "open('" + temporary_ / "ran" + "', 'w')\n");
  write_text(site_ + "/torch/__init__.py", "open('" + temporary_ / "ran" + "', 'w')\n");
  EXPECT_EQ(facts().torch, fs::canonical(site_ + "/torch"));
  EXPECT_FALSE(fs::exists(temporary_ / "ran"));
}

TEST_F(PythonEnvironment, OfTheActiveEnvironmentIsTheDefault) {
  ASSERT_EQ(::setenv("VIRTUAL_ENV", venv_.c_str(), 1), 0);
  const auto python = learn_python(ProbeOptions{});
  ASSERT_EQ(::unsetenv("VIRTUAL_ENV"), 0);
  ASSERT_TRUE(python) << python.error().to_string();
  EXPECT_EQ(python->executable, venv_ + "/bin/python");
}

TEST_F(PythonEnvironment, IsWhatItsInterpreterSays) {
  write_text(site_ + "/x.pth", temporary_ / "elsewhere" + "\n# import a comment\n");
  write_text(temporary_ / "elsewhere/torch/__init__.py", "");
  write_text(temporary_ / "user/lib/" + version_ + "/site-packages/torch/__init__.py", "");
  EXPECT_EQ(said_by(facts()), said_by_interpreter());
  EXPECT_EQ(facts().torch, fs::canonical(temporary_ / "elsewhere/torch"));
}

TEST_F(PythonEnvironment, MayShareThePackagesOfItsInterpreter) {
  shares_packages("True");
  const std::string user = temporary_ / "user/lib/" + version_ + "/site-packages";
  write_text(user + "/torch/__init__.py", "");
  EXPECT_EQ(said_by(facts()), said_by_interpreter());
  EXPECT_EQ(facts().torch, fs::canonical(user + "/torch"));
  write_text(site_ + "/torch/__init__.py", "");
  EXPECT_EQ(facts().torch, fs::canonical(site_ + "/torch")) << "its own go first";
  shares_packages("no");
  EXPECT_EQ(said_by(facts()), said_by_interpreter());
}

TEST_F(PythonEnvironment, IsInDoubtWhereAHookMaySayMore) {
  write_text(site_ + "/torch/__init__.py", "");
  write_text(site_ + "/distutils-precedence.pth", "import os; os\n");
  EXPECT_EQ(facts().doubt, "") << "setuptools' file adds no package";
  write_text(site_ + "/x.pth", "import hook\n");
  EXPECT_NE(facts().doubt.find("x.pth runs code"), std::string::npos) << facts().doubt;
  EXPECT_NE(facts().torch, "") << "what is there is no doubt of";
  KeyMemory nothing("");
  const Fact triton = triton_fact(InRoot::host(), learn(), nothing);
  EXPECT_FALSE(triton.known) << triton.value;
  EXPECT_NE(triton.problem.find("x.pth runs code"), std::string::npos) << triton.problem;
  fs::remove(site_ + "/x.pth");
  fs::remove_all(site_ + "/torch");
  write_text(site_ + "/torch.py", "");
  EXPECT_NE(facts().doubt.find("torch.py"), std::string::npos) << facts().doubt;
  EXPECT_FALSE(torch_fact(InRoot::host(), learn(), nothing).known);
}

TEST_F(PythonEnvironment, HasWhatPipInstalledInPlace) {
  const std::string source = temporary_ / "source";
  write_text(source + "/torch/__init__.py", "");
  write_text(site_ + "/__editable__.own-1.0.pth",
             "import __editable___own_1_0_finder; __editable___own_1_0_finder.install()");
  const std::string finder = site_ + "/__editable___own_1_0_finder.py";
  EXPECT_NE(facts().doubt, "") << "there is no finder";
  write_text(finder, "MAPPING: dict[str, str] = {'own': '" + source + "/own'}\n");
  EXPECT_EQ(facts().torch + facts().doubt, "");
  write_text(finder, "MAPPING: dict[str, str] = {'torch': '" + source + "/torch'}\n");
  EXPECT_EQ(facts().torch, fs::canonical(source + "/torch"));
  write_text(finder, "NAMESPACES = ['torch']\n");
  EXPECT_EQ(facts().torch, "");
  EXPECT_NE(facts().doubt.find("pip install -e"), std::string::npos) << facts().doubt;
}

TEST_F(PythonEnvironment, IsUnknownWhereItsProgramIsNone) {
  fs::remove(venv_ + "/bin/python");
  EXPECT_NE(learn().error().what().find("no such program"), std::string::npos);
  write_script(venv_ + "/bin/python", "exec " + std::string(kPython));
  const std::string why = python_fact(learn()).problem;
  EXPECT_NE(why.find("or a script; name a Python interpreter with --python"), std::string::npos) << why;
  KeyMemory nothing("");
  EXPECT_EQ(torch_fact(InRoot::host(), learn(), nothing).problem, why)
      << "whoever asks for torch needs the remedy, too";
  EXPECT_EQ(triton_fact(InRoot::host(), learn(), nothing).problem, why);
  fs::remove(venv_ + "/bin/python");
  fs::create_symlink("/bin/ls", venv_ + "/bin/python");
  EXPECT_NE(learn().error().what().find("no Python interpreter"), std::string::npos);
}

TEST_F(PythonEnvironment, DoesNotWaitForAFifo) {
  ASSERT_EQ(::mkfifo((site_ + "/y.pth").c_str(), 0666), 0);
  EXPECT_TRUE(learn());
}

}  // namespace
}  // namespace inductorfs::fingerprint
