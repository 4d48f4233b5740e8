// SPDX-License-Identifier: Apache-2.0
// bench_leases once|each MOUNTS: so many mounts begin one job at the same time, of which the cluster has nothing yet.
// The job is kGraphs graphs, one after the other, each of which takes kCompile to compile. `each`: who does not find a
// graph compiles it. `once`: who does not find it asks for the lease, and waits while another mount has it, by the
// steps of vfs::CompileLeases. The mounts are simulated: each is a thread with a Remote of its own to a real server,
// and a compile is a sleep. Prints {"compiles": of all graphs, "graphs", "slowest": seconds of the slowest mount,
// "alone": seconds that the compiles take alone, "server_seconds": processor time of the server}.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <set>
#include <thread>

#include "bench/server_info.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/remote/remote.h"
#include "support/redis_server.h"

namespace inductorfs {
namespace {

constexpr Milliseconds kPatience{600'000};
constexpr int kGraphs = 5;
constexpr Milliseconds kCompile{1'000};
constexpr Milliseconds kLifetime{10'000};  // as in vfs/read/compile_leases.cc
constexpr Milliseconds kStep{1'000};       // too
constexpr size_t kFrameSize = 40'000;
const remote::ScopeId kScope = "5c0be";

/// What compiles give. Immutable.
class Frames final : public remote::BlobSource {
 public:
  Result<void> read(const codec::Digest& digest, size_t piece,
                    const std::function<Result<void>(std::string_view)>& sink) override {
    for (size_t at = 0; at < kFrameSize; at += piece) {
      INDUCTORFS_TRY(sink(std::string(std::min(piece, kFrameSize - at), digest.raw()[0])));
    }
    return {};
  }
};

/// One mount. Confined to its thread.
class Mount {
 public:
  Mount(const std::string& url, int number, std::atomic<uint64_t>& compiles)
      : name_("host" + std::to_string(number) + "/mount"), compiles_(compiles) {
    remote::RemoteOptions options;
    options.url = url;
    options.without_progress = kPatience;
    options.connect_patience = kPatience;
    auto opened = remote::open_redis(options, counters_);
    if (!opened) throw std::runtime_error(opened.error().to_string());
    remote_ = std::move(*opened);
  }

  void run(bool once) {
    for (int graph = 0; graph < kGraphs; ++graph) {
      const std::string path = "fxgraph/" + std::to_string(graph) + "/candidate";
      while (!finds(path)) {
        if (once && !has_lease(path)) {
          wait();
          continue;
        }
        compile(path);
        if (!once) break;
      }
    }
  }

 private:
  bool finds(const std::string& path) {
    for (bool at_head = known_.contains(path); !at_head;) {
      auto delta = remote_.index->read_changes(kScope, position_, Deadline::after(kPatience));
      if (!delta) throw std::runtime_error(delta.error().to_string());
      for (const auto& entry : delta->set) known_.insert(entry.path);
      at_head = delta->at_head || delta->position == position_;
      position_ = delta->position;
    }
    return known_.contains(path);
  }
  bool has_lease(const std::string& path) {
    const std::vector<remote::LeaseName> names = {{kScope, path}};
    const auto leases = remote_.leases->hold_leases(names, name_, kLifetime, Deadline::after(kPatience));
    if (!leases) throw std::runtime_error(leases.error().to_string());
    return leases->front().is_ours;
  }
  void wait() {
    const auto moved = remote_.index->wait_for_changes({{kScope, position_}}, kStep, [] { return false; });
    if (!moved) throw std::runtime_error(moved.error().to_string());
  }
  void compile(const std::string& path) {
    ++compiles_;
    Guarded<bool> compiled(false);
    compiled.wait_until(
        std::chrono::steady_clock::now() + kCompile, [](bool) { return false; }, [](bool& now) { now = true; });
    remote::PublishGroup group;
    group.scope = kScope;
    codec::Entry entry;
    entry.path = path;
    entry.digest = codec::digest_of(path);
    entry.size = kFrameSize;
    entry.origin = name_;
    group.entries.push_back(std::move(entry));
    for (;;) {
      const auto outcome = remote_.index->publish(group, frames_, Deadline::after(kPatience));
      if (!outcome) throw std::runtime_error(outcome.error().to_string());
      if (*outcome != remote::PublishOutcome::kClaimed) return;
      wait();
    }
  }

  const std::string name_;
  std::atomic<uint64_t>& compiles_;
  Counters counters_;
  Frames frames_;
  remote::Remote remote_;
  remote::Position position_;
  std::set<std::string> known_;
};

int run(bool once, int count) {
  bench::allow_many_files();
  testing::RedisServer server({.arguments = {"--maxclients", "20000", "--tcp-backlog", "4096"}});
  const auto asking = bench::connect_to(server.url());
  std::atomic<uint64_t> compiles = 0;
  std::atomic<uint64_t> failed = 0;
  std::vector<double> took(static_cast<size_t>(count));
  std::barrier<> gate(count + 1);
  std::vector<std::jthread> threads;
  const double before = bench::processor_seconds(bench::ask(*asking, {"INFO", "cpu"}).text);
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      gate.arrive_and_wait();
      const auto begin = std::chrono::steady_clock::now();
      try {
        Mount(server.url(), i, compiles).run(once);
      } catch (const std::exception& error) {
        ++failed;
        std::fprintf(stderr, "bench_leases: %s\n", error.what());
      }
      took[static_cast<size_t>(i)] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    });
  }
  gate.arrive_and_wait();
  threads.clear();  // joins
  if (failed != 0) return 1;
  const double after = bench::processor_seconds(bench::ask(*asking, {"INFO", "cpu"}).text);
  std::printf("{\"compiles\": %llu, \"graphs\": %d, \"slowest\": %.6f, \"alone\": %.3f, \"server_seconds\": %.6f}\n",
              static_cast<unsigned long long>(compiles), kGraphs, *std::max_element(took.begin(), took.end()),
              kGraphs * static_cast<double>(kCompile.count()) / 1000, after - before);
  return 0;
}

}  // namespace
}  // namespace inductorfs

int main(int count, char** words) try {
  const bool once = count > 1 && std::strcmp(words[1], "once") == 0;
  if (count != 3 || (!once && std::strcmp(words[1], "each") != 0)) {
    std::fprintf(stderr, "usage: bench_leases once|each MOUNTS\n");
    return 2;
  }
  return inductorfs::run(once, std::atoi(words[2]));
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_leases: %s\n", error.what());
  return 1;
}
