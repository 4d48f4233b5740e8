// SPDX-License-Identifier: Apache-2.0
// What one warm file costs: open+read+close, stat, and stat of a name that is not there.
//   file_costs FILE...     prints one JSON object: {"<file>": {"open_read_close": ns, "stat": ns, "absent": ns}, ...}
// The files are measured in turn, batch by batch, and each number is the median of the batches.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr int kBatches = 41;
constexpr int kCalls = 2000;
constexpr size_t kReadSize = 64 * 1024;

void open_read_close(const std::string& path) {
  static std::array<char, kReadSize> buffer;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || ::read(fd, buffer.data(), buffer.size()) <= 0 || ::close(fd) != 0) {
    std::perror(path.c_str());
    std::exit(1);
  }
}

void stat_present(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) {
    std::perror(path.c_str());
    std::exit(1);
  }
}

void stat_absent(const std::string& path) {
  struct stat facts {};
  if (::stat((path + ".absent").c_str(), &facts) == 0) std::exit(1);
}

template <typename F>
double nanoseconds_per_call(F&& call) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) call();
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  return took.count() / kCalls;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int count, char** arguments) {
  struct Costs {
    std::string path;
    std::vector<double> open_read_close, stat, absent;
  };
  std::vector<Costs> all;
  for (int i = 1; i < count; ++i) all.push_back({arguments[i], {}, {}, {}});
  for (int batch = 0; batch < kBatches; ++batch) {
    for (Costs& costs : all) {
      costs.open_read_close.push_back(nanoseconds_per_call([&] { open_read_close(costs.path); }));
      costs.stat.push_back(nanoseconds_per_call([&] { stat_present(costs.path); }));
      costs.absent.push_back(nanoseconds_per_call([&] { stat_absent(costs.path); }));
    }
  }
  std::string text;
  for (const Costs& costs : all) {
    text += (text.empty() ? "{\"" : ", \"") + costs.path +
            "\": {\"open_read_close\": " + std::to_string(median(costs.open_read_close)) +
            ", \"stat\": " + std::to_string(median(costs.stat)) +
            ", \"absent\": " + std::to_string(median(costs.absent)) + "}";
  }
  std::puts((text + "}").c_str());
  return 0;
}
