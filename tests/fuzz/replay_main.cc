// SPDX-License-Identifier: Apache-2.0
// main() of the targets where the compiler is not clang: every file of the corpus, whole, and cut at several places.
//   TARGET_fuzz DIRECTORY
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "fuzz_target.h"

namespace {

constexpr size_t kCuts = 16;

void run(const std::string& bytes) {
  // From the heap, of exactly that size: a read beyond the end shows under a sanitizer.
  const std::vector<uint8_t> exact(bytes.begin(), bytes.end());
  (void)LLVMFuzzerTestOneInput(exact.data(), exact.size());  // 0 whatever the input is
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    (void)std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 2;
  }
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    for (size_t i = 0; i < kCuts; ++i) run(bytes.substr(0, bytes.size() * i / kCuts));
    run(bytes);
    ++files;
  }
  if (files == 0) {
    (void)std::fprintf(stderr, "%s: %s holds no input\n", argv[0], argv[1]);
    return 1;
  }
  (void)std::printf("%zu inputs\n", files);
  return 0;
}
