// SPDX-License-Identifier: Apache-2.0
#include "fake_packages.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace inductorfs::fingerprint::testing {

namespace fs = std::filesystem;

void write_text(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
  ASSERT_TRUE(fs::exists(path)) << path;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_tree(const std::string& folder, const Files& files) {
  for (const auto& [name, text] : files) write_text(folder + "/" + name, text);
}

void write_script(const std::string& path, const std::string& body) {
  write_text(path, "#!/bin/sh\n" + body + "\n");
  fs::permissions(path, fs::perms::owner_all);
}

namespace {

void write_elf(const std::string& path, const std::string& text) {
  write_text(path,
             "\x7f"
             "ELF" +
                 text);
  fs::permissions(path, fs::perms::owner_all);
}

}  // namespace

void write_python(const std::string& prefix) {
  write_elf(prefix + "/bin/python3.11", "");
  write_text(prefix + "/lib/python3.11/os.py", "");
  write_text(prefix + "/lib/python3.11/_sysconfigdata__linux_x86_64-linux-gnu.py",
             "build_time_vars = {'SOABI': 'cpython-311-x86_64-linux-gnu'}\n");
}

void write_gcc(const std::string& prefix) {
  const std::string nul(1, '\0');
  write_elf(prefix + "/bin/g++",
            nul + "gcc version %s" + nul + "12.2.0" + nul + "x86_64-linux-gnu" + nul + "cc1plus" + nul);
  for (const char* part : {"cc1plus", "collect2", "as", "ld", "libstdc++.so.6"}) {
    write_elf(prefix + "/lib/gcc/x86_64-linux-gnu/12/" + part, part);
  }
}

Files torch_tree() {
  return {{"version.py", "__version__ = '9.9.9+test'\n"},
          {"__init__.py", "ROOT"},
          {"a.py", "AA"},
          {"b/__init__.py", "B0"},
          {"b/c.py", "BC"},
          {"b/d.txt", "txt"},
          {"b/sub/__init__.py", "S0"},
          {"b/sub/z.py", "S1"},
          {"b_x/__init__.py", "BX"},
          {"b1.py", "BB"},
          {"e/hidden.py", "EE"},
          {"f.cpython-311-x86_64-linux-gnu.so", "SO"},
          {"g.cpython-312-x86_64-linux-gnu.so", "S12"},
          {"_inductor/__init__.py", "II"},
          {"_inductor/script.ld", "LD"},
          {"lib/l.so", "LL"}};
}

Files triton_tree() {
  return {{"__init__.py", "__version__ = '8.8.8'\n"},
          {"runtime/cache.py", "RC"},
          {"compiler/__init__.py", "C0"},
          {"compiler/compiler.py", "CC"},
          {"compiler/code_generator.py", "CG"},
          {"backends/__init__.py", ""},
          {"backends/driver.py", "BD"},
          {"backends/nvidia/__init__.py", ""},
          {"backends/nvidia/driver.py", "ND"},
          {"backends/nvidia/driver.c", "NC"},
          {"_C/libtriton.so", "LT"},
          {"language/__init__.py", ""},
          {"language/core.py", "CO"},
          {"language/extra/__init__.py", ""}};
}

}  // namespace inductorfs::fingerprint::testing
