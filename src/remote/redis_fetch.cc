// SPDX-License-Identifier: Apache-2.0
#include <deque>
#include <optional>
#include <unordered_set>
#include <utility>

#include "piece.h"
#include "redis_operations.h"

namespace inductorfs::remote {
namespace {

/// What is asked for before a blob's size is known: most artefacts are smaller as a frame, and a window of this many
/// bytes each is 64 blobs deep, where pipelining has given nearly all that it can.
constexpr size_t kFirstRead = size_t{64} << 10;
constexpr size_t kFirstReadsAtOnce = kWindowBytes / kFirstRead;

/// A key of ours that holds something else is as bad as bytes that are damaged: asking again will not help.
Error blob_error(const redis::Reply& reply) {
  if (reply.is_error() && reply.text.starts_with("WRONGTYPE")) {
    return Error(ErrorCode::kCorrupt, "the blob's key holds something that is no string");
  }
  return redis::to_error(reply);
}

/// kNotSupported of a blob means that a newer release wrote it; a server that cannot be used says nothing about it.
Error not_of_the_blob(const Error& error) {
  return error.code() == ErrorCode::kNotSupported ? Error(ErrorCode::kUnavailable, error.what()) : error;
}

/// The blobs of one fetch and how far each is. Confined to the fetching thread.
class FetchJob {
 public:
  FetchJob(RedisClient& session, std::span<const codec::Digest> digests, BlobSink& sink)
      : prefix_(session.options().prefix),
        sink_(sink),
        blobs_(session.counters().get("remote.fetch_blobs")),
        bytes_(session.counters().get("remote.fetch_bytes")),
        missing_(session.counters().get("remote.fetch_missing")),
        failed_(session.counters().get("remote.fetch_failed")) {
    std::unordered_set<codec::Digest> seen;
    for (const codec::Digest& digest : digests) {
      if (seen.insert(digest).second) waiting_.push_back({digest, {}, {}, 0, false});
    }
  }

  /// May be called again after an error: what is done stays done.
  Result<void> run(Conversation& channel) {
    abandon_started(Error(ErrorCode::kUnavailable, "the connection was lost"));
    while (!waiting_.empty() || !large_.empty())
      INDUCTORFS_TRY(large_.empty() ? read_first(channel) : read_rest(channel));
    return {};
  }

  /// What the server said instead of giving a blob.
  [[nodiscard]] const std::optional<Error>& refusal() const { return refusal_; }
  /// Every blob that has not been answered gets this error.
  void finish(const Error& error) {
    for (auto* items : {&large_, &waiting_}) {
      for (Item& item : *items) end(item, fail(not_of_the_blob(error)));
      items->clear();
    }
  }

 private:
  struct Item {
    codec::Digest digest;
    PieceHead head;
    std::string first;   // what the first read gave, while the rest is to come
    uint32_t given = 0;  // pieces that the sink has got; a piece that is cut counts when it is whole
    bool ended = false;
  };
  struct Read {
    Item* item;
    uint32_t piece;
    size_t expected;
  };

  // Blobs whose bytes have partly been given cannot begin again.
  void abandon_started(const Error& error) {
    while (!large_.empty() && (large_.front().given > 0 || large_.front().ended)) {
      end(large_.front(), fail(error));
      large_.pop_front();
    }
  }

  void end(Item& item, Result<void> outcome) {
    if (std::exchange(item.ended, true)) return;
    if (outcome) {
      blobs_.add();
    } else if (outcome.error().code() == ErrorCode::kNotFound) {
      missing_.add();
    } else {
      failed_.add();
    }
    sink_.done(item.digest, std::move(outcome));
  }

  void refuse(Item& item, const redis::Reply& reply) {
    const Error error = blob_error(reply);
    if (error.code() != ErrorCode::kCorrupt) refusal_ = error;
    end(item, fail(not_of_the_blob(error)));
  }

  bool give(Item& item, std::string_view bytes) {
    bytes_.add(bytes.size());
    auto taken = sink_.piece(item.digest, bytes);
    if (!taken) end(item, std::move(taken));
    return !item.ended;
  }

