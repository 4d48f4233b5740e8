// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "child.h"
#include "facts.h"
#include "inductorfs/base/text.h"
#include "inductorfs/codec/digest.h"
#include "owners.h"

namespace inductorfs::fingerprint {
namespace {

namespace fs = std::filesystem;

/// As torch/_inductor/cpp_builder.py get_cpp_compiler: CXX, else g++. It splits the command into words (`ccache g++`).
std::vector<std::string> compiler_command(const ProbeOptions& options) {
  std::string text = options.compiler;
  const char* cxx = std::getenv("CXX");  // probe() runs before anything changes the environment
  if (text.empty() && cxx != nullptr) text = cxx;
  std::vector<std::string> words;
  size_t at = 0;
  while ((at = text.find_first_not_of(' ', at)) != std::string::npos) {
    const size_t end = std::min(text.find(' ', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  if (words.empty()) words.emplace_back("g++");
  return words;
}

/// A compiler that is asked: its words and who could change what they run. Immutable after construction.
struct Compiler {
  std::vector<std::string> command;
  Owners owners;
  Milliseconds deadline;

  [[nodiscard]] Result<ChildAnswer> ask(const std::vector<std::string>& more) const {
    std::vector<std::string> words = command;
    words.insert(words.end(), more.begin(), more.end());
    return run_as_owner(words, owners, deadline);
  }
};

/// Counts the programs and paths that the words name (`ccache g++`, `-B/opt/tools`), and the folders in which a
/// compiler looks for its parts.
Result<Owners> owners_of(const std::vector<std::string>& command) {
  Owners owners;
  if (geteuid() != 0) return owners;
  for (size_t i = 0; i < command.size(); ++i) {
    const size_t slash = command[i].find('/');
    const bool is_option = command[i].starts_with('-');
    if (is_option && slash == std::string::npos) continue;
    const std::string file = program_file(is_option ? command[i].substr(slash) : command[i]);
    std::error_code error;
    const fs::path real = file.empty() ? fs::path() : fs::canonical(file, error);
    if (i == 0 && (file.empty() || error)) return fail(ErrorCode::kNotFound, command[i] + ": no such program");
    if (file.empty() || error) continue;
    INDUCTORFS_TRY(owners.add(file));
    const fs::path folder = fs::is_directory(real, error) ? real : real.parent_path();
    INDUCTORFS_TRY(owners.add_folder(folder));
    for (const char* parts : {"lib/gcc", "libexec/gcc", "lib/clang"}) {
      const fs::path path = folder.parent_path() / parts;
      if (fs::exists(path, error)) INDUCTORFS_TRY(owners.add_folder(path));
    }
  }
  return owners;
}

/// The name of the C++ library that this compiler links, e.g. libstdc++.so.6.0.30: its version is in no `-v` text.
std::string standard_library(const Compiler& compiler) {
  const auto answer = compiler.ask({"-print-file-name=libstdc++.so.6"});
  if (!answer || answer->exit_code != 0) return "unknown";
  const std::string path = answer->out.substr(0, answer->out.find('\n'));
  std::error_code error;
  const auto real = std::filesystem::canonical(path, error);
  return error ? "unknown" : real.filename().string();
}

/// The words of a command line as clang's -### prints it: each in double quotes.
std::vector<std::string> quoted_words(std::string_view text) {
  std::vector<std::string> words;
  size_t at = 0;
  while ((at = text.find('"', at)) != std::string_view::npos) {
    const size_t end = text.find('"', at + 1);
    if (end == std::string_view::npos) break;
    words.emplace_back(text.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return words;
}

bool is_clang(const Lines& identity) {
  return std::any_of(identity.begin(), identity.end(), [](const auto& line) {
    return line.first == "version" && line.second.find("clang version ") != std::string::npos;
  });
}

std::string output_of(const Compiler& compiler, const std::vector<std::string>& more) {
  const auto answer = compiler.ask(more);
  return answer && answer->exit_code == 0 ? answer->out + answer->err : std::string();
}

NativeTarget native_target(const Compiler& compiler, bool clang) {
  if (clang) {
    return clang_native(
        output_of(compiler, {"-march=native", "-###", "-x", "c++", "-c", "/dev/null", "-o", "/dev/null"}));
  }
  NativeTarget native = gcc_native(output_of(compiler, {"-march=native", "-Q", "--help=target"}));
  // What is enabled without any extension too is the calling convention and the like.
  const NativeTarget plain = gcc_native(output_of(compiler, {"-march=x86-64", "-Q", "--help=target"}));
  if (plain.march.empty()) return native;
  std::erase_if(native.features, [&plain](const std::string& name) { return plain.features.contains(name); });
  return native;
}

/// Names of a compiler for what other names say too, for what is no instruction, and for instructions of the kernel
/// (gcc 12 enables mwait whatever CPUID says of it).
constexpr std::string_view kDerived[] = {"abm", "sse4", "crc32", "mwait", "x87", "64bit"};

/// What the compiler would use here that the cpu facet does not list.
Flags beyond(const NativeTarget& native, const Fact& cpu) {
  const std::optional<std::string> flags = value_of(cpu.value, "flags");
  if (!flags) return {};
  Flags listed;
  for (const std::string_view word : words_of(*flags)) listed.emplace(word);
  Flags result;
  for (const std::string& name : native.features) {
    const bool derived = std::find(std::begin(kDerived), std::end(kDerived), name) != std::end(kDerived);
    if (!derived && !is_only_asked_for(name) && !listed.contains(name)) result.insert(name);
  }
  return result;
}

/// What -march=native is to this compiler. In the details alone: a host without a compiler can run what an equal CPU's
/// compiler made, so the cpu facet comes from the CPU and the kernel.
std::string native_details(const Compiler& compiler, bool clang, const Fact& cpu) {
  const NativeTarget native = native_target(compiler, clang);
  if (native.march.empty()) return "warning=the compiler does not say what -march=native is";
  Lines lines = {{"native_march", native.march}};
  if (!native.mtune.empty()) lines.emplace_back("native_mtune", native.mtune);
  std::string features;
  for (const std::string& name : native.features) features += (features.empty() ? "" : " ") + name;
  lines.emplace_back("native_features", features);
  std::string missing;
  for (const std::string& name : beyond(native, cpu)) missing += " " + name;
  if (!missing.empty()) {
    lines.emplace_back("warning",
                       "-march=native turns on what the cpu facet does not list:" + missing +
                           "; hosts that differ in it would share C++ objects: tighten the family cpp_binary");
  }
  return canonical(lines);
}

/// The compiler takes longer to say this than its version. Remembered while its identity and the CPU stay the same;
/// only details, so that an identity that says too little (a wrapper's) cannot make a wrong scope.
std::string remembered_details(const Compiler& compiler, const Lines& identity, const Fact& cpu, KeyMemory& memory) {
  if (value_of(cpu.value, "arch") != "x86_64") return {};
  std::string name = "native";
  for (const std::string& word : compiler.command) name += " " + word;
  const std::string manifest = codec::digest_of(canonical(identity)).to_hex() + cpu.digest().to_hex();
  if (auto known = memory.find(name, manifest)) return *known;
  std::string details = native_details(compiler, is_clang(identity), cpu);
  memory.keep(name, manifest, details);
  return details;
}

}  // namespace

Lines compiler_identity(std::string_view text) {
  constexpr std::pair<std::string_view, const char*> kPrefixes[] = {
      {"Target: ", "target"}, {"Thread model: ", "threads"}, {"Configured with: ", "configured"}};
  Lines lines;
  bool versioned = false;
  while (!text.empty()) {
    std::string_view line = take_part(text, '\n');
    while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.remove_suffix(1);
    for (const auto& [prefix, name] : kPrefixes) {
      if (line.starts_with(prefix)) lines.emplace_back(name, line.substr(prefix.size()));
    }
    // "gcc version 12.2.0 (Debian ...)", "Debian clang version 14.0.6", "icx ... version": a distribution may put its
    // name in front, so the first line with the two words is the one.
    const bool names_version =
        line.starts_with("gcc version ") || line.find("clang version ") != std::string_view::npos;
    if (names_version && !versioned) {
      lines.emplace_back("version", line);
      versioned = true;
    }
  }
  return versioned ? lines : Lines{};
}

NativeTarget gcc_native(std::string_view text) {
  NativeTarget target;
  while (!text.empty()) {
    std::string_view line = take_part(text, '\n');
    const size_t start = line.find("-m");
    if (start == std::string_view::npos || line.substr(0, start).find_first_not_of(' ') != std::string_view::npos)
      continue;
    line.remove_prefix(start + 2);
    const size_t name_end = std::min(line.find_first_of(" \t"), line.size());
    const std::string_view name = line.substr(0, name_end);
    const size_t value_start = line.find_first_not_of(" \t", name_end);
    const std::string_view value =
        value_start == std::string_view::npos ? std::string_view() : line.substr(value_start);
    if (name == "arch=") target.march = value;
    if (name == "tune=") target.mtune = value;
    if (value == "[enabled]") target.features.emplace(name);
  }
  return target;
}

NativeTarget clang_native(std::string_view text) {
  NativeTarget target;
  const std::vector<std::string> words = quoted_words(text);
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& value = words[i + 1];
    if (words[i] == "-target-cpu") target.march = value;
    if (words[i] == "-tune-cpu") target.mtune = value;
    if (words[i] == "-target-feature" && value.starts_with('+')) target.features.emplace(value.substr(1));
  }
  return target;
}

Fact compiler_fact(const ProbeOptions& options, const Fact& cpu, KeyMemory& memory) {
  Compiler compiler{compiler_command(options), {}, options.deadline};
  const std::string source = compiler.command.front() + " -v";
  const auto unknown = [&source](const Error& why) {
    return unknown_fact("the C++ compiler: " + why.what() + "; install one or name it with CXX", source);
  };
  Result<Owners> owners = owners_of(compiler.command);
  if (!owners) return unknown(owners.error());
  compiler.owners = std::move(*owners);
  const auto answer = compiler.ask({"-v"});
  if (!answer) return unknown(answer.error());
  Lines lines = compiler_identity(answer->err + "\n" + answer->out);
  if (answer->exit_code != 0 || lines.empty()) {
    return unknown_fact(source + " (code " + std::to_string(answer->exit_code) + ") does not name a version", source);
  }
  lines.emplace_back("libstdcxx", standard_library(compiler));
  // -march=native turns these on too, and a precompiled header is refused by a compiler with other options.
  if (const auto more = value_of(cpu.details, kOnlyAskedForKey)) lines.emplace_back("native_more", *more);
  Fact fact = known_fact(canonical(lines), source);
  fact.details = remembered_details(compiler, lines, cpu, memory);
  return fact;
}

}  // namespace inductorfs::fingerprint
