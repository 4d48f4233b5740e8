// SPDX-License-Identifier: Apache-2.0
// bench_starters ours|raw MOUNTS: what it costs a real server that so many mounts start one job at the same time, each
// of which has nothing yet. `ours`: each is a Remote of its own that reads the scope and fetches all that the job
// needs. `raw`: each is one connection that gets the same values with plain GETs. Prints {"server_seconds": processor
// time of the server, "slowest": seconds of the slowest mount, "bytes": of one mount}. The job is medium_job() without
// its precompiled header, which a start does not open.
#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <thread>

#include "bench/server_info.h"
#include "bench/storm.h"
#include "inductorfs/base/counters.h"
#include "support/redis_server.h"

namespace inductorfs {
namespace {

constexpr Milliseconds kPatience{600'000};
constexpr size_t kInFlight = size_t{4} << 20;  ///< bytes of values that one raw mount asks for at once

/// What one mount does; the bytes that it got.
using Start = std::function<uint64_t()>;

class CountingSink final : public remote::BlobSink {
 public:
  Result<void> piece(const codec::Digest&, std::string_view bytes) override {
    got += bytes.size();
    return {};
  }
  void done(const codec::Digest&, Result<void> outcome) override { failed += outcome ? 0 : 1; }

  uint64_t got = 0;
  uint64_t failed = 0;
};

uint64_t start_ours(const remote::RemoteOptions& options, const remote::ScopeId& scope) {
  Counters counters;
  auto remote = remote::open_redis(options, counters);
  if (!remote) throw std::runtime_error(remote.error().to_string());
  std::vector<codec::Digest> wanted;
  remote::Position position;
  for (bool at_head = false; !at_head;) {
    auto delta = remote->index->read_changes(scope, position, Deadline::after(kPatience));
    if (!delta) throw std::runtime_error(delta.error().to_string());
    for (const auto& entry : delta->set) wanted.push_back(entry.digest);
    position = delta->position;
    at_head = delta->at_head;
  }
  CountingSink sink;
  remote->blobs->fetch(wanted, sink, Deadline::after(kPatience));
  if (sink.failed != 0 || wanted.empty()) throw std::runtime_error("a mount did not get all blobs");
  return sink.got;
}

struct Value {
  std::string key;
  size_t size = 0;
};

std::vector<Value> values_of(redis::Connection& server) {
  std::vector<Value> values;
  for (const auto& key : bench::ask(server, {"KEYS", "*:b:*"}).items) {
    values.push_back({key.text, static_cast<size_t>(bench::ask(server, {"STRLEN", key.text}).integer)});
  }
  return values;
}

uint64_t start_raw(const std::string& url, const std::vector<Value>& values) {
  const auto server = bench::connect_to(url);
  uint64_t got = 0;
  for (size_t at = 0; at < values.size();) {
    std::vector<redis::Command> commands;
    for (size_t bytes = 0; at < values.size() && (commands.empty() || bytes + values[at].size <= kInFlight); ++at) {
      commands.push_back({"GET", values[at].key});
      bytes += values[at].size;
    }
    const auto done =
        server->pipeline(commands, {kPatience, kPatience}, [&](size_t, redis::Reply&& reply) -> Result<void> {
          if (reply.kind != redis::Reply::Kind::kString) return fail(ErrorCode::kNotFound);
          got += reply.text.size();
          return {};
        });
    if (!done) throw std::runtime_error(done.error().to_string());
  }
  return got;
}

/// All at once; the seconds of the slowest. `bytes` are those of the mount that got least, 0 if one failed.
double run_all(int mounts, const Start& start, uint64_t& bytes) {
  std::barrier<> gate(mounts + 1);
  std::vector<double> took(static_cast<size_t>(mounts));
  std::vector<uint64_t> got(static_cast<size_t>(mounts));
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < took.size(); ++i) {
    threads.emplace_back([&, i] {
      gate.arrive_and_wait();
      const auto begin = std::chrono::steady_clock::now();
      try {
        got[i] = start();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "bench_starters: %s\n", error.what());
      }
      took[i] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    });
  }
  gate.arrive_and_wait();
  threads.clear();  // joins
  bytes = *std::min_element(got.begin(), got.end());
  return *std::max_element(took.begin(), took.end());
}

int run(bool ours, int mounts) {
  bench::allow_many_files();
  testing::RedisServer server({.arguments = {"--maxclients", "20000", "--tcp-backlog", "4096"}});
  bench::StormOptions storm;
  storm.hosts = 1;
  storm.job = bench::medium_job();
  std::erase_if(storm.job, [](const auto& kind) { return std::strcmp(kind.name, "precompiled_header") == 0; });
  storm.url = server.url();
  if (bench::run_storm(storm).failed != 0) return 1;
  remote::RemoteOptions options;
  options.url = server.url();
  options.prefix = storm.prefix;
  options.without_progress = kPatience;
  options.connect_patience = kPatience;
  const auto asking = bench::connect_to(server.url());
  const auto values = values_of(*asking);
  const std::string url = server.url();
  const Start start = ours ? Start([&] { return start_ours(options, bench::storm_scope()); })
                           : Start([&] { return start_raw(url, values); });
  const double before = bench::processor_seconds(bench::ask(*asking, {"INFO", "cpu"}).text);
  uint64_t bytes = 0;
  const double slowest = run_all(mounts, start, bytes);
  const double after = bench::processor_seconds(bench::ask(*asking, {"INFO", "cpu"}).text);
  if (bytes == 0) return 1;  // and it was said why
  std::printf("{\"server_seconds\": %.6f, \"slowest\": %.6f, \"bytes\": %zu}\n", after - before, slowest,
              size_t{bytes});
  return 0;
}

}  // namespace
}  // namespace inductorfs

int main(int count, char** words) try {
  const bool ours = count > 1 && std::strcmp(words[1], "ours") == 0;
  if (count != 3 || (!ours && std::strcmp(words[1], "raw") != 0)) {
    std::fprintf(stderr, "usage: bench_starters ours|raw MOUNTS\n");
    return 2;
  }
  return inductorfs::run(ours, std::atoi(words[2]));
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_starters: %s\n", error.what());
  return 1;
}
