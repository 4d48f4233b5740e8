// SPDX-License-Identifier: Apache-2.0
// fingerprint_costs PYTHON CACHE_FILE: what a mount does to learn its facts, in milliseconds on stdout. "-" for the
// cache file remembers nothing. It is its own GPU probe, as the daemon is.
#include <chrono>
#include <cstdio>
#include <string>

#include "inductorfs/fingerprint/fingerprint.h"

int main(int argc, char** argv) {
  using inductorfs::fingerprint::Facet;
  if (argc == 2 && std::string(argv[1]) == "gpu-probe") return inductorfs::fingerprint::run_gpu_probe();
  if (argc != 3) return 2;
  inductorfs::fingerprint::ProbeOptions options;
  options.python = argv[1];
  if (std::string(argv[2]) != "-") options.cache_file = argv[2];
  const auto begun = std::chrono::steady_clock::now();
  const auto facts = inductorfs::fingerprint::probe(options);
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begun;
  // A probe that learned nothing costs nothing: it must not count.
  for (Facet facet : {Facet::kTorch, Facet::kTriton, Facet::kPython, Facet::kGpu}) {
    if (facts.get(facet).known) continue;
    std::fprintf(stderr, "%s\n", facts.get(facet).problem.c_str());
    return 1;
  }
  std::printf("%.3f %s\n", taken.count(), facts.get(Facet::kGpu).value == "none" ? "none" : "gpu");
  return 0;
}
