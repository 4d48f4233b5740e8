// SPDX-License-Identifier: Apache-2.0
// This host's own interpreter and compilers.
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "fake_packages.h"
#include "fingerprint/compiler_files.h"
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

/// The compiler of this host, seen from a mount namespace of its own. Needs external synchronisation.
class OtherNamespace {
 public:
  /// `hides`: this file takes the place of `hidden` there; empty for none.
  OtherNamespace(const std::string& hides, const std::string& hidden) {
    int ready[2];
    int life[2];
    if (pipe(ready) != 0 || pipe(life) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      (void)close(life[1]);
      const bool done = unshare(CLONE_NEWNS) == 0 && mount("", "/", "", MS_REC | MS_PRIVATE, nullptr) == 0 &&
                        (hides.empty() || mount(hides.c_str(), hidden.c_str(), "", MS_BIND, nullptr) == 0);
      char byte = done ? 'y' : 'n';
      (void)!write(ready[1], &byte, 1);
      (void)!read(life[0], &byte, 1);
      _exit(0);
    }
    for (const int end : {ready[1], life[0]}) (void)close(end);
    life_ = life[1];
    char byte = 'n';
    made_ = read(ready[0], &byte, 1) == 1 && byte == 'y';
    (void)close(ready[0]);
  }
  ~OtherNamespace() {
    (void)close(life_);
    (void)waitpid(pid_, nullptr, 0);
  }
  OtherNamespace(const OtherNamespace&) = delete;
  OtherNamespace& operator=(const OtherNamespace&) = delete;
  [[nodiscard]] bool made() const { return made_; }
  [[nodiscard]] InRoot files() const {
    auto root = InRoot::open("/proc/" + std::to_string(pid_) + "/root");
    return root ? std::move(*root) : InRoot::host();
  }

 private:
  pid_t pid_ = -1;
  int life_ = -1;
  bool made_ = false;
};

TEST(RealCompilers, AreTheSameThroughAMountNamespace) {
  const inductorfs::testing::TemporaryDirectory temporary;
  const CompilerCall call{"g++", "/usr/bin:/bin"};
  const CompilerCall none{"no-such-compiler", "/nowhere"};
  const Fact cpu = cpu_facts().first;
  KeyMemory memory("");
  const InRoot root = InRoot::host();
  const auto place = find_compiler(root, call);
  if (!place) INDUCTORFS_LACKS("g++ in /usr/bin");
  const auto files = find_compiler_files(root, place->driver, call);
  ASSERT_TRUE(files) << files.error().what();
  std::string assembler;
  for (const auto& part : files->parts) {
    if (part.name == "as") assembler = part.path;
  }
  const OtherNamespace same("", "");
  const std::string copy = temporary / "as";
  std::filesystem::copy_file(assembler, copy);
  const OtherNamespace copied(copy, assembler);
  write_text(temporary / "other",
             "\x7f"
             "ELF another assembler");
  std::filesystem::permissions(temporary / "other", std::filesystem::perms::owner_all);
  const OtherNamespace changed(temporary / "other", assembler);
  if (!same.made() || !copied.made() || !changed.made()) INDUCTORFS_LACKS("the right to make a mount namespace");

  EXPECT_EQ(compiler_files_fact({call, root, call}, cpu, memory).value, kHostCompiler);
  EXPECT_EQ(compiler_files_fact({call, same.files(), call}, cpu, memory).value, kHostCompiler);
  const std::string first = temporary / "first";
  std::filesystem::create_directory(first);
  const CompilerCall with_first{"g++", first + ":/usr/bin:/bin"};
  EXPECT_EQ(compiler_files_fact({with_first, root, call}, cpu, memory).value, kHostCompiler) << "another PATH alone";
  std::filesystem::copy_file(temporary / "other", first + "/as");
  const Fact with_other = compiler_files_fact({with_first, root, call}, cpu, memory);
  EXPECT_NE(with_other.value, kHostCompiler) << "gcc takes its assembler from PATH";
  const Fact by_files = compiler_files_fact({call, root, none}, cpu, memory);
  ASSERT_TRUE(by_files.known) << by_files.problem;
  const Fact inside = compiler_files_fact({call, copied.files(), call}, cpu, memory);
  EXPECT_EQ(inside.value, by_files.value) << "an equal file at another inode; " << inside.problem;
  const Fact other = compiler_files_fact({call, changed.files(), call}, cpu, memory);
  EXPECT_TRUE(other.known) << other.problem;
  EXPECT_NE(other.value, by_files.value);
  EXPECT_NE(other.value, kHostCompiler);
}

