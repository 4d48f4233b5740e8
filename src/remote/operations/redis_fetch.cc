// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>

#include "inductorfs/codec/frame.h"
#include "inductorfs/codec/solid_block.h"
#include "remote/formats/piece.h"
#include "remote/operations/block_cache.h"
#include "remote/operations/redis_operations.h"

namespace inductorfs::remote {
namespace {

/// What is asked for before a blob's size is known: most artefacts are smaller as a frame, and a window of this many
/// bytes each is 64 blobs deep, where pipelining has given nearly all that it can.
constexpr size_t kFirstRead = size_t{64} << 10;
constexpr size_t kFirstReadsAtOnce = kWindowBytes / kFirstRead;
constexpr size_t kBlocksAtOnce = 16;

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

/// Inflates solid blocks, one after the other. Confined to the fetching thread.
class BlockSink final : public BlobSink {
 public:
  using Done = std::function<void(const codec::Digest&, Result<BlockCache::Block>)>;
  explicit BlockSink(Done done) : done_(std::move(done)) {}

  Result<void> piece(const codec::Digest& digest, std::string_view frame_piece) override {
    if (!decoder_ || current_ != digest) {
      current_ = digest;
      auto bytes = std::make_shared<std::string>();
      decoder_.emplace(digest, codec::kSolidBlockLimit, [bytes](std::string_view raw) -> Result<void> {
        bytes->append(raw);
        return {};
      });
      bytes_ = std::move(bytes);
    }
    return decoder_->feed(frame_piece);
  }
  void done(const codec::Digest& digest, Result<void> outcome) override {
    const bool begun = decoder_ && current_ == digest;
    if (outcome) outcome = begun ? decoder_->finish() : fail(ErrorCode::kCorrupt, "an empty block");
    auto block = outcome ? Result<BlockCache::Block>(std::move(bytes_)) : fail(std::move(outcome).error());
    if (begun) decoder_.reset();
    done_(digest, std::move(block));
  }

 private:
  const Done done_;
  codec::Digest current_;
  std::optional<codec::FrameDecoder> decoder_;
  BlockCache::Block bytes_;
};

/// The blobs of one fetch and how far each is. Confined to the fetching thread.
class FetchJob {
 public:
  /// `cache` is nullptr for a job that fetches blocks: a block is no member of another one.
  FetchJob(RedisClient& session, BlockCache* cache, std::span<const codec::Digest> digests, BlobSink& sink,
           Budget& budget)
      : session_(session),
        cache_(cache),
        budget_(budget),
        prefix_(session.options().prefix),
        sink_(sink),
        blobs_(session.counters().get(cache != nullptr ? "remote.fetch_blobs" : "remote.fetch_blocks")),
        bytes_(session.counters().get("remote.fetch_bytes")),
        missing_(session.counters().get(cache != nullptr ? "remote.fetch_missing" : "remote.fetch_blocks_failed")),
        failed_(session.counters().get(cache != nullptr ? "remote.fetch_failed" : "remote.fetch_blocks_failed")) {
    std::unordered_set<codec::Digest> seen;
    for (const codec::Digest& digest : digests) {
      if (seen.insert(digest).second) waiting_.push_back({digest, {}, {}, 0, false});
    }
  }

  /// May be called again after an error: what is done stays done.
  Result<void> run(Conversation& channel) {
    abandon_started(Error(ErrorCode::kUnavailable, "the connection was lost"));
    // What is small does not wait for what is large.
    while (!waiting_.empty() || !members_.empty() || !large_.empty()) {
      INDUCTORFS_TRY(!members_.empty() ? read_blocks(channel)
                     : large_.empty()  ? read_first(channel)
                                       : read_rest(channel));
    }
    return {};
  }

