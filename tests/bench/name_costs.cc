// SPDX-License-Identifier: Apache-2.0
// What names cost: open(O_CREAT|O_EXCL)+write+close of a small file, and its rename to another name, as torch writes.
//   name_costs [--files N] [--batches N] DIRECTORY...
// prints {"<directory>": {"create_write_close": ns of a file, "rename": ns of a file}, ...}. The directories are
// measured in turn, batch by batch, and each number is the median of the batches. Each batch but the last is deleted.
// In a directory of two letters the names are those of C++ sources
// (tests/support/python/inductorfs_testing/artefacts.py: code).
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Nanoseconds = std::chrono::duration<double, std::nano>;

constexpr std::string_view kBytes = "what a small artefact may hold, some hundred bytes of it: ";
constexpr std::string_view kDigits = "abcdefghijklmnopqrstuvwxyz234567";
constexpr size_t kHashLength = 51;

[[noreturn]] void fail(const std::string& path) {
  std::perror(path.c_str());
  std::exit(1);
}

std::string final_name(const std::string& directory, int number) {
  std::string hash = directory.substr(directory.rfind('/') + 1);
  for (; hash.size() < kHashLength; number /= 32) hash += kDigits[static_cast<size_t>(number % 32)];
  return directory + "/c" + hash + ".cpp";
}

struct Costs {
  std::string directory;
  std::vector<double> create, rename;
};

void batch(Costs& costs, int files, bool keep) {
  const std::string temporary = costs.directory + "/." + std::to_string(::getpid()) + ".1.tmp";
  Nanoseconds create{};
  Nanoseconds rename{};
  for (int i = 0; i < files; ++i) {
    const std::string to = final_name(costs.directory, i);
    const auto begin = Clock::now();
    const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 || ::write(fd, kBytes.data(), kBytes.size()) < 0 || ::close(fd) != 0) fail(temporary);
    const auto written = Clock::now();
    if (::rename(temporary.c_str(), to.c_str()) != 0) fail(to);
    create += written - begin;
    rename += Clock::now() - written;
  }
  costs.create.push_back(create.count() / files);
  costs.rename.push_back(rename.count() / files);
  for (int i = 0; i < files && !keep; ++i) {
    if (::unlink(final_name(costs.directory, i).c_str()) != 0) fail(costs.directory);
  }
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int count, char** arguments) {
  int files = 100;
  int batches = 61;
  std::vector<Costs> all;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(arguments[i], "--files") == 0 && i + 1 < count) {
      files = std::atoi(arguments[++i]);
    } else if (std::strcmp(arguments[i], "--batches") == 0 && i + 1 < count) {
      batches = std::atoi(arguments[++i]);
    } else {
      all.push_back({arguments[i], {}, {}});
    }
  }
  for (int turn = 1; turn <= batches; ++turn) {
    for (Costs& costs : all) batch(costs, files, turn == batches);
  }
  std::string text;
  for (const Costs& costs : all) {
    text += (text.empty() ? "{\"" : ", \"") + costs.directory +
            "\": {\"create_write_close\": " + std::to_string(median(costs.create)) +
            ", \"rename\": " + std::to_string(median(costs.rename)) + "}";
  }
  std::puts((text + "}").c_str());
  return 0;
}
