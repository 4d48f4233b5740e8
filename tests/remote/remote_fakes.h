// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inductorfs/base/text.h"
#include "inductorfs/remote/remote.h"

namespace inductorfs::remote {

/// Bytes that differ from place to place, so that a swapped or shifted piece shows.
inline std::string test_bytes(size_t size, uint32_t seed) {
  std::string bytes(size, '\0');
  uint32_t state = seed * 2654435761U + 1;
  for (char& byte : bytes) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<char>(state >> 24);
  }
  return bytes;
}

/// Frames in memory. A remote never looks into them, so any bytes will do. Needs external synchronisation.
class FakeSource final : public BlobSource {
 public:
  codec::Digest add(std::string frame) {
    const codec::Digest digest = codec::digest_of(frame);
    frames_[digest] = std::move(frame);
    return digest;
  }
  Result<void> read(const codec::Digest& digest, size_t piece,
                    const std::function<Result<void>(std::string_view)>& sink) override {
    ++reads;
    const auto found = frames_.find(digest);
    if (found == frames_.end()) return fail(ErrorCode::kNotFound, "the source has it not");
    for (size_t at = 0; at < found->second.size(); at += piece) {
      INDUCTORFS_TRY(sink(std::string_view(found->second).substr(at, piece)));
    }
    return {};
  }
  [[nodiscard]] const std::string& frame(const codec::Digest& digest) const { return frames_.at(digest); }
  int reads = 0;

 private:
  std::map<codec::Digest, std::string> frames_;
};

/// Keeps what comes. Needs external synchronisation.
class FakeSink final : public BlobSink {
 public:
  Result<void> piece(const codec::Digest& digest, std::string_view bytes) override {
    EXPECT_FALSE(outcomes.contains(digest)) << "a piece after done()";
    EXPECT_TRUE(current_ == digest || !begun_) << "pieces of two blobs are mixed";
    current_ = digest;
    begun_ = true;
    frames[digest] += bytes;
    if (refuse == digest) return fail(ErrorCode::kNoSpace, "the sink is full");
    return {};
  }
  void done(const codec::Digest& digest, Result<void> outcome) override {
    EXPECT_FALSE(outcomes.contains(digest)) << "done() twice";
    if (begun_ && current_ == digest) begun_ = false;
    outcomes.emplace(digest, outcome ? std::optional<ErrorCode>() : outcome.error().code());
  }
  /// The error of a blob; empty: it came whole.
  [[nodiscard]] std::optional<ErrorCode> error_of(const codec::Digest& digest) const { return outcomes.at(digest); }

  std::map<codec::Digest, std::string> frames;
  std::map<codec::Digest, std::optional<ErrorCode>> outcomes;
  std::optional<codec::Digest> refuse;

 private:
  codec::Digest current_;
  bool begun_ = false;
};

/// A command in one line, whose text must stay.
inline std::vector<std::string_view> words_of(const std::string& line) { return parts_of(line, ' '); }

inline Deadline soon() { return Deadline::after(Milliseconds(20000)); }

inline codec::Entry entry_of(const std::string& path, const codec::Digest& digest) {
  codec::Entry entry;
  entry.path = path;
  entry.digest = digest;
  entry.size = 7;
  entry.mtime_ns = 1'700'000'000'000'000'000;
  entry.origin = "host/mount";
  return entry;
}

inline PublishGroup group_of(const ScopeId& scope, std::vector<codec::Entry> entries) {
  PublishGroup group;
  group.scope = scope;
  group.entries = std::move(entries);
  return group;
}

/// A reader's view of one scope: applies deltas until there are no more.
class Follower {
 public:
  Follower(const Remote& remote, ScopeId scope) : remote_(remote), scope_(std::move(scope)) {}

  void catch_up() {
    while (true) {
      auto delta = remote_.index->read_changes(scope_, position, soon());
      ASSERT_TRUE(delta) << delta.error().to_string();
      const bool last = delta->position == position && delta->set.empty() && delta->removed.empty();
      if (delta->reset) {
        ++resets;
        entries.clear();
      }
      for (const auto& entry : delta->set) entries[entry.path] = entry;
      for (const auto& path : delta->removed) entries.erase(path);
      position = delta->position;
      if (last) return;
    }
  }
  [[nodiscard]] bool has(const std::string& path) const { return entries.contains(path); }

  Position position;
  std::map<std::string, codec::Entry> entries;
  int resets = 0;

 private:
  const Remote& remote_;
  ScopeId scope_;
};

}  // namespace inductorfs::remote
