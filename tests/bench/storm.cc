// SPDX-License-Identifier: Apache-2.0
#include "bench/storm.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <map>
#include <stdexcept>
#include <thread>
#include <utility>

#include "bench/server_info.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/base/guarded.h"

namespace inductorfs::bench {
namespace {

constexpr Milliseconds kPatience{600'000};
const remote::ScopeId kScope = "5c0be";

/// Bytes of a seed, made while they are sent, so that a thousand hosts need no memory for what they never send.
class SeededSource final : public remote::BlobSource {
 public:
  codec::Digest add(const std::string& name, uint64_t size) {
    const codec::Digest digest = codec::digest_of(name);
    sizes_[digest] = size;
    return digest;
  }
  Result<void> read(const codec::Digest& digest, size_t piece,
                    const std::function<Result<void>(std::string_view)>& sink) override {
    const auto found = sizes_.find(digest);
    if (found == sizes_.end()) return fail(ErrorCode::kNotFound);
    std::string bytes;
    for (uint64_t at = 0; at < found->second; at += bytes.size()) {
      bytes.assign(std::min<uint64_t>(piece, found->second - at), digest.raw()[at % codec::Digest::kSize]);
      INDUCTORFS_TRY(sink(bytes));
    }
    return {};
  }

 private:
  std::map<codec::Digest, uint64_t> sizes_;
};

/// One host: its own handle, connections and counters. Confined to its thread.
class Host {
 public:
  Host(const StormOptions& options, Guarded<int>& finished, int number)
      : options_(options), finished_(finished), origin_("host" + std::to_string(number) + "/mount"), number_(number) {
    remote::RemoteOptions settings;
    settings.url = options.url;
    settings.prefix = options.prefix;
    settings.connect_patience = kPatience;  // a storm is no time to give up: what it costs is to be seen
    settings.without_progress = kPatience;
    auto opened = remote::open_redis(settings, counters_);
    if (!opened) throw std::runtime_error(opened.error().to_string());
    remote_ = std::move(*opened);
    for (const ArtefactKind& kind : options.job) {
      for (int i = 0; i < kind.groups; ++i) groups_.push_back(group_of(kind, i));
    }
  }

  void publish_all() {
    std::vector<remote::PublishGroup> queue = std::move(groups_);
    while (!queue.empty()) {
      std::vector<remote::PublishGroup> put_off;
      for (auto& group : queue) {
        const auto outcome = remote_.index->publish(group, source_, Deadline::after(kPatience));
        if (!outcome) {
          ++failed;
        } else if (*outcome == remote::PublishOutcome::kClaimed) {
          put_off.push_back(std::move(group));
        }
      }
      queue = std::move(put_off);
      if (!queue.empty()) pause();
    }
    finished_.notify_with([](int& finished) { ++finished; });
  }
  [[nodiscard]] uint64_t count(const std::string& name) { return counters_.get("remote." + name).get(); }

  uint64_t failed = 0;

 private:
  // When all the others have finished nobody can hold a claim any more.
  void pause() {
    const auto until = std::chrono::steady_clock::now() + options_.pause;
    finished_.wait_until(
        until, [&](int finished) { return finished == options_.hosts - 1; }, [](int) {});
  }

  remote::PublishGroup group_of(const ArtefactKind& kind, int index) {
    const std::string key = std::string(kind.name) + "/" + std::to_string(index);
    remote::PublishGroup group;
    group.scope = kScope;
    for (int i = 0; i < kind.files; ++i) {
      codec::Entry entry;
      entry.path = key + "/file" + std::to_string(i);
      entry.digest = source_.add(entry.path + (kind.same_bytes ? "" : origin_), kind.file_size);
      entry.size = kind.file_size;
      entry.mtime_ns = number_;
      entry.origin = origin_;
      group.entries.push_back(std::move(entry));
    }
    group.first_of_path = kind.rule == ArtefactKind::Rule::kFirstOfPath;
    if (kind.rule == ArtefactKind::Rule::kContest) group.contest = remote::PublishGroup::Contest{key, 0};
    return group;
  }

  const StormOptions& options_;
  Guarded<int>& finished_;  ///< hosts that have published all
  const std::string origin_;
  const int number_;
  Counters counters_;
  SeededSource source_;
  remote::Remote remote_;
  std::vector<remote::PublishGroup> groups_;
};

}  // namespace

std::vector<ArtefactKind> medium_job() {
  using Rule = ArtefactKind::Rule;
  return {{"precompiled_header", Rule::kFirstOfPath, false, 1, 1, 22'000'000},
          {"header_source", Rule::kFirstOfPath, true, 1, 1, 1'000},
          {"generated_code", Rule::kFirstOfPath, true, 80, 1, 12'000},
          {"cpp_source", Rule::kFirstOfPath, true, 40, 1, 8'000},
          {"cpp_binary", Rule::kFirstOfPath, false, 40, 1, 30'000},
          {"triton_kernel", Rule::kContest, false, 40, 8, 6'000},
          {"triton_launcher", Rule::kContest, false, 4, 1, 10'000},
          {"fxgraph", Rule::kContest, false, 20, 1, 40'000},
          {"aotautograd", Rule::kContest, false, 20, 1, 30'000}};
}

const remote::ScopeId& storm_scope() { return kScope; }

StormFigures run_storm(const StormOptions& options) {
  Guarded<int> finished(0);
  std::vector<std::unique_ptr<Host>> hosts;
  for (int i = 0; i < options.hosts; ++i) hosts.push_back(std::make_unique<Host>(options, finished, i));
  const auto server = connect_to(options.url);
  const std::string before = ask(*server, {"INFO", "stats"}).text;
  std::barrier<> start(options.hosts + 1);
  std::vector<std::jthread> threads;
  threads.reserve(hosts.size());
  for (auto& host : hosts) {
    threads.emplace_back([&start, &host] {
      start.arrive_and_wait();
      host->publish_all();
    });
  }
  start.arrive_and_wait();
  const auto begun = std::chrono::steady_clock::now();
  threads.clear();  // joins
  StormFigures figures;
  figures.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  const std::string after = ask(*server, {"INFO", "stats"}).text;
  for (const ArtefactKind& kind : options.job) {
    const auto files = static_cast<uint64_t>(kind.groups) * static_cast<uint64_t>(kind.files);
    figures.job_groups += static_cast<uint64_t>(kind.groups);
    figures.job_blobs += files;
    figures.job_bytes += files * kind.file_size;
  }
  for (auto& host : hosts) {
    figures.blobs_sent += host->count("publish_blobs");
    figures.bytes_sent += host->count("publish_bytes");
    figures.published += host->count("publish_groups");
    figures.held += host->count("publish_held");
    figures.superseded += host->count("publish_superseded");
    figures.claimed += host->count("publish_claimed");
    figures.failed += host->failed;
  }
  const auto difference = [&](const char* name) {
    return static_cast<uint64_t>(number_in(after, name) - number_in(before, name));
  };
  figures.commands = difference("total_commands_processed");
  figures.network_bytes = difference("total_net_input_bytes");
  const std::string log = options.prefix + ":{" + kScope + "}:meta";
  figures.records = std::stoull("0" + ask(*server, {"HGET", log, "gen"}).text);
  return figures;
}

}  // namespace inductorfs::bench
