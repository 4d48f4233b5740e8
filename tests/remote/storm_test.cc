// SPDX-License-Identifier: Apache-2.0
// Many hosts that publish one job at once, in small: counts, not times. tests/bench/bench_publishers.cc has the
// figures.
#include "bench/storm.h"

#include <gtest/gtest.h>

#include "support/lacks.h"
#include "support/redis_server.h"

namespace inductorfs::bench {
namespace {

TEST(Storm, EachArtefactOfAJobIsSentOnceAndHasOneRecord) {
  if (!testing::RedisServer::available()) INDUCTORFS_LACKS("redis-server");
  testing::RedisServer server;
  using Rule = ArtefactKind::Rule;
  StormOptions options;
  options.hosts = 20;
  options.url = server.url();
  options.job = {{"precompiled_header", Rule::kFirstOfPath, false, 1, 1, 3'000'000},
                 {"generated_code", Rule::kFirstOfPath, true, 5, 1, 12'000},
                 {"best_config", Rule::kPlain, true, 2, 1, 300},
                 {"cpp_binary", Rule::kFirstOfPath, false, 5, 1, 30'000},
                 {"triton_kernel", Rule::kContest, false, 5, 8, 6'000},
                 {"fxgraph", Rule::kContest, false, 3, 1, 40'000}};
  const StormFigures figures = run_storm(options);
  EXPECT_EQ(figures.failed, 0U);
  EXPECT_EQ(figures.records, figures.job_groups) << "each of 1,000 readers reads each record";
  EXPECT_EQ(figures.published, figures.job_groups);
  EXPECT_EQ(figures.held + figures.superseded, figures.job_groups * 19) << "all others are told how it ended";
  // A host that stands still for longer than its claim lets one more send.
  EXPECT_GE(figures.blobs_sent, figures.job_blobs);
  EXPECT_LE(figures.blobs_sent, 2 * figures.job_blobs);
  EXPECT_LE(figures.bytes_sent, 2 * figures.job_bytes + figures.job_blobs * 1000);
  EXPECT_LE(figures.network_bytes, figures.job_bytes * 4) << "who has nothing to send asks in a few words";
}

}  // namespace
}  // namespace inductorfs::bench
