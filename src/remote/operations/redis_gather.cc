// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "inductorfs/codec/frame.h"
#include "inductorfs/codec/solid_block.h"
#include "remote/formats/keys.h"
#include "remote/formats/piece.h"
#include "remote/operations/blob_shelf.h"
#include "remote/operations/redis_operations.h"

namespace inductorfs::remote {
namespace {

using redis::Reply;

constexpr size_t kHeadsAtOnce = 1024;
constexpr size_t kHeadSize = kPieceHeadSize + codec::kFrameHeaderSize;
/// What is read and inflated before the deadline is looked at again.
constexpr uint64_t kRawAtOnce = uint64_t{8} << 20;
/// A block must save a quarter: who wants one member fetches all.
constexpr uint64_t kPaysFrom = 4;
constexpr uint64_t kPaysTo = 3;

/// Cuts blobs into blocks, in their order. Each step is a conversation of its own, so that no connection is held while
/// a block is compressed. Confined to the calling thread.
class GatherJob {
 public:
  GatherJob(RedisClient& session, std::span<const codec::Digest> digests, Deadline deadline)
      : session_(session),
        prefix_(session.options().prefix),
        lifetime_(Lifetime::of_blobs(session.options()).text),
        digests_(digests),
        deadline_(deadline) {}

  Result<void> run() {
    for (size_t at = 0; at < digests_.size(); at += kHeadsAtOnce) {
      INDUCTORFS_TRY(read_small_ones(digests_.subspan(at, std::min(kHeadsAtOnce, digests_.size() - at))));
    }
    return write_block();
  }
  [[nodiscard]] const GatherReport& report() const { return report_; }

 private:
  /// A blob that lies by itself and may become a member.
  struct Single {
    codec::Digest digest;
    std::string key;
    size_t stored = 0;  ///< bytes of its value
    uint64_t size = 0;
  };
  struct Member {
    codec::MemberFrame frame;
    std::string key;
  };
  /// The block that is being filled.
  struct Pending {
    std::string bytes;
    std::vector<Member> members;
    uint64_t stored = 0;  ///< bytes of the members' values in the cluster
  };

  Result<std::vector<Reply>> ask(const std::vector<redis::Command>& commands) {
    std::vector<Reply> replies;
    INDUCTORFS_TRY(session_.run(Use::kControl, deadline_, [&](Conversation& channel) -> Result<void> {
      INDUCTORFS_TRY_ASSIGN(replies, channel.call_all(commands));
      return {};
    }));
    return replies;
  }

  Result<void> read_small_ones(std::span<const codec::Digest> digests) {
    std::vector<std::string> keys;
    for (const codec::Digest& digest : digests) keys.push_back(piece_key(prefix_, digest, 0));
    const std::string end = std::to_string(kHeadSize - 1);
    std::vector<redis::Command> commands;
    for (const std::string& key : keys) commands.push_back({"GETRANGE", key, "0", end});
    INDUCTORFS_TRY_ASSIGN(const auto heads, ask(commands));
    // A key of another kind is one blob's harm; a server that refuses all says why.
    if (std::ranges::all_of(heads, &Reply::is_error)) return fail(redis::to_error(heads.front()));
    std::vector<Single> window;
    uint64_t stored = 0;
    uint64_t raw = 0;
    for (size_t i = 0; i < digests.size(); ++i) {
      auto single = single_of(digests[i], keys[i], heads[i]);
      if (!single) continue;
      stored += single->stored;
      raw += single->size;
      window.push_back(std::move(*single));
      if (stored + kValueLimit <= kWindowBytes && raw < kRawAtOnce) continue;
      INDUCTORFS_TRY(read_window(std::exchange(window, {})));
      stored = raw = 0;
    }
    return read_window(window);
  }

  // What is a member already, has several pieces, is too large or of a newer release is left alone.
  static std::optional<Single> single_of(const codec::Digest& digest, const std::string& key, const Reply& reply) {
    if (reply.kind != Reply::Kind::kString || reply.text.size() < kHeadSize) return std::nullopt;
    const auto head = PieceHead::parse(std::string_view(reply.text).substr(0, kPieceHeadSize));
    if (!head || head->pieces != 1 || head->frame_size <= codec::kMemberFrameSize) return std::nullopt;
    const auto size = codec::raw_size_of(std::string_view(reply.text).substr(kPieceHeadSize));
    if (!size || *size > kGatheredBlobLimit) return std::nullopt;
    return Single{digest, key, kPieceHeadSize + static_cast<size_t>(head->frame_size), *size};
  }

  Result<void> read_window(const std::vector<Single>& window) {
    if (window.empty()) return {};
    std::vector<std::string> ends;  // a value that has grown meanwhile is cut, and is none
    for (const Single& single : window) ends.push_back(std::to_string(single.stored - 1));
    std::vector<redis::Command> commands;
    for (size_t i = 0; i < window.size(); ++i) commands.push_back({"GETRANGE", window[i].key, "0", ends[i]});
    INDUCTORFS_TRY_ASSIGN(const auto values, ask(commands));
    for (size_t i = 0; i < window.size(); ++i) {
      if (values[i].kind == Reply::Kind::kString) INDUCTORFS_TRY(take(window[i], values[i].text));
    }
    return {};
  }

