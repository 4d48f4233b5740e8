// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "inductorfs/trust/signing_key.h"
#include "support/lacks.h"
#include "support/temporary_directory.h"

namespace inductorfs::trust {

/// OpenSSH's own tool, which makes what this program reads and checks what it writes.
class SshTools : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v ssh-keygen >/dev/null") != 0)
      INDUCTORFS_LACKS("ssh-keygen, of the package openssh-client");
  }

  /// Runs a shell command in the directory; returns its exit status. What it prints is in `said`.
  int run(const std::string& command) {
    said.clear();
    std::FILE* const pipe = ::popen(("cd " + root_.path() + " && { " + command + "\n} 2>&1 </dev/null").c_str(), "r");
    if (pipe == nullptr) return -1;
    std::array<char, 4096> piece{};
    for (size_t got = 0; (got = std::fread(piece.data(), 1, piece.size(), pipe)) > 0;) said.append(piece.data(), got);
    return ::pclose(pipe);
  }
  void make_key(const std::string& name, const std::string& type = "ed25519") {
    ASSERT_EQ(run("ssh-keygen -q -t " + type + " -N '' -C " + name + "@host -f " + name), 0) << said;
  }
  /// Certifies NAME.pub by the key CA, and leaves NAME-cert.pub.
  void certify(const std::string& name, const std::string& authority, const std::string& options) {
    ASSERT_EQ(run("ssh-keygen -q -s " + authority + " " + options + " " + name + ".pub"), 0) << said;
  }

  std::string read(const std::string& name) {
    std::ifstream file(root_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  void write(const std::string& name, std::string_view text, mode_t mode = 0600) {
    std::ofstream(root_ / name, std::ios::binary) << text;
    ASSERT_EQ(::chmod((root_ / name).c_str(), mode), 0);
  }
  /// The first line of a file of one line.
  std::string line(const std::string& name) {
    const std::string text = read(name);
    return text.substr(0, text.find('\n'));
  }
  Signer signer(const std::string& name) {
    auto read = Signer::from_line(line(name));
    EXPECT_TRUE(read) << name << ": " << read.error().what();
    return read.value_or(Signer{});
  }
  SigningKey key(const std::string& name) {
    auto loaded = SigningKey::load(root_ / name);
    EXPECT_TRUE(loaded) << loaded.error().what();
    return *std::move(loaded);
  }

  testing::TemporaryDirectory root_;
  std::string said;
};

/// What an error says; empty if there is none.
template <typename T>
std::string what_of(const Result<T>& result) {
  return result ? std::string() : result.error().what();
}

inline bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace inductorfs::trust