  /// What the server said instead of giving a blob.
  [[nodiscard]] const std::optional<Error>& refusal() const { return refusal_; }
  /// Every blob that has not been answered gets this error.
  void finish(const Error& error) {
    for (auto* items : {&large_, &waiting_, &members_}) {
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
    std::optional<codec::MemberFrame> member{};  // its bytes are in a block
    bool again = false;                          // its frame was read before, and its block was not there
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
      auto& next = !answered[i] ? waiting_ : batch[i].member ? members_ : large_;
      next.push_back(std::move(batch[i]));
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
    const bool is_long_block = cache_ == nullptr && head && head->pieces > 1;  // a block has one piece
    if (!head || is_long_block || reply.text.size() != std::min(whole, kFirstRead)) {
      return end(item, fail(ErrorCode::kCorrupt, "a blob's first piece is damaged"));
    }
    item.head = *head;
    reply.text.erase(0, kPieceHeadSize);
    if (head->pieces > 1 || whole > kFirstRead) {
      item.first = std::move(reply.text);
    } else if (cache_ != nullptr && (item.member = codec::MemberFrame::parse(reply.text))) {
      bytes_.add(reply.text.size());
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

  // The blocks of some members, each of which is given to all its members as soon as it is there.
  Result<void> read_blocks(Conversation& channel) {
    std::vector<codec::Digest> blocks;
    for (const Item& item : members_) {
      const codec::Digest& block = item.member->block;
      if (std::ranges::find(blocks, block) != blocks.end()) continue;
      if (const auto kept = cache_->find(block)) {
        give_members(block, kept);
        budget_.progress();  // the server was not waited for meanwhile
        return {};           // members_ has changed
      }
      blocks.push_back(block);
      if (blocks.size() == kBlocksAtOnce) break;
    }
    BlockSink sink([this](const codec::Digest& digest, Result<BlockCache::Block> block) {
      if (block) cache_->keep(digest, *block);
      give_members(digest, block);
    });
    FetchJob job(session_, nullptr, blocks, sink, budget_);
    auto outcome = job.run(channel);
    if (job.refusal_ && !refusal_) refusal_ = job.refusal_;
    return outcome;
  }

  void give_members(const codec::Digest& digest, const Result<BlockCache::Block>& block) {
    for (Item& item : members_) {
      if (item.member->block != digest) continue;
      if (block) {
        give_member(item, **block);
      } else if (block.error().code() == ErrorCode::kNotFound && !item.again) {
        // Nothing but the block vouches for the frame that names it, which may have been damaged on its way.
        waiting_.push_back({item.digest, {}, {}, 0, false, {}, true});
        item.ended = true;
      } else {
        const ErrorCode code = block.error().code();
        const bool is_damaged = code == ErrorCode::kTooLarge;  // longer than any block
        end(item, fail(is_damaged ? ErrorCode::kCorrupt : code, "its solid block: " + block.error().what()));
      }
    }
    std::erase_if(members_, [](const Item& item) { return item.ended; });
  }

  void give_member(Item& item, std::string_view block) {
    const auto bytes = item.member->digest == item.digest ? item.member->cut(block) : std::nullopt;
    if (!bytes) return end(item, fail(ErrorCode::kCorrupt, "a frame names a place that its solid block has not"));
    auto taken = sink_.piece(item.digest, codec::stored_frame_header(item.digest, bytes->size()));
    if (taken && !bytes->empty()) taken = sink_.piece(item.digest, *bytes);
    end(item, std::move(taken));
  }

  RedisClient& session_;
  BlockCache* const cache_;
  Budget& budget_;
  const std::string& prefix_;
  BlobSink& sink_;
  Counter& blobs_;
  Counter& bytes_;
  Counter& missing_;
  Counter& failed_;
  std::optional<Error> refusal_;
  std::deque<Item> waiting_;
  std::deque<Item> large_;
  std::deque<Item> members_;
};

}  // namespace

void RedisRemote::fetch_within(std::span<const codec::Digest> digests, BlobSink& sink, Budget& budget) {
  if (digests.empty()) return;
  FetchJob job(session_, &shared_->blocks, digests, sink, budget);
  auto outcome = session_.run(
      Use::kFetch, budget.total(), [&](Conversation& channel) { return job.run(channel); }, &budget);
  if (!outcome) job.finish(outcome.error());
  if (outcome && job.refusal()) session_.refused(*job.refusal());
}

}  // namespace inductorfs::remote
