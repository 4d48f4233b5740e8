// SPDX-License-Identifier: Apache-2.0
#include "blob_shelf.h"

#include <algorithm>
#include <limits>

#include "redis_operations.h"

namespace inductorfs::remote {
namespace {

using redis::Reply;

/// What GETRANGE takes as the last byte of a head.
const std::string& head_end() {
  static const std::string end = std::to_string(kPieceHeadSize - 1);
  return end;
}

}  // namespace

BlobShelf::BlobShelf(RedisClient& session, Conversation& channel, std::vector<codec::Digest> digests, Renew renew)
    : session_(&session),
      channel_(&channel),
      lifetime_(Lifetime::of_blobs(session.options())),
      digests_(std::move(digests)),
      renews_(renew == Renew::kYes) {
  for (const codec::Digest& digest : digests_) keys_.push_back(piece_key(session.options().prefix, digest, 0));
}

void BlobShelf::ask(std::vector<redis::Command>& commands) const {
  for (const std::string& key : keys_) {
    commands.push_back({"GETRANGE", key, "0", head_end()});
    commands.push_back({"PTTL", key});
  }
}

Result<void> BlobShelf::take(std::span<const Reply> replies) {
  std::deque<size_t> renewed;
  for (size_t i = 0; i < digests_.size(); ++i) {
    if (tells_nothing(replies[kQuestions * i])) {
      left_.push_back(std::numeric_limits<int64_t>::max());
      continue;
    }
    const auto head = PieceHead::parse(replies[kQuestions * i].text);
    const int64_t left = replies[kQuestions * i + 1].integer;
    const bool renew =
        renews_ && left < lifetime_.renew_below;  // also what has no lifetime, which nobody of us made so
    left_.push_back(left);
    // Unfit here and not lost: what is behind such a head, and under which keys, only its own release knows. It renews
    // the blob, too: a first piece alone must not outlive the others.
    if (PieceHead::is_newer(replies[kQuestions * i].text)) continue;
    Pieces pieces = head ? Pieces::kAllThere : Pieces::kSomeGone;
    if (head && head->pieces > 1) {
      INDUCTORFS_TRY_ASSIGN(pieces, look_at_other_pieces(digests_[i], head->pieces, renew));
    }
    if (pieces == Pieces::kUntold) continue;
    if (pieces == Pieces::kSomeGone) {
      missing_.push_back(digests_[i]);
    } else if (renew) {
      renewed.push_back(i);
    }
  }
  if (renewed.empty()) return {};
  std::vector<redis::Command> commands;
  for (const size_t i : renewed) commands.push_back({"PEXPIRE", keys_[i], lifetime_.text});
  return channel_->pipeline(commands, [&](size_t index, Reply&& reply) -> Result<void> {
    // It went just now. Who may not renew it has seen that it is there.
    if (!reply.is_error() && reply.integer != 1) missing_.push_back(digests_[renewed[index]]);
    return {};
  });
}

Result<void> BlobShelf::look() {
  std::vector<redis::Command> commands;
  ask(commands);
  auto replies = channel_->call_all(commands);
  return replies ? take(*replies) : fail(std::move(replies).error());
}

// What is said of every key for a while (the shard is away, the data set is being read) says nothing of this one, and
// what is taken for gone is removed from an index. A key of another type is as bad as none.
bool BlobShelf::tells_nothing(const Reply& reply) {
  if (!reply.is_error()) return false;
  Error error = redis::to_error(reply);
  if (error.code() != ErrorCode::kUnavailable) return false;
  if (!untold_) untold_ = std::move(error);
  return true;
}

Result<BlobShelf::Pieces> BlobShelf::look_at_other_pieces(const codec::Digest& digest, uint32_t pieces, bool renew) {
  constexpr uint32_t kAtOnce = 1024;
  bool whole = true;
  bool untold = false;
  for (uint32_t from = 1; from < pieces && whole; from += kAtOnce) {
    std::deque<std::string> keys;
    std::vector<redis::Command> commands;
    for (uint32_t piece = from; piece < std::min(pieces, from + kAtOnce); ++piece) {
      keys.push_back(piece_key(session_->options().prefix, digest, piece));
      if (renew) {
        commands.push_back({"PEXPIRE", keys.back(), lifetime_.text});
      } else {
        commands.push_back({"EXISTS", keys.back()});
      }
    }
    INDUCTORFS_TRY(channel_->pipeline(commands, [&](size_t, Reply&& reply) -> Result<void> {
      if (tells_nothing(reply)) {
        untold = true;
        return {};
      }
      // Who may not renew a piece cannot tell that it is gone either.
      whole = whole && (reply.is_error() ? renew : reply.integer == 1);
      return {};
    }));
  }
  if (!whole) return Pieces::kSomeGone;
  return untold ? Pieces::kUntold : Pieces::kAllThere;
}

PieceWriter::PieceWriter(RedisClient& session, Conversation& channel)
    : session_(session),
      channel_(channel),
      lifetime_(Lifetime::of_blobs(session.options()).text),
      bytes_(session.counters().get("remote.publish_bytes")) {}

Result<void> PieceWriter::write(const codec::Digest& digest, BlobSource& source) {
  std::string first;
  uint64_t frame_size = 0;
  uint32_t index = 0;
  bool short_one = false;
  INDUCTORFS_TRY(source.read(digest, kPieceBytes, [&](std::string_view piece) -> Result<void> {
    if (piece.empty() || short_one || piece.size() > kPieceBytes) {
      return fail(ErrorCode::kInternal, "a blob's source does not keep to the length of pieces");
    }
    short_one = piece.size() < kPieceBytes;
    frame_size += piece.size();
    if (frame_size > kFrameSizeLimit) return fail(ErrorCode::kTooLarge, "a frame over the limit of 1 TiB");
    if (index++ > 0) return put(piece_key(session_.options().prefix, digest, index - 1), std::string(piece));
    first = piece;
    return {};
  }));
  if (frame_size == 0) return fail(ErrorCode::kInternal, "a blob's source gave no frame");
  // Piece 0 is written last, and the servers of a cluster do not wait for each other.
  if (index > 1 && channel_.spans_servers()) INDUCTORFS_TRY(flush());
  return put(piece_key(session_.options().prefix, digest, 0), PieceHead::of(frame_size).encode() + first);
}

Result<void> PieceWriter::flush() {
  std::vector<redis::Command> commands;
  commands.reserve(queue_.size());
  for (const auto& [key, value] : queue_) commands.push_back({"SET", key, value, "PX", lifetime_});
  auto outcome = channel_.pipeline(commands, [&](size_t, Reply&& reply) -> Result<void> {
    if (!refusal_ && reply.is_error()) refusal_ = std::move(reply);
    return {};
  });
  bytes_.add(queued_);
  queue_.clear();
  queued_ = 0;
  if (outcome && refusal_) return fail(redis::to_error(*refusal_));
  return outcome;
}

Result<void> PieceWriter::put(std::string key, std::string value) {
  queued_ += value.size();
  queue_.emplace_back(std::move(key), std::move(value));
  if (queued_ + kValueLimit > kWindowBytes) return flush();
  return {};
}

}  // namespace inductorfs::remote
