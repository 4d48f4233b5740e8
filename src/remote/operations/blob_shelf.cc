// SPDX-License-Identifier: Apache-2.0
#include "remote/operations/blob_shelf.h"

#include <algorithm>
#include <limits>

#include "remote/operations/redis_operations.h"

namespace inductorfs::remote {
namespace {

using redis::Reply;

/// What GETRANGE takes as the last byte of a head and, behind it, of the frame of a block's member.
const std::string& head_end() {
  static const std::string end = std::to_string(kMemberValueSize - 1);
  return end;
}

}  // namespace

BlobShelf::BlobShelf(RedisClient& session, Conversation& channel, std::vector<codec::Digest> digests, Renew renew,
                     Of of)
    : session_(&session),
      channel_(&channel),
      lifetime_(Lifetime::of_blobs(session.options())),
      digests_(std::move(digests)),
      renews_(renew == Renew::kYes),
      of_(of) {
  for (const codec::Digest& digest : digests_) keys_.push_back(piece_key(session.options().prefix, digest, 0));
}

void BlobShelf::ask(std::vector<redis::Command>& commands) const {
  for (const std::string& key : keys_) {
    commands.push_back({"GETRANGE", key, "0", head_end()});
    commands.push_back({"PTTL", key});
  }
}

Result<void> BlobShelf::take(std::span<const Reply> replies) {
  std::vector<size_t> due;
  std::map<codec::Digest, std::vector<size_t>> members;
  for (size_t i = 0; i < digests_.size(); ++i) {
    const std::string& start = replies[kQuestions * i].text;
    if (tells_nothing(replies[kQuestions * i])) {
      left_.push_back(std::numeric_limits<int64_t>::max());
      continue;
    }
    const auto head = PieceHead::parse(std::string_view(start).substr(0, kPieceHeadSize));
    left_.push_back(replies[kQuestions * i + 1].integer);
    // Unfit here and not lost: what is behind such a head, and under which keys, only its own release knows. It renews
    // the blob, too: a first piece alone must not outlive the others.
    if (PieceHead::is_newer(start)) continue;
    Pieces pieces = head ? Pieces::kAllThere : Pieces::kSomeGone;
    if (head && head->pieces > 1) {
      INDUCTORFS_TRY_ASSIGN(pieces, look_at_other_pieces(digests_[i], head->pieces, is_due(i)));
    }
    if (pieces == Pieces::kUntold) continue;
    if (pieces == Pieces::kSomeGone) {
      missing_.push_back(digests_[i]);
    } else if (const auto member = member_in(start)) {
      members[member->block].push_back(i);
    } else if (is_due(i)) {
      due.push_back(i);
    }
  }
  if (!members.empty()) INDUCTORFS_TRY(look_at_blocks(members, due));
  return renew(due);
}

/// A member is there as long as its block is, and no longer.
Result<void> BlobShelf::look_at_blocks(const std::map<codec::Digest, std::vector<size_t>>& members,
                                       std::vector<size_t>& due) {
  std::vector<codec::Digest> digests;
  for (const auto& [block, indices] : members) digests.push_back(block);
  BlobShelf blocks(*session_, *channel_, digests, renews_ ? Renew::kYes : Renew::kNo, Of::kBlocks);
  if (of_ == Of::kBlobs) INDUCTORFS_TRY(blocks.look());
  if (!untold_) untold_ = blocks.untold_;
  for (size_t k = 0; k < digests.size(); ++k) {
    const bool is_gone = of_ == Of::kBlocks || std::ranges::find(blocks.missing_, digests[k]) != blocks.missing_.end();
    for (const size_t i : members.at(digests[k])) {
      if (is_gone) {
        missing_.push_back(digests_[i]);
        continue;
      }
      if (is_due(i)) due.push_back(i);
      left_[i] = std::min(left_[i], blocks.left_[k]);
    }
  }
  return {};
}

// Also what has no lifetime, which nobody of us made so.
bool BlobShelf::is_due(size_t index) const { return renews_ && left_[index] < lifetime_.renew_below; }

Result<void> BlobShelf::renew(const std::vector<size_t>& due) {
  if (due.empty()) return {};
  std::vector<redis::Command> commands;
  for (const size_t i : due) commands.push_back({"PEXPIRE", keys_[i], lifetime_.text});
  return channel_->pipeline(commands, [&](size_t index, Reply&& reply) -> Result<void> {
    // It went just now. Who may not renew it has seen that it is there.
    if (!reply.is_error() && reply.integer != 1) missing_.push_back(digests_[due[index]]);
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