  Result<void> read_first(Conversation& channel) {
    std::deque<Item> batch;
    while (!waiting_.empty() && batch.size() < kFirstReadsAtOnce) {
      batch.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    std::vector<std::string> keys;
    keys.reserve(batch.size());
    for (const Item& item : batch) keys.push_back(piece_key(prefix_, item.digest, 0));
    const std::string last = std::to_string(kFirstRead - 1);
    std::vector<redis::Command> commands;
    commands.reserve(keys.size());
    for (const std::string& key : keys) commands.push_back({"GETRANGE", key, "0", last});
    std::vector<bool> answered(batch.size());
    auto outcome = channel.pipeline_in_any_order(commands, [&](size_t index, redis::Reply&& reply) -> Result<void> {
      answered[index] = true;
      take_first(batch[index], std::move(reply));
      return {};
    });
    for (size_t i = 0; i < batch.size(); ++i) {
      if (batch[i].ended) continue;
      (answered[i] ? large_ : waiting_).push_back(std::move(batch[i]));
    }
    return outcome;
  }

  void take_first(Item& item, redis::Reply&& reply) {
    if (reply.kind != redis::Reply::Kind::kString) return refuse(item, reply);
    if (reply.text.empty()) return end(item, fail(ErrorCode::kNotFound));
    if (PieceHead::is_newer(reply.text)) {
      return end(item, fail(ErrorCode::kNotSupported, "a newer inductorfs may have written its pieces"));
    }
    const auto head = PieceHead::parse(reply.text);
    const size_t whole = head ? kPieceHeadSize + head->size_of(0) : 0;
    if (!head || reply.text.size() != std::min(whole, kFirstRead)) {
      return end(item, fail(ErrorCode::kCorrupt, "a blob's first piece is damaged"));
    }
    item.head = *head;
    reply.text.erase(0, kPieceHeadSize);
    if (head->pieces > 1 || whole > kFirstRead) {
      item.first = std::move(reply.text);
    } else if (give(item, reply.text)) {
      end(item, {});
    }
  }

  // One window of what is still missing of the large blobs, in order.
  Result<void> read_rest(Conversation& channel) {
    std::deque<std::string> keys;  // a deque: the commands hold views of them
    std::vector<redis::Command> commands;
    std::vector<Read> reads;
    const std::string from = std::to_string(kFirstRead);
    size_t window = 0;
    for (Item& item : large_) {
      if (item.ended) continue;
      for (uint32_t piece = item.given; piece < item.head.pieces && window < kWindowBytes; ++piece) {
        keys.push_back(piece_key(prefix_, item.digest, piece));
        size_t expected = item.head.size_of(piece);
        if (piece == 0) {
          expected -= item.first.size();
          commands.push_back({"GETRANGE", keys.back(), from, "-1"});
        } else {
          commands.push_back({"GET", keys.back()});
        }
        reads.push_back({&item, piece, expected});
        window += expected;
      }
      if (window >= kWindowBytes) break;
    }
    auto outcome = channel.pipeline(commands, [&](size_t index, redis::Reply&& reply) -> Result<void> {
      take_rest(reads[index], reply);
      return {};
    });
    while (!large_.empty() && large_.front().ended) large_.pop_front();
    return outcome;
  }

  void take_rest(const Read& read, const redis::Reply& reply) {
    Item& item = *read.item;
    if (item.ended) return;
    if (reply.is_error()) return refuse(item, reply);
    // Evicted between two reads, or since long: GETRANGE has no nil.
    if (reply.text.empty() && read.expected > 0) return end(item, fail(ErrorCode::kNotFound));
    if (reply.text.size() != read.expected) {
      return end(item, fail(ErrorCode::kCorrupt, "a piece of a blob has another length than its head says"));
    }
    if (read.piece == 0 && !give(item, item.first)) return;
    item.first.clear();
    if (!reply.text.empty() && !give(item, reply.text)) return;
    item.given = read.piece + 1;
    if (item.given == item.head.pieces) end(item, {});
  }

  const std::string& prefix_;
  BlobSink& sink_;
  Counter& blobs_;
  Counter& bytes_;
  Counter& missing_;
  Counter& failed_;
  std::optional<Error> refusal_;
  std::deque<Item> waiting_;
  std::deque<Item> large_;
};

}  // namespace

void fetch_blobs(RedisClient& session, std::span<const codec::Digest> digests, BlobSink& sink, Budget& budget) {
  if (digests.empty()) return;
  FetchJob job(session, digests, sink);
  auto outcome = session.run(
      Use::kFetch, budget.total(), [&](Conversation& channel) { return job.run(channel); }, &budget);
  if (!outcome) job.finish(outcome.error());
  if (outcome && job.refusal()) session.refused(*job.refusal());
}

}  // namespace inductorfs::remote
