// SPDX-License-Identifier: Apache-2.0
// bench_publishers [HOSTS]: what a server sees when so many hosts publish one job at the same time.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "bench/storm.h"
#include "support/redis_server.h"

int main(int argc, char** argv) try {
  using namespace inductorfs;
  testing::RedisServer server;
  bench::StormOptions options;
  options.hosts = argc > 1 ? std::atoi(argv[1]) : 1000;
  options.job = bench::medium_job();
  options.url = server.url();
  options.pause = Milliseconds(1000);  // as the catalog waits
  if (options.hosts < 1) throw std::runtime_error("the number of hosts must be positive");
  const auto figures = bench::run_storm(options);
  const auto hosts = static_cast<double>(options.hosts);
  constexpr double kMega = 1e6;
  const auto sent = static_cast<double>(figures.bytes_sent) / kMega;
  const auto job = static_cast<double>(figures.job_bytes) / kMega;
  std::printf("| %d hosts, one job each | one job | all hosts, if each sent all | sent |\n|---|---|---|---|\n",
              options.hosts);
  std::printf("| groups, log records | %" PRIu64 " | %.0f | %" PRIu64 " |\n", figures.job_groups,
              static_cast<double>(figures.job_groups) * hosts, figures.records);
  std::printf("| blobs | %" PRIu64 " | %.0f | %" PRIu64 " |\n", figures.job_blobs,
              static_cast<double>(figures.job_blobs) * hosts, figures.blobs_sent);
  std::printf("| bytes of blobs | %.1f MB | %.0f MB | %.1f MB |\n", job, job * hosts, sent);
  std::printf("| bytes that the server received | | | %.1f MB |\n", static_cast<double>(figures.network_bytes) / kMega);
  std::printf("| commands | | | %" PRIu64 ": %.1f for a group of a host |\n", figures.commands,
              static_cast<double>(figures.commands) / hosts / static_cast<double>(figures.job_groups));
  std::printf("\npublished %" PRIu64 ", held %" PRIu64 ", superseded %" PRIu64 ", put off %" PRIu64 ", failed %" PRIu64
              "; %.1f s\n",
              figures.published, figures.held, figures.superseded, figures.claimed, figures.failed, figures.seconds);
  return figures.failed == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_publishers: %s\n", error.what());
  return 2;
}
