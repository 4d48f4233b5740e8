// SPDX-License-Identifier: Apache-2.0
// What names cost: open(O_CREAT|O_EXCL)+write+close of a small file, and its rename to another name, as torch writes.
//   name_costs DIRECTORY...     prints one JSON object: {"<directory>": {"create_write_close": ns, "rename": ns}, ...}
// The directories are measured in turn, batch by batch, and each number is the median of the batches.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr int kBatches = 61;
constexpr int kFiles = 100;
constexpr std::string_view kBytes = "what a small artefact may hold, some hundred bytes of it: ";

[[noreturn]] void fail(const std::string& path) {
  std::perror(path.c_str());
  std::exit(1);
}

std::string name(const std::string& directory, const char* stem, int number) {
  return directory + "/" + stem + std::to_string(number);
}

void create(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0 || ::write(fd, kBytes.data(), kBytes.size()) < 0 || ::close(fd) != 0) fail(path);
}

template <typename F>
double nanoseconds_per_file(F&& call) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kFiles; ++i) call(i);
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  return took.count() / kFiles;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct Costs {
  std::string directory;
  std::vector<double> create, rename;
};

void batch(Costs& costs) {
  const std::string& directory = costs.directory;
  costs.create.push_back(nanoseconds_per_file([&](int i) { create(name(directory, ".1.tmp", i)); }));
  costs.rename.push_back(nanoseconds_per_file([&](int i) {
    const std::string to = name(directory, "final", i);
    if (::rename(name(directory, ".1.tmp", i).c_str(), to.c_str()) != 0) fail(to);
  }));
  for (int i = 0; i < kFiles; ++i) {
    if (::unlink(name(directory, "final", i).c_str()) != 0) fail(directory);
  }
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<Costs> all;
  for (int i = 1; i < count; ++i) all.push_back({arguments[i], {}, {}});
  for (int turn = 0; turn < kBatches; ++turn) {
    for (Costs& costs : all) batch(costs);
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
