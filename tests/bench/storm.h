// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "inductorfs/remote/remote.h"

/// A storm: many hosts that have compiled the same job at the same time, each of which publishes all that it made, in
/// the same order and as fast as it can. The worst that a cold cluster sees.
namespace inductorfs::bench {

/// One kind of artefact that a job makes.
struct ArtefactKind {
  enum class Rule { kPlain, kFirstOfPath, kContest };
  const char* name;
  Rule rule;
  bool same_bytes;     ///< on every host; else each host's differ
  int groups;          ///< in one job
  int files;           ///< in one group
  uint64_t file_size;  ///< of its frame
};

struct StormOptions {
  int hosts = 20;
  std::vector<ArtefactKind> job;
  std::string url;
  std::string prefix = "storm";
  Milliseconds pause{50};  ///< before a host asks again for what another one is sending
};

/// What the server saw, and what the hosts were answered.
struct StormFigures {
  uint64_t job_groups = 0;  ///< of one host
  uint64_t job_blobs = 0;
  uint64_t job_bytes = 0;
  uint64_t blobs_sent = 0;  ///< of all hosts
  uint64_t bytes_sent = 0;
  uint64_t records = 0;
  uint64_t commands = 0;
  uint64_t network_bytes = 0;  ///< that the server received
  uint64_t published = 0;      ///< answers, of all hosts
  uint64_t held = 0;
  uint64_t superseded = 0;
  uint64_t claimed = 0;
  uint64_t failed = 0;
  double seconds = 0;
};

/// What a cold torch.compile of a medium model makes on one host, in numbers of a real job rounded: 22 MB of
/// precompiled header, 40 C++ kernels, 40 Triton kernels, graphs.
[[nodiscard]] std::vector<ArtefactKind> medium_job();

/// The scope into which all hosts publish.
[[nodiscard]] const remote::ScopeId& storm_scope();

/// Runs the storm, one thread a host. Throws std::runtime_error when the server cannot be reached.
[[nodiscard]] StormFigures run_storm(const StormOptions& options);

}  // namespace inductorfs::bench
