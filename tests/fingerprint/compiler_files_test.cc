// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/facts/compiler_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "fake_packages.h"
#include "fingerprint/facts/facts.h"
#include "support/emulator.h"
#include "support/temporary_directory.h"

namespace inductorfs::fingerprint {
namespace {

using inductorfs::testing::TemporaryDirectory;
using testing::write_script;
using testing::write_text;
namespace fs = std::filesystem;

const std::string kTarget = "x86_64-linux-gnu";
const std::string kNul(1, '\0');

std::string elf(const std::string& text) {
  return "\x7f"
         "ELF" +
         text;
}
std::string gcc_driver(const std::string& version) {
  return elf(kNul + "gcc version %s %s\n" + kNul + version + kNul + kTarget + kNul + "cc1plus" + kNul);
}

/// A made-up image with a compiler. Needs external synchronisation.
class Image {
 public:
  explicit Image(std::string root) : root_(std::move(root)) { fs::create_directories(root_); }
  void program(const std::string& path, const std::string& text) const {
    write_text(root_ + path, text);
    fs::permissions(root_ + path, fs::perms::owner_all);
  }
  void link(const std::string& target, const std::string& path) const {
    fs::create_directories(fs::path(root_ + path).parent_path());
    fs::remove(root_ + path);
    fs::create_symlink(target, root_ + path);
  }
  void add_gcc(const std::string& prefix = "/usr", const std::string& version = "12.2.0") const {
    const std::string major = version.substr(0, version.find('.'));
    program(prefix + "/bin/" + kTarget + "-g++-" + major, gcc_driver(version));
    link(kTarget + "-g++-" + major, prefix + "/bin/g++-" + major);
    link("g++-" + major, prefix + "/bin/g++");
    const std::string home = prefix + "/lib/gcc/" + kTarget + "/" + major;
    program(home + "/cc1plus", elf("cc1plus " + version));
    program(home + "/collect2", elf("collect2 " + version));
    program("/usr/bin/as", elf("as"));
    program("/usr/bin/ld", elf("ld"));
    program("/usr/lib/" + kTarget + "/libstdc++.so.6.0.30", elf("libstdc++"));
    link("libstdc++.so.6.0.30", "/usr/lib/" + kTarget + "/libstdc++.so.6");
  }
  void add_clang() const {
    program("/usr/lib/llvm-14/bin/clang", elf(kNul + "libclang-cpp.so.14" + kNul + "libLLVM-14.so.1" + kNul));
    link("../lib/llvm-14/bin/clang", "/usr/bin/clang++");
    program("/usr/lib/llvm-14/lib/libclang-cpp.so.14", elf("__clang_version__" + kNul + "14.0.6" + kNul));
    program("/usr/lib/llvm-14/lib/libLLVM-14.so.1", elf("llvm"));
    write_text(root_ + "/usr/lib/llvm-14/lib/clang/14.0.6/include/immintrin.h", "intrinsics");
    write_text(root_ + "/usr/lib/gcc/" + kTarget + "/12/crtbegin.o", "crtbegin");
  }
  [[nodiscard]] Fact fact(const CompilerCall& call, const std::string& flags = "") const {
    KeyMemory memory("");
    Fact cpu = known_fact("arch=x86_64", "test");
    if (!flags.empty()) cpu.details = canonical({{kOnlyAskedForKey, flags}});
    const auto root = InRoot::open(root_);
    return root ? compiler_fact({call, *root}, cpu, memory) : unknown_fact(root.error().what());
  }
  [[nodiscard]] Fact fact(const std::string& command = "g++") const {
    return fact({command, "/usr/local/bin:/usr/bin"});
  }
  [[nodiscard]] const std::string& root() const { return root_; }

 private:
  std::string root_;
};

class CompilerFilesTest : public ::testing::Test {
 protected:
  void SetUp() override { INDUCTORFS_NEEDS_OPENAT2(); }
  void expect_unknown(const Fact& fact, const std::string& why) {
    EXPECT_FALSE(fact.known) << fact.value;
    EXPECT_NE(fact.problem.find(why), std::string::npos) << fact.problem;
    EXPECT_EQ(fact.problem.find(image_.root()), std::string::npos) << "paths are the process's: " << fact.problem;
  }

