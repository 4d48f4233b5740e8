// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "inductorfs/remote/remote.h"
#include "remote/client/redis_client.h"
#include "remote/formats/piece.h"
#include "remote/operations/lifetime.h"

namespace inductorfs::remote {

/// Asks the server which of some blobs it has, and renews the lifetime of those that have used up a part of it
/// (lifetime.h). Its questions go into a pipeline of the caller, so that they cost no round trip of their own.
/// Confined to the publishing thread.
class BlobShelf {
 public:
  enum class Renew { kYes, kNo };
  enum class Of { kBlobs, kBlocks };  ///< a solid block that is a member of another one is as bad as none
  BlobShelf(RedisClient& session, Conversation& channel, std::vector<codec::Digest> digests, Renew renew = Renew::kYes,
            Of of = Of::kBlobs);

  /// Appends kQuestions commands for each blob; they hold views into this object.
  void ask(std::vector<redis::Command>& commands) const;
  /// Takes the answers to ask(), in order, and asks for the further pieces of large blobs, and for the solid blocks of
  /// members, whose lifetime is that of their members (codec/solid_block.h).
  [[nodiscard]] Result<void> take(std::span<const redis::Reply> replies);
  /// Does ask() and take() in a round trip of their own.
  [[nodiscard]] Result<void> look();
  /// Returns the blobs that are not there, or lack a piece or their block, but not those whose head a newer release has
  /// written, nor those of which the server did not tell.
  [[nodiscard]] const std::vector<codec::Digest>& missing() const { return missing_; }

  /// Returns why the server did not tell of some blobs, if so: their shard of a Redis Cluster is away, for instance.
  [[nodiscard]] const std::optional<Error>& untold() const { return untold_; }

  /// Returns how many milliseconds each blob has left, in the order of the digests; negative when it is not there, the
  /// largest number when the server did not tell.
  [[nodiscard]] const std::vector<int64_t>& left() const { return left_; }

  static constexpr size_t kQuestions = 2;

 private:
  enum class Pieces { kAllThere, kSomeGone, kUntold };
  [[nodiscard]] Result<Pieces> look_at_other_pieces(const codec::Digest& digest, uint32_t pieces, bool renew);
  [[nodiscard]] Result<void> look_at_blocks(const std::map<codec::Digest, std::vector<size_t>>& members,
                                            std::vector<size_t>& due);
  [[nodiscard]] bool is_due(size_t index) const;
  [[nodiscard]] Result<void> renew(const std::vector<size_t>& due);
  /// Says whether a reply tells nothing of its blob; keeps why.
  [[nodiscard]] bool tells_nothing(const redis::Reply& reply);

  RedisClient* session_;
  Conversation* channel_;
  Lifetime lifetime_;
  std::vector<codec::Digest> digests_;
  bool renews_;
  Of of_;
  std::deque<std::string> keys_;
  std::vector<int64_t> left_;
  std::vector<codec::Digest> missing_;
  std::optional<Error> untold_;
};

/// Collects SET commands for a common pipeline. Confined to the publishing thread.
class PieceWriter {
 public:
  PieceWriter(RedisClient& session, Conversation& channel);

  /// Writes all pieces of the frame; piece 0, which says how many there are, comes last.
  [[nodiscard]] Result<void> write(const codec::Digest& digest, BlobSource& source);
  [[nodiscard]] Result<void> flush();
  /// Returns the first error reply, if there was one.
  [[nodiscard]] const std::optional<redis::Reply>& refusal() const { return refusal_; }

 private:
  [[nodiscard]] Result<void> put(std::string key, std::string value);

  RedisClient& session_;
  Conversation& channel_;
  const std::string lifetime_;
  Counter& bytes_;
  std::vector<std::pair<std::string, std::string>> queue_;
  size_t queued_ = 0;
  std::optional<redis::Reply> refusal_;
};

}  // namespace inductorfs::remote