TEST(RealCompilers, AreKnownByTheirFiles) {
  const InRoot root = InRoot::host();
  for (const char* name : {"g++", "clang++"}) {
    const CompilerCall call{name, "/usr/bin:/bin"};
    if (!find_compiler(root, call)) continue;
    KeyMemory memory("");
    const Fact fact = compiler_files_fact({call, root, {"no-such-compiler", "/nowhere"}}, cpu_facts().first, memory);
    EXPECT_TRUE(fact.known) << name << ": " << fact.problem;
    std::printf("%s: %s\n", name, fact.value.c_str());
  }
}

/// What a compiler could choose such an instruction for by itself: copies, loops, atomics, flushes, waits, thread-local
/// and random values, exceptions.
constexpr const char* kProgram = R"cpp(
#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <vector>
  thread_local unsigned long own = 1;
  std::atomic<unsigned long> shared{0};
  std::mutex lock;
  extern "C" void kernel(const float* in, const long* index, float* out, long n) {
    for (long i = 0; i < n; ++i) out[i] = std::exp(in[i]) / (1.0f + in[index[i]] * in[i]);
    for (long i = 0; i < n; ++i) __builtin_prefetch(out + i + 64, 1);
  }
  unsigned long count(unsigned long many) {
    std::lock_guard<std::mutex> guard(lock);
    while (shared.load(std::memory_order_acquire) != 0) __builtin_ia32_pause();
    unsigned long expected = many;
    shared.compare_exchange_strong(expected, many + own);
    own += shared.fetch_add(many) + __builtin_popcountl(many) + __builtin_ctzl(many | 1);
    return own;
  }
  void copy(std::vector<char>& to, const std::vector<char>& from) {
    if (to.size() < from.size()) throw 1;
    std::memcpy(to.data(), from.data(), from.size());
    std::memset(to.data(), 0, 4096);
    __atomic_store_n(reinterpret_cast<unsigned long*>(to.data()), own, __ATOMIC_SEQ_CST);
  }
  int draw() {
    std::random_device device;
    return static_cast<int>(device()) + std::mt19937(1)();
  }
)cpp";

/// The code that a compiler makes of the program with this option; empty where it does not know it.
std::string code_of(const std::string& compiler, const std::string& source, const std::string& option,
                    const std::string& out) {
  const std::string command = compiler + " -std=c++17 -O3 -ffast-math -march=x86-64-v3 -fPIC " + option + " -S -o " +
                              out + " " + source + " 2>/dev/null";
  if (std::system(command.c_str()) != 0) return {};  // NOLINT(concurrency-mt-unsafe,bugprone-command-processor)
  return testing::read_text(out);
}

TEST(RealCompilers, MakeTheSameCodeWithoutWhatIsOnlyAskedFor) {
  const inductorfs::testing::TemporaryDirectory temporary;
  const std::string source = temporary / "program.cc";
  write_text(source, kProgram);
  const std::string empty = temporary / "empty.cc";
  write_text(empty, "");
  size_t compared = 0;
  for (const std::string compiler : {"g++", "clang++"}) {
    const std::string plain = code_of(compiler, source, "", temporary / "plain.s");
    if (plain.empty() || plain.find("%xmm") == std::string::npos) continue;  // none here, or not for x86-64
    EXPECT_NE(code_of(compiler, source, "-mno-fma", temporary / "less.s"), plain) << "the program tells nothing";
    std::string known;  // options that are not another compiler's, or of a newer one
    for (const std::string_view feature : only_asked_for()) {
      const std::string option = " -m" + std::string(feature);
      if (code_of(compiler, empty, option, temporary / "empty.s").empty()) continue;
      known += option;
      ++compared;
    }
    EXPECT_EQ(code_of(compiler, source, known, temporary / "more.s"), plain) << compiler << known;
  }
  if (compared == 0) INDUCTORFS_LACKS("g++ or clang++ for x86-64");
}

}  // namespace
}  // namespace inductorfs::fingerprint