  TemporaryDirectory temporary_;
  Image image_{temporary_ / "one"};
};

TEST_F(CompilerFilesTest, KnowGccByItsContentAlone) {
  image_.add_gcc();
  const Image other(temporary_ / "elsewhere/two");
  other.add_gcc();
  const Fact fact = image_.fact();
  ASSERT_TRUE(fact.known) << fact.problem;
  EXPECT_EQ(value_of(fact.value, "kind"), "gcc");
  EXPECT_EQ(value_of(fact.value, "version"), "12");
  EXPECT_EQ(value_of(fact.value, "target"), kTarget);
  EXPECT_EQ(value_of(fact.value, "libstdcxx"), "libstdc++.so.6.0.30");
  EXPECT_EQ(other.fact().value, fact.value);
  EXPECT_EQ(image_.fact("/usr/bin/g++-12").value, fact.value) << "by another name";
}

TEST_F(CompilerFilesTest, TellCompilersApartByEachPart) {
  image_.add_gcc();
  const std::string before = image_.fact().value;
  const std::string home = "/usr/lib/gcc/" + kTarget + "/12/";
  for (const std::string& part : {home + "cc1plus", home + "collect2", std::string("/usr/bin/as"),
                                  std::string("/usr/bin/ld"), "/usr/bin/" + kTarget + "-g++-12"}) {
    const std::string was = testing::read_text(image_.root() + part);
    image_.program(part, was + "changed");
    EXPECT_NE(image_.fact().value, before) << part;
    image_.program(part, was);
  }
  EXPECT_EQ(image_.fact().value, before);
  image_.program("/usr/lib/" + kTarget + "/libstdc++.so.6.0.33", elf("libstdc++"));
  image_.link("libstdc++.so.6.0.33", "/usr/lib/" + kTarget + "/libstdc++.so.6");
  EXPECT_NE(image_.fact().value, before);
}

TEST_F(CompilerFilesTest, SayWhatTheCpuTurnsOn) {
  image_.add_gcc();
  const CompilerCall call{"g++", "/usr/bin"};
  EXPECT_EQ(value_of(image_.fact(call, "rtm hle").value, "native_more"), "rtm hle");
  EXPECT_NE(image_.fact(call, "rtm").value, image_.fact(call).value);
}

TEST_F(CompilerFilesTest, TakeTheAssemblerThatGccTakes) {
  image_.add_gcc();
  const std::string before = image_.fact().value;
  image_.program("/usr/local/bin/as", elf("another as"));
  const std::string by_path = image_.fact().value;
  EXPECT_NE(by_path, before) << "the first in PATH";
  image_.program("/usr/" + kTarget + "/bin/as", elf("as"));
  EXPECT_EQ(image_.fact().value, before) << "that of gcc's own tools goes first";
}

TEST_F(CompilerFilesTest, ChooseTheVersionOfTheDriver) {
  image_.add_gcc("/usr", "11.4.0");
  const std::string eleven = image_.fact().value;
  image_.add_gcc("/usr", "12.2.0");
  EXPECT_EQ(value_of(image_.fact().value, "version"), "12");
  EXPECT_EQ(image_.fact("g++-11").value, eleven);
}

TEST_F(CompilerFilesTest, FindTheCompilerBehindCcache) {
  image_.add_gcc();
  const std::string plain = image_.fact().value;
  image_.program("/usr/bin/ccache", elf("ccache"));
  EXPECT_EQ(image_.fact("ccache g++").value, plain);
  image_.link("../../bin/ccache", "/usr/lib/ccache/g++");
  EXPECT_EQ(image_.fact(CompilerCall{"g++", "/usr/lib/ccache:/usr/bin"}).value, plain) << "a link that masquerades";
  expect_unknown(image_.fact("ccache"), "is named without a compiler");
  expect_unknown(image_.fact("ccache no-such"), "no-such is not found");
  expect_unknown(image_.fact(CompilerCall{"g++", "/usr/lib/ccache"}), "g++ is not found");
  expect_unknown(image_.fact(compiler_call({{"CXX", "ccache g++"}, {"PATH", "/usr/bin"}, {"CCACHE_PREFIX", "distcc"}})),
                 "CCACHE_PREFIX is set");
}

TEST_F(CompilerFilesTest, KnowClangWithItsLibrariesAndItsHeaders) {
  image_.add_gcc();
  image_.add_clang();
  const Fact fact = image_.fact("clang++");
  ASSERT_TRUE(fact.known) << fact.problem;
  EXPECT_EQ(value_of(fact.value, "kind"), "clang");
  EXPECT_EQ(value_of(fact.value, "version"), "14.0.6");
  const std::string lib = "/usr/lib/llvm-14/lib/";
  for (const char* part : {"libclang-cpp.so.14", "libLLVM-14.so.1", "clang/14.0.6/include/immintrin.h"}) {
    const std::string was = testing::read_text(image_.root() + lib + part);
    image_.program(lib + part, was + "changed");
    EXPECT_NE(image_.fact("clang++").value, fact.value) << part;
    image_.program(lib + part, was);
  }
  fs::remove(image_.root() + lib + "libLLVM-14.so.1");
  expect_unknown(image_.fact("clang++"), "libLLVM-14.so.1, which is not found");
}

TEST_F(CompilerFilesTest, DoNotKnowWhatTheyCannotTell) {
  expect_unknown(image_.fact(CompilerCall{"g++", "/usr/bin"}), "the C++ compiler: g++ is not found");
  image_.add_gcc();
  image_.program("/usr/local/bin/g++", "#!/bin/sh\nexec /usr/bin/g++ -O0 \"$@\"\n");
  expect_unknown(image_.fact(), "/usr/local/bin/g++ is no program but a script");
  image_.program("/usr/local/bin/g++", elf("another compiler"));
  expect_unknown(image_.fact(), "is neither gcc nor clang");
  fs::remove(image_.root() + "/usr/local/bin/g++");
  ASSERT_EQ(mkfifo((image_.root() + "/usr/local/bin/g++").c_str(), 0777), 0);
  EXPECT_TRUE(image_.fact().known) << "a FIFO is no program, and is not waited for";
  expect_unknown(image_.fact("bin/g++"), "bin/g++ is not found as an absolute path");
  expect_unknown(image_.fact("g++ -B/opt/tools"), "CXX has -B/opt/tools");
  expect_unknown(image_.fact("g++ '-m32'"), "has quotes");
  expect_unknown(image_.fact("g++\x1b[31m"), "has quotes");
  expect_unknown(image_.fact(compiler_call({{"PATH", "/usr/bin"}, {"COMPILER_PATH", "/x"}})), "COMPILER_PATH is set");
  EXPECT_NE(image_.fact("g++ -m32").value, image_.fact("g++").value);
  for (const char* part : {"/usr/bin/as", "/usr/bin/ld"}) {
    ASSERT_EQ(truncate((image_.root() + part).c_str(), off_t{1100} << 20), 0);
  }
  expect_unknown(image_.fact(), "more than a compiler can have");
  ASSERT_EQ(truncate((image_.root() + "/usr/bin/ld").c_str(), 100), 0);
  fs::remove(image_.root() + "/usr/bin/as");
  expect_unknown(image_.fact(), "has no as");
}

TEST_F(CompilerFilesTest, FollowNoLinkOutOfTheRoot) {
  image_.add_gcc();
  write_text(temporary_ / "outside", gcc_driver("12.2.0"));
  fs::permissions(temporary_ / "outside", fs::perms::owner_all);
  image_.link(temporary_ / "outside", "/usr/local/bin/g++");
  EXPECT_EQ(image_.fact().source, "/usr/bin/" + kTarget + "-g++-12") << "the link leads nowhere in there";
  image_.link("/../../../usr/bin/g++", "/usr/local/bin/g++");
  EXPECT_EQ(image_.fact().source, "/usr/bin/" + kTarget + "-g++-12");
  image_.link("g++", "/usr/local/bin/g++");
  EXPECT_TRUE(image_.fact().known) << "a link to itself is passed over";
}

TEST(CompilerCall, IsWhatTorchWouldRun) {
  EXPECT_EQ(compiler_call({}), (CompilerCall{"g++", "/bin:/usr/bin"}));
  EXPECT_EQ(compiler_call({{"CXX", "clang++"}, {"PATH", "/a:/b"}, {"HOME", "/h"}}), (CompilerCall{"clang++", "/a:/b"}));
}

}  // namespace
}  // namespace inductorfs::fingerprint