  // What is damaged is not for this to judge.
  Result<void> take(const Single& single, std::string_view value) {
    const auto head = PieceHead::parse(value.substr(0, kPieceHeadSize));
    if (!head || head->pieces != 1 || head->frame_size != value.size() - kPieceHeadSize) return {};
    const auto raw = codec::decode_frame(value.substr(kPieceHeadSize), single.digest, kGatheredBlobLimit);
    if (!raw) return {};
    if (pending_.bytes.size() + raw->size() > codec::kSolidBlockLimit) INDUCTORFS_TRY(write_block());
    pending_.members.push_back({{single.digest, raw->size(), {}, pending_.bytes.size()}, single.key});
    pending_.bytes += *raw;
    pending_.stored += value.size();
    return {};
  }

  Result<void> write_block() {
    const Pending full = std::exchange(pending_, {});
    if (full.members.size() < 2) return {};
    if (deadline_.passed()) return fail(ErrorCode::kTimedOut, "the time to gather is over");
    const codec::Digest digest = codec::digest_of(full.bytes);
    INDUCTORFS_TRY_ASSIGN(const std::string frame, codec::encode_frame(full.bytes));
    const uint64_t after = kPieceHeadSize + frame.size() + full.members.size() * kMemberValueSize;
    if (frame.size() > kPieceBytes || after * kPaysFrom > full.stored * kPaysTo) return {};
    const std::string key = piece_key(prefix_, digest, 0);
    const std::string value = PieceHead::of(frame.size()).encode() + frame;
    INDUCTORFS_TRY_ASSIGN(const auto written, ask({{"SET", key, value, "PX", lifetime_}}));
    if (written.front().is_error()) return fail(redis::to_error(written.front()));
    INDUCTORFS_TRY_ASSIGN(const Placed placed, place(full.members, digest));
    if (placed.count == 0) (void)ask({{"UNLINK", key}});  // nobody names it
    if (placed.refused) return fail(*placed.refused);
    report_.blobs += placed.count;
    report_.bytes_before += full.stored;
    report_.bytes_after += after;
    ++report_.blocks;
    session_.counters().get("remote.publish_bytes").add(after);
    return {};
  }

  struct Placed {
    uint64_t count = 0;
    std::optional<Error> refused{};
  };
  // Behind the block, so that who finds a member finds its block; nothing that was removed meanwhile comes back. What
  // was placed before the server refused the rest is as good as any.
  Result<Placed> place(const std::vector<Member>& members, const codec::Digest& block) {
    std::vector<std::string> values;  // the commands hold views of them
    for (const Member& member : members) {
      codec::MemberFrame frame = member.frame;
      frame.block = block;
      values.push_back(PieceHead::of(codec::kMemberFrameSize).encode() + frame.encode());
    }
    std::vector<redis::Command> commands;
    for (size_t i = 0; i < values.size(); ++i) {
      commands.push_back({"SET", members[i].key, values[i], "XX", "PX", lifetime_});
    }
    INDUCTORFS_TRY_ASSIGN(const auto replies, ask(commands));
    Placed placed;
    for (const Reply& reply : replies) {
      if (reply.kind == Reply::Kind::kStatus) ++placed.count;
      if (reply.is_error() && !placed.refused) placed.refused = redis::to_error(reply);
    }
    return placed;
  }

  RedisClient& session_;
  const std::string& prefix_;
  const std::string lifetime_;
  const std::span<const codec::Digest> digests_;
  const Deadline deadline_;
  Pending pending_;
  GatherReport report_;
};

/// Of the hosts that have seen the same start at the same time one gathers.
class Turn {
 public:
  Turn(RedisClient& session, const codec::Digest& first, Deadline deadline)
      : session_(session), key_(gathering_key(session.options().prefix, first)), deadline_(deadline) {}
  ~Turn() {
    if (taken_) (void)call({"UNLINK", key_});
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  [[nodiscard]] Result<bool> take() {
    const std::string lifetime = std::to_string(std::max<int64_t>(1, deadline_.left().count()));
    INDUCTORFS_TRY_ASSIGN(const Reply reply, call({"SET", key_, "1", "NX", "PX", lifetime}));
    if (reply.is_error()) return fail(redis::to_error(reply));
    taken_ = reply.kind == Reply::Kind::kStatus;
    return taken_;
  }

 private:
  Result<Reply> call(const redis::Command& command) {
    Reply reply;
    INDUCTORFS_TRY(session_.run(Use::kControl, deadline_, [&](Conversation& channel) -> Result<void> {
      INDUCTORFS_TRY_ASSIGN(reply, channel.call(command));
      return {};
    }));
    return reply;
  }

  RedisClient& session_;
  const std::string key_;
  const Deadline deadline_;
  bool taken_ = false;
};

}  // namespace

Result<GatherReport> RedisRemote::gather(std::span<const codec::Digest> digests, Deadline deadline) {
  if (session_.options().read_only) return read_only();
  std::unordered_set<codec::Digest> seen;
  std::vector<codec::Digest> distinct;
  std::ranges::copy_if(digests, std::back_inserter(distinct), [&](const auto& one) { return seen.insert(one).second; });
  if (distinct.size() < 2) return GatherReport{};
  Turn turn(session_, *std::ranges::min_element(distinct), deadline);
  INDUCTORFS_TRY_ASSIGN(const bool ours, turn.take());
  if (!ours) return GatherReport{};
  GatherJob job(session_, distinct, deadline);
  const auto done = job.run();
  session_.counters().get("remote.gathered_blobs").add(job.report().blobs);
  session_.counters().get("remote.gathered_blocks").add(job.report().blocks);
  INDUCTORFS_TRY(done);
  return job.report();
}

}  // namespace inductorfs::remote
