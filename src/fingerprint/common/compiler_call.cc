// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/common/compiler_call.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "inductorfs/base/text.h"

namespace inductorfs::fingerprint {
namespace {

/// os.defpath of Python, where subprocess looks when there is no PATH.
constexpr const char* kDefaultPath = "/bin:/usr/bin";
constexpr const char* kRemedy = "; name the compiler itself with CXX";

/// TORCH_INDUCTOR_INSTALL_GXX: torch/_inductor/cpp_builder.py, cpp_compiler_search, takes conda's. COMPILER_PATH and
/// GCC_EXEC_PREFIX: gcc takes its parts from there. The others are ccache's, and choose the program that it runs.
constexpr std::string_view kUnfollowed[] = {"TORCH_INDUCTOR_INSTALL_GXX",
                                            "COMPILER_PATH",
                                            "GCC_EXEC_PREFIX",
                                            "CCACHE_COMPILER",
                                            "CCACHE_CC",
                                            "CCACHE_PATH",
                                            "CCACHE_PREFIX",
                                            "CCACHE_PREFIX_CPP"};

bool is_ccache(const std::string& program) {
  const std::string name(base_name_of(program));
  return name == "ccache" || name.starts_with("ccache-");
}

template <typename Accept>
std::string first_in(const InRoot& root, const std::string& search, const std::string& name, const Accept& accept) {
  for (const std::string_view directory : parts_of(search, ':')) {
    const std::string file = std::string(directory) + "/" + name;
    if (directory.starts_with('/') && root.is_program(file) && accept(file)) return file;
  }
  return {};
}

/// As ccache finds the compiler (ccache.cpp, find_compiler): the first of this name in PATH that is not ccache.
std::string behind_ccache(const InRoot& root, const std::string& search, const std::string& name) {
  return first_in(root, search, name, [&root](const std::string& file) {
    const auto real = root.real_path(file);
    return real && !is_ccache(*real);
  });
}

/// Splits a command into its words; empty when it has quotes, which torch 2.9 and 2.15 read differently.
Result<std::vector<std::string>> words_of_command(const std::string& command) {
  const auto is_followed = [](unsigned char c) { return c >= ' ' && c != 0x7f && c != '\'' && c != '"' && c != '\\'; };
  if (!std::ranges::all_of(command, is_followed)) {
    return fail(ErrorCode::kInvalid,
                "CXX has quotes, or blanks other than a space, that are not followed" + std::string(kRemedy));
  }
  std::vector<std::string> words;
  for (const std::string_view word : parts_of(command, ' ')) {
    if (!word.empty()) words.emplace_back(word);
  }
  return words;
}

/// Options that change what is generated and name no file or program: those that do lead out of what is looked at.
Result<void> check_option(const std::string& option) {
  constexpr std::string_view kPlain[] = {"-m", "-O", "-std=", "-D", "-f", "-g", "-W"};
  constexpr std::string_view kLeading[] = {"-fuse-ld", "-fplugin", "-Wl,", "-Wa,", "-Wp,"};
  const auto begins = [&option](std::string_view prefix) { return option.starts_with(prefix); };
  const bool plain = std::any_of(std::begin(kPlain), std::end(kPlain), begins) &&
                     std::none_of(std::begin(kLeading), std::end(kLeading), begins) &&
                     option.find('/') == std::string::npos;
  if (plain) return {};
  return fail(ErrorCode::kInvalid, "CXX has " + option + ", which may lead to other parts of a compiler" + kRemedy);
}

}  // namespace

bool names_compiler(std::string_view variable) {
  return variable == "CXX" || variable == "PATH" ||
         std::find(std::begin(kUnfollowed), std::end(kUnfollowed), variable) != std::end(kUnfollowed);
}

CompilerCall compiler_call(const std::map<std::string, std::string>& environment) {
  const auto value = [&environment](const std::string& name, const char* otherwise) {
    const auto found = environment.find(name);
    return found == environment.end() || found->second.empty() ? std::string(otherwise) : found->second;
  };
  CompilerCall call{value("CXX", "g++"), value("PATH", kDefaultPath)};
  for (const std::string_view name : kUnfollowed) {
    if (!value(std::string(name), "").empty()) call.unfollowed.emplace_back(name);
  }
  return call;
}

CompilerCall own_compiler_call() {
  std::map<std::string, std::string> environment;
  for (const char* const* at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view text(*at);
    const std::string_view name = text.substr(0, text.find('='));
    if (names_compiler(name)) environment.emplace(name, text.substr(std::min(name.size() + 1, text.size())));
  }
  return compiler_call(environment);
}

Result<void> check_followed(const CompilerCall& call, std::string_view prefix) {
  for (const std::string& name : call.unfollowed) {
    if (!name.starts_with(prefix)) continue;
    return fail(ErrorCode::kInvalid, name + " is set, and which compiler it leads to is not followed; unset it" +
                                         (prefix == "CCACHE_" ? "" : ", or name the compiler itself with CXX"));
  }
  return {};
}

std::string program_in(const InRoot& root, const std::string& search, const std::string& name) {
  return first_in(root, search, name, [](const std::string&) { return true; });
}

Result<CompilerPlace> find_compiler(const InRoot& root, const CompilerCall& call) {
  INDUCTORFS_TRY(check_followed(call, "TORCH_INDUCTOR_INSTALL_GXX"));
  INDUCTORFS_TRY_ASSIGN(auto words, words_of_command(call.command));
  if (words.empty()) words.emplace_back("g++");
  const auto find = [&](const std::string& name) {
    if (name.find('/') == std::string::npos) return program_in(root, call.search, name);
    return name.starts_with('/') && root.is_program(name) ? name : std::string();
  };
  const auto absent = [&](const std::string& name) {
    return fail(ErrorCode::kNotFound, name + " is not found as an absolute path or in PATH (" + call.search +
                                          "); install a compiler or name one with CXX");
  };
  const std::string first = find(words.front());
  if (first.empty()) return absent(words.front());
  INDUCTORFS_TRY_ASSIGN(auto driver, root.real_path(first));
  size_t used = 1;
  if (is_ccache(driver)) {
    INDUCTORFS_TRY(check_followed(call, "CCACHE_"));
    // Under its own name it runs its first argument, under a compiler's name that compiler.
    const bool named = is_ccache(first);
    if (named && words.size() < 2) {
      return fail(ErrorCode::kInvalid, first + " is named without a compiler; set CXX to \"ccache g++\"");
    }
    const std::string name = named ? words[used++] : std::string(base_name_of(first));
    const std::string compiler = name.starts_with('/') ? find(name) : behind_ccache(root, call.search, name);
    if (compiler.empty()) return absent(name);
    INDUCTORFS_TRY_ASSIGN(driver, root.real_path(compiler));
    if (is_ccache(driver)) return fail(ErrorCode::kInvalid, compiler + " is ccache again" + kRemedy);
  }
  CompilerPlace place{std::move(driver), {words.begin() + static_cast<std::ptrdiff_t>(used), words.end()}};
  for (const std::string& option : place.options) INDUCTORFS_TRY(check_option(option));
  return place;
}

}  // namespace inductorfs::fingerprint
