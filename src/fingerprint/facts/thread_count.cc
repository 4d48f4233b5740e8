// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sched.h>

#include <charconv>
#include <map>
#include <utility>

#include "fingerprint/facts/facts.h"
#include "inductorfs/base/host_files.h"

namespace inductorfs::fingerprint {
namespace {

/// As for the cpu facet: 4 KiB a CPU.
constexpr uint64_t kCpuInfoLimit = uint64_t{64} << 20;
constexpr uint64_t kSourceLimit = uint64_t{16} << 20;
/// CONFIG_NR_CPUS of x86_64 has this as its upper bound.
constexpr size_t kMostProcessors = 8192;

std::string_view word_after_colon(std::string_view line) {
  const size_t colon = line.find(':');
  const size_t start = colon == std::string_view::npos ? colon : line.find_first_not_of(" \t", colon + 1);
  return start == std::string_view::npos ? std::string_view() : line.substr(start);
}

/// The CPUs that this process may run on; empty when the kernel does not say.
std::set<size_t> own_processors() {
  std::set<size_t> processors;
  cpu_set_t* const mask = CPU_ALLOC(kMostProcessors);
  const size_t size = CPU_ALLOC_SIZE(kMostProcessors);
  if (mask != nullptr && sched_getaffinity(0, size, mask) == 0) {
    for (size_t i = 0; i < kMostProcessors; ++i) {
      if (CPU_ISSET_S(i, size, mask)) processors.insert(i);
    }
  }
  CPU_FREE(mask);
  return processors;
}

}  // namespace

size_t core_count(std::string_view cpuinfo, const std::set<size_t>& processors) {
  // By processor: package and core. A kernel that names no cores (few virtual machines) has one for each processor.
  std::map<size_t, std::pair<std::string, std::string>> places;
  size_t processor = kMostProcessors;
  for (const std::string_view line : lines_of(cpuinfo)) {
    const std::string_view value = word_after_colon(line);
    if (line.starts_with("processor")) {
      if (std::from_chars(value.data(), value.data() + value.size(), processor).ec != std::errc()) return 0;
      places[processor] = {"processor", std::string(value)};
    } else if (line.starts_with("physical id") && places.contains(processor)) {
      places[processor].first = value;
    } else if (line.starts_with("core id") && places.contains(processor)) {
      places[processor].second = value;
    }
  }
  std::set<std::pair<std::string, std::string>> cores;
  for (const auto& [number, place] : places) {
    if (processors.contains(number)) cores.insert(place);
  }
  // A container may show CPUs by other numbers (lxcfs).
  return cores.empty() ? processors.size() : cores.size();
}

bool keys_thread_count(const InRoot& root, const std::string& torch_directory) {
  const auto source = root.read_regular(torch_directory + "/_inductor/codecache.py", kSourceLimit);
  return !source || source->find("parallel_num_threads(") != std::string::npos;
}

Fact with_thread_count(Fact isa, const Fact& torch) {
  if (!isa.known || value_of(torch.details, kThreadCountInKey) != "no") return isa;
  const auto cpuinfo = cpu_info(kCpuInfoLimit);
  const size_t count = cpuinfo ? core_count(*cpuinfo, own_processors()) : 0;
  if (count == 0) return unknown_fact("how many threads torch starts with is not known: " + std::string(kCpuInfo));
  add_line(isa.value, "threads", std::to_string(count));
  return isa;
}

}  // namespace inductorfs::fingerprint
