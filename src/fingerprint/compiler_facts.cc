// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "child.h"
#include "facts.h"

namespace inductorfs::fingerprint {
namespace {

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

/// The name of the C++ library that this compiler links, e.g. libstdc++.so.6.0.30: its version is in no `-v` text.
std::string standard_library(std::vector<std::string> command, Milliseconds deadline) {
  command.emplace_back("-print-file-name=libstdc++.so.6");
  const auto answer = run_child(command, deadline);
  if (!answer || answer->exit_code != 0) return "unknown";
  const std::string path = answer->out.substr(0, answer->out.find('\n'));
  std::error_code error;
  const auto real = std::filesystem::canonical(path, error);
  return error ? "unknown" : real.filename().string();
}

}  // namespace

Lines compiler_identity(std::string_view text) {
  constexpr std::pair<std::string_view, const char*> kPrefixes[] = {
      {"Target: ", "target"}, {"Thread model: ", "threads"}, {"Configured with: ", "configured"}};
  Lines lines;
  bool versioned = false;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
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

Fact compiler_fact(const ProbeOptions& options) {
  std::vector<std::string> command = compiler_command(options);
  const std::string source = command.front() + " -v";
  command.emplace_back("-v");
  const auto answer = run_child(command, options.deadline);
  if (!answer) {
    return unknown_fact("the C++ compiler: " + answer.error().what() + "; install one or name it with CXX", source);
  }
  Lines lines = compiler_identity(answer->err + "\n" + answer->out);
  if (answer->exit_code != 0 || lines.empty()) {
    return unknown_fact(source + " (code " + std::to_string(answer->exit_code) + ") does not name a version", source);
  }
  command.pop_back();
  lines.emplace_back("libstdcxx", standard_library(command, options.deadline));
  return known_fact(canonical(lines), source);
}

}  // namespace inductorfs::fingerprint
