// SPDX-License-Identifier: Apache-2.0
// bench_publishers [HOSTS]: what a server sees when so many hosts publish one job at the same time, as JSON
// (StormFigures).
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
  std::printf("{\"groups\": %" PRIu64 ", \"blobs\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"records\": %" PRIu64
              ", \"blobs_sent\": %" PRIu64 ", \"bytes_sent\": %" PRIu64 ", \"network_bytes\": %" PRIu64
              ", \"commands\": %" PRIu64 ", \"published\": %" PRIu64 ", \"held\": %" PRIu64 ", \"superseded\": %" PRIu64
              ", \"claimed\": %" PRIu64 ", \"failed\": %" PRIu64 ", \"seconds\": %.3f}\n",
              figures.job_groups, figures.job_blobs, figures.job_bytes, figures.records, figures.blobs_sent,
              figures.bytes_sent, figures.network_bytes, figures.commands, figures.published, figures.held,
              figures.superseded, figures.claimed, figures.failed, figures.seconds);
  return figures.failed == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_publishers: %s\n", error.what());
  return 2;
}
