// SPDX-License-Identifier: Apache-2.0
// What one warm file costs: open+read+close, stat, stat of a name that is not there, and the listing of its directory.
//   file_costs [--rounds N] FILE...     prints {"<file>": {"open_read_close": [ns...], "stat": ..., "absent": ...,
//   "readdir": ...}, ...}
// The files are measured in turn, batch by batch, so that a slow moment hits all; the number of a round is the median
// of its batches.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr int kBatches = 15;
constexpr int kCalls = 500;
constexpr size_t kReadSize = 64 * 1024;

[[noreturn]] void fail(const std::string& path) {
  std::perror(path.c_str());
  std::exit(1);
}

void open_read_close(const std::string& path) {
  static std::array<char, kReadSize> buffer;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || ::read(fd, buffer.data(), buffer.size()) <= 0 || ::close(fd) != 0) fail(path);
}

void stat_present(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) fail(path);
}

void stat_absent(const std::string& path) {
  struct stat facts {};
  if (::stat((path + ".absent").c_str(), &facts) == 0) std::exit(1);
}

void list_directory(const std::string& path) {
  const std::string above = path.substr(0, path.rfind('/'));
  DIR* const directory = ::opendir(above.c_str());
  if (directory == nullptr) fail(above);
  while (::readdir(directory) != nullptr) {
  }
  ::closedir(directory);
}

struct Operation {
  const char* name;
  void (*call)(const std::string&);
  int calls;
};
constexpr std::array<Operation, 4> kOperations{{{"open_read_close", open_read_close, kCalls},
                                                {"stat", stat_present, kCalls},
                                                {"absent", stat_absent, kCalls},
                                                {"readdir", list_directory, kCalls / 10}}};

double nanoseconds_per_call(const Operation& operation, const std::string& path) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < operation.calls; ++i) operation.call(path);
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  return took.count() / operation.calls;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct Costs {
  std::string path;
  std::array<std::vector<double>, kOperations.size()> rounds;
};

void one_round(std::vector<Costs>& all) {
  for (size_t number = 0; number < kOperations.size(); ++number) {
    std::vector<std::vector<double>> batches(all.size());
    for (int batch = 0; batch < kBatches; ++batch) {
      for (size_t i = 0; i < all.size(); ++i) {
        batches[i].push_back(nanoseconds_per_call(kOperations[number], all[i].path));
      }
    }
    for (size_t i = 0; i < all.size(); ++i) all[i].rounds[number].push_back(median(batches[i]));
  }
}

std::string text_of(const Costs& costs) {
  std::string text = "\"" + costs.path + "\": {";
  for (size_t number = 0; number < kOperations.size(); ++number) {
    text += std::string(number == 0 ? "" : ", ") + "\"" + kOperations[number].name + "\": [";
    for (const double value : costs.rounds[number]) text += (text.back() == '[' ? "" : ", ") + std::to_string(value);
    text += "]";
  }
  return text + "}";
}

}  // namespace

int main(int count, char** arguments) {
  int rounds = 1;
  std::vector<Costs> all;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(arguments[i], "--rounds") == 0 && i + 1 < count) {
      rounds = std::atoi(arguments[++i]);
    } else {
      all.push_back({arguments[i], {}});
    }
  }
  for (int round = 0; round < rounds; ++round) one_round(all);
  std::string text;
  for (const Costs& costs : all) text += (text.empty() ? "{" : ", ") + text_of(costs);
  std::puts((text + "}").c_str());
  return 0;
}
