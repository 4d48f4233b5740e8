// SPDX-License-Identifier: Apache-2.0
// bench_followers [MOUNTS] [SECONDS] [PUBLISHES]: what mounts that only listen cost a real server ("idle"), and what
// one that publishes every two seconds costs the others ("publishing"), as JSON: commands a second and mount,
// connections of a mount. Each mount is a Remote of its own that follows as the catalog does (src/catalog/tail.cc).
#include <poll.h>

#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "bench/server_info.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/remote/remote.h"
#include "support/redis_server.h"

namespace inductorfs {
namespace {

constexpr int kScopes = 10;
constexpr Milliseconds kPollInterval{1000};  // CatalogOptions::poll_interval
constexpr Milliseconds kWaitMost{60'000};    // src/catalog/tail.cc

/// What is measured takes its time; nothing is waited for.
void let_pass(Milliseconds time) { (void)::poll(nullptr, 0, static_cast<int>(time.count())); }

Deadline soon() { return Deadline::after(Milliseconds(30'000)); }

/// What the server has counted.
struct Counts {
  double commands = 0;
  double cpu = 0;
  double clients = 0;
  double sent = 0;
};

Counts counts(redis::Connection& server) {
  const std::string info = bench::ask(server, {"INFO", "all"}).text;
  return {bench::number_in(info, "total_commands_processed"), bench::processor_seconds(info),
          bench::number_in(info, "connected_clients") - 1, bench::number_in(info, "total_net_output_bytes")};
}

/// Small frames of blobs whose digests say what they are not: nobody fetches them.
class Source final : public remote::BlobSource {
 public:
  Result<void> read(const codec::Digest&, size_t, const std::function<Result<void>(std::string_view)>& sink) override {
    return sink("frame");
  }
};

std::string scope_name(int number) { return "scope" + std::to_string(number); }

bool publish(const remote::Remote& remote, int scope, int number) {
  Source source;
  remote::PublishGroup group;
  group.scope = scope_name(scope);
  codec::Entry entry;
  entry.path = "ab/file" + std::to_string(number);
  entry.digest = codec::digest_of(entry.path + group.scope);
  entry.size = 1;
  entry.origin = "bench";
  group.entries = {entry};
  return remote.index->publish(group, source, soon()).has_value();
}

/// One mount. Confined to its thread.
void follow(const remote::RemoteOptions& options, const std::atomic<bool>& stop, std::atomic<int>& ready,
            std::atomic<int>& entries) {
  Counters counters;
  auto remote = remote::open_redis(options, counters);
  if (!remote) return;
  std::map<remote::ScopeId, remote::Position> positions;
  std::minstd_rand random{std::random_device{}()};
  const auto read = [&](const remote::ScopeId& scope) {
    while (!stop) {
      auto delta = remote->index->read_changes(scope, positions[scope], soon());
      if (!delta) continue;  // a thousand mounts at once on a small machine: late
      positions[scope] = delta->position;
      entries += static_cast<int>(delta->set.size());
      if (delta->at_head) return;
    }
  };
  for (int i = 0; i < kScopes; ++i) read(scope_name(i));
  ++ready;
  while (!stop) {
    const std::vector<std::pair<remote::ScopeId, remote::Position>> scopes(positions.begin(), positions.end());
    const auto moved = remote->index->wait_for_changes(scopes, kWaitMost, [&] { return stop.load(); });
    if (!moved) continue;
    for (const auto& scope : *moved) read(scope);
    let_pass(kPollInterval + Milliseconds(static_cast<int>(random() % 600)));
  }
}

void wait_for(const std::atomic<int>& count, int least) {
  while (count < least) let_pass(Milliseconds(100));
}

int run(int mounts, int seconds, int publishes) {
  bench::allow_many_files();
  testing::RedisServer server({.arguments = {"--maxclients", "10000"}});
  Counters counters;
  remote::RemoteOptions options;
  options.url = server.url();
  options.without_progress = Milliseconds(20'000);
  options.connect_patience = Milliseconds(20'000);
  auto writer = remote::open_redis(options, counters);
  const auto asking = bench::connect_to(server.url());
  if (!writer) return 1;
  for (int i = 0; i < kScopes; ++i) {
    if (!publish(*writer, i, 0)) return 1;
  }
  std::atomic<bool> stop = false;
  std::atomic<int> ready = 0;
  std::atomic<int> entries = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < mounts; ++i) threads.emplace_back([&] { follow(options, stop, ready, entries); });
  wait_for(ready, mounts);
  const auto print = [&](const char* what, const Counts& from, const Counts& to, double lasted) {
    std::printf("\"%s\": {\"commands\": %.3f, \"connections\": %.3f, \"processor_percent\": %.3f}, ", what,
                (to.commands - from.commands) / lasted / mounts, (to.clients - 1) / mounts,
                100 * (to.cpu - from.cpu) / lasted);
  };
  std::printf("{");
  // What the start left behind is closed before the count begins.
  let_pass(options.idle_lifetime + options.follow_rest);
  const auto now = [] { return std::chrono::steady_clock::now(); };
  Counts before = counts(*asking);
  SteadyTime since = now();
  let_pass(std::chrono::seconds(seconds));
  Counts after = counts(*asking);
  print("idle", before, after, std::chrono::duration<double>(now() - since).count());

  before = counts(*asking);
  since = now();
  const int had = entries;
  for (int i = 1; i <= publishes; ++i) {
    if (!publish(*writer, 3, i)) return 1;
    let_pass(kPollInterval * 2);
  }
  wait_for(entries, had + mounts * publishes);
  after = counts(*asking);
  print("publishing", before, after, std::chrono::duration<double>(now() - since).count());
  std::printf("\"commands_of_a_publish\": %.2f, \"bytes_of_a_publish\": %.0f}\n",
              (after.commands - before.commands) / publishes / mounts, (after.sent - before.sent) / publishes / mounts);
  stop = true;
  return 0;
}

}  // namespace
}  // namespace inductorfs

int main(int argc, char** argv) {
  const auto number = [&](int at, int otherwise) {
    int value = otherwise;
    if (at < argc) std::from_chars(argv[at], argv[at] + std::strlen(argv[at]), value);
    return value;
  };
  return inductorfs::run(number(1, 1000), number(2, 60), number(3, 20));
}
