// SPDX-License-Identifier: Apache-2.0
// This host's own interpreter and compilers.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "fake_packages.h"
#include "fingerprint/common/child.h"
#include "fingerprint/facts/compiler_files.h"
#include "fingerprint/facts/cpu_features.h"
#include "fingerprint/facts/facts.h"
#include "inductorfs/base/text.h"
#include "support/lacks.h"
#include "support/temporary_directory.h"

namespace inductorfs::fingerprint {
namespace {

using testing::write_text;

/// What a command says on both its streams.
std::string said_by(const std::string& command) {
  const auto answer = run_child({"/bin/sh", "-c", command + " 2>&1"}, Milliseconds(20000));
  return answer && answer->exit_code == 0 ? answer->out : std::string();
}

/// The instruction set extensions of which `g++ ... -Q --help=target` says that they are enabled.
Flags gcc_extensions(const std::string& march) {
  Flags extensions;
  const std::string text = said_by("g++ -march=" + march + " -Q --help=target");
  for (const std::string_view line : parts_of(text, '\n')) {
    const size_t name = line.find("-m");
    if (name == std::string_view::npos || !line.ends_with("[enabled]")) continue;
    extensions.emplace(line.substr(name + 2, line.find_first_of(" \t", name) - name - 2));
  }
  return extensions;
}

/// Those that `clang++ -###` turns on.
Flags clang_extensions(const std::string& march) {
  Flags extensions;
  constexpr std::string_view kFeature = "\"-target-feature\" \"+";
  const std::string text = said_by("clang++ -march=" + march + " -### -x c++ -c /dev/null -o /dev/null");
  for (size_t at = text.find(kFeature); at != std::string::npos; at = text.find(kFeature, at + 1)) {
    const size_t name = at + kFeature.size();
    extensions.insert(text.substr(name, text.find('"', name) - name));
  }
  return extensions;
}

/// Hosts that differ in what -march=native turns on and the facet does not list would share C++ objects.
TEST(RealCompilers, TurnOnNothingThatTheCpuFacetDoesNotList) {
  const auto listed = value_of(cpu_facts().first.value, "flags");
  // Names of a compiler for what other names say too, for what is no instruction, and for instructions of the kernel
  // (gcc 12 enables mwait whatever CPUID says of it).
  const Flags derived = {"abm", "sse4", "crc32", "mwait", "x87", "64bit"};
  size_t asked = 0;
  for (const auto& extensions_of : {gcc_extensions, clang_extensions}) {
    Flags native = extensions_of("native");
    // What is enabled without any extension too is the calling convention and the like.
    for (const std::string& name : extensions_of("x86-64")) native.erase(name);
    if (native.empty() || !listed) continue;
    ++asked;
    for (const std::string_view word : words_of(*listed)) native.erase(std::string(word));
    for (const std::string& name : native) {
      EXPECT_TRUE(derived.contains(name) || is_only_asked_for(name)) << name << " is not in " << *listed;
    }
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

  EXPECT_EQ(compiler_fact({call, root, call}, cpu, memory).value, kHostCompiler);
  EXPECT_EQ(compiler_fact({call, same.files(), call}, cpu, memory).value, kHostCompiler);
  const std::string first = temporary / "first";
  std::filesystem::create_directory(first);
  const CompilerCall with_first{"g++", first + ":/usr/bin:/bin"};
  EXPECT_EQ(compiler_fact({with_first, root, call}, cpu, memory).value, kHostCompiler) << "another PATH alone";
  std::filesystem::copy_file(temporary / "other", first + "/as");
  const Fact with_other = compiler_fact({with_first, root, call}, cpu, memory);
  EXPECT_NE(with_other.value, kHostCompiler) << "gcc takes its assembler from PATH";
  const Fact by_files = compiler_fact({call, root}, cpu, memory);
  ASSERT_TRUE(by_files.known) << by_files.problem;
  const Fact inside = compiler_fact({call, copied.files(), call}, cpu, memory);
  EXPECT_EQ(inside.value, by_files.value) << "an equal file at another inode; " << inside.problem;
  const Fact other = compiler_fact({call, changed.files(), call}, cpu, memory);
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
    const Fact fact = compiler_fact({call, root}, cpu_facts().first, memory);
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
