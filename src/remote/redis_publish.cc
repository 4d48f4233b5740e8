// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <utility>

#include "group.h"
#include "keys.h"
#include "piece.h"
#include "redis_operations.h"
#include "scripts.h"

namespace inductorfs::remote {
namespace {

using redis::Reply;

bool refuses_writes(const Reply& reply) {
  constexpr std::array<std::string_view, 4> kWords = {"OOM ", "MISCONF ", "READONLY ", "NOREPLICAS "};
  return reply.is_error() &&
         std::any_of(kWords.begin(), kWords.end(), [&](std::string_view word) { return reply.text.starts_with(word); });
}

/// SET commands that wait for a common pipeline. Confined to the publishing thread.
class BlobWriter {
 public:
  BlobWriter(Session& session, Channel& channel)
      : session_(session),
        channel_(channel),
        lifetime_(std::to_string(std::chrono::duration_cast<Milliseconds>(session.options().blob_lifetime).count())),
        bytes_(session.counters().get("remote.publish_bytes")) {}

  /// All pieces of the frame; piece 0, which says how many there are, as the last.
  Result<void> write(const codec::Digest& digest, BlobSource& source) {
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
    return put(piece_key(session_.options().prefix, digest, 0), PieceHead::of(frame_size).encode() + first);
  }

  Result<void> flush() {
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
  /// The first error reply, if there was one.
  [[nodiscard]] const std::optional<Reply>& refusal() const { return refusal_; }

 private:
  Result<void> put(std::string key, std::string value) {
    queued_ += value.size();
    queue_.emplace_back(std::move(key), std::move(value));
    if (queued_ + kValueLimit > kWindowBytes) return flush();
    return {};
  }

  Session& session_;
  Channel& channel_;
  const std::string lifetime_;
  Counter& bytes_;
  std::vector<std::pair<std::string, std::string>> queue_;
  size_t queued_ = 0;
  std::optional<Reply> refusal_;
};

/// One publish. Confined to the publishing thread.
class PublishJob {
 public:
  PublishJob(Session& session, const PublishGroup& group, const EncodedGroup& encoded, BlobSource& source)
      : session_(session),
        group_(group),
        encoded_(encoded),
        source_(source),
        keys_(session.options().prefix, group.scope) {}

  Result<void> run(Channel& channel) {
    refusal_.reset();
    if (group_.contest) {
      auto lost = contest_is_lost(channel);
      if (!lost) return fail(std::move(lost).error());
      if (*lost || refusal_) return {};
    }
    INDUCTORFS_TRY(store_blobs(channel));
    if (refusal_) return {};
    auto status = evaluate(channel, "write");
    if (!status) return fail(std::move(status).error());
    return conclude(*status);
  }

  /// The server is well but will not write now.
  [[nodiscard]] const std::optional<Reply>& refusal() const { return refusal_; }
  [[nodiscard]] PublishOutcome outcome() const { return outcome_; }

 private:
  // N nodes that compiled the same at once: only the first need send its blobs.
  Result<bool> contest_is_lost(Channel& channel) {
    auto reply = channel.call({"HGET", keys_.counts, group_.contest->key});
    if (!reply) return fail(std::move(reply).error());
    if (reply->is_error()) return fail(redis::to_error(*reply));
    uint64_t held = 0;
    if (reply->kind == Reply::Kind::kString) held = std::strtoull(reply->text.c_str(), nullptr, 10);
    if (held <= group_.contest->most) return false;
    auto status = evaluate(channel, "check");
    if (!status) return fail(std::move(status).error());
    if (refusal_ || *status == "FREE") return false;
    INDUCTORFS_TRY(conclude(*status));
    return true;
  }

  Result<void> store_blobs(Channel& channel) {
    auto missing = find_missing(channel);
    if (!missing) return fail(std::move(missing).error());
    BlobWriter writer(session_, channel);
    Result<void> written;
    for (const codec::Digest& digest : *missing) {
      written = writer.write(digest, source_);
      if (!written) break;
    }
    if (written) written = writer.flush();
    if (writer.refusal() && refuses_writes(*writer.refusal())) {
      refusal_ = writer.refusal();
      return {};
    }
    session_.counters().get("remote.publish_blobs").add(missing->size());
    return written;
  }

  // Renews the lifetime of what is there; a blob that lacks a piece counts as missing and is written anew.
  Result<std::vector<codec::Digest>> find_missing(Channel& channel) {
    const auto digests = distinct_digests(group_.entries);
    const std::string lifetime = lifetime_text();
    const std::string head_end = std::to_string(kPieceHeadSize - 1);
    std::deque<std::string> keys;
    std::vector<redis::Command> commands;
    for (const codec::Digest& digest : digests) {
      keys.push_back(piece_key(session_.options().prefix, digest, 0));
      commands.push_back({"GETRANGE", keys.back(), "0", head_end});
      commands.push_back({"PEXPIRE", keys.back(), lifetime});
    }
    auto replies = channel.call_all(commands);
    if (!replies) return fail(std::move(replies).error());
    std::vector<codec::Digest> missing;
    for (size_t i = 0; i < digests.size(); ++i) {
      const auto head = PieceHead::parse((*replies)[2 * i].text);
      bool whole = head && (*replies)[2 * i + 1].integer == 1;
      if (whole && head->pieces > 1) {
        auto renewed = renew_pieces(channel, digests[i], head->pieces, lifetime);
        if (!renewed) return fail(std::move(renewed).error());
        whole = *renewed;
      }
      if (!whole) missing.push_back(digests[i]);
    }
    return missing;
  }

  Result<bool> renew_pieces(Channel& channel, const codec::Digest& digest, uint32_t pieces,
                            const std::string& lifetime) {
    constexpr uint32_t kAtOnce = 1024;
    bool whole = true;
    for (uint32_t from = 1; from < pieces && whole; from += kAtOnce) {
      std::deque<std::string> keys;
      std::vector<redis::Command> commands;
      for (uint32_t piece = from; piece < std::min(pieces, from + kAtOnce); ++piece) {
        keys.push_back(piece_key(session_.options().prefix, digest, piece));
        commands.push_back({"PEXPIRE", keys.back(), lifetime});
      }
      INDUCTORFS_TRY(channel.pipeline(commands, [&](size_t, Reply&& reply) -> Result<void> {
        whole = whole && reply.integer == 1;
        return {};
      }));
    }
    return whole;
  }

  // The script's word; empty when the server refuses to write.
  Result<std::string> evaluate(Channel& channel, std::string_view mode) {
    const RemoteOptions& options = session_.options();
    const std::string log_length = std::to_string(options.log_length);
    const std::string index_limit = std::to_string(options.index_limit);
    const std::string most = std::to_string(group_.contest ? group_.contest->most : 0);
    const std::string contest = group_.contest ? group_.contest->key : "";
    std::string expect;
    if (group_.replaces) {
      const auto& digest = group_.replaces->digest;
      expect = digest ? "=" + std::string(digest->raw()) : "-";
    }
    const std::string nonce = random_nonce();
    redis::Command command = {
        "EVAL", publish_script(), "5",         keys_.meta,      keys_.index, keys_.counts, keys_.owners, keys_.log,
        nonce,  log_length,       index_limit, encoded_.record, contest,     most,         expect,       mode};
    for (const auto& [path, value] : encoded_.values) {
      command.push_back(path);
      command.push_back(value);
    }
    auto reply = channel.call(command);
    if (!reply) return fail(std::move(reply).error());
    if (refuses_writes(*reply)) {
      refusal_ = std::move(*reply);
      return std::string();
    }
    if (reply->kind != Reply::Kind::kArray || reply->items.empty()) return fail(redis::to_error(*reply));
    return reply->items.front().text;
  }

  Result<void> conclude(const std::string& status) {
    if (refusal_) return {};
    if (status == "PUBLISHED" || status == "SAME") {
      outcome_ = PublishOutcome::kPublished;
    } else if (status == "SUPERSEDED") {
      outcome_ = PublishOutcome::kSuperseded;
    } else if (status == "CONFLICT") {
      outcome_ = PublishOutcome::kConflict;
    } else if (status == "FULL") {
      return fail(ErrorCode::kTooLarge, "the scope " + group_.scope + " is full: index_limit is " +
                                            std::to_string(session_.options().index_limit) + " entries");
    } else {
      return fail(ErrorCode::kInternal, "the publish script gave an unknown answer");
    }
    return {};
  }

  std::string lifetime_text() const {
    return std::to_string(std::chrono::duration_cast<Milliseconds>(session_.options().blob_lifetime).count());
  }

  Session& session_;
  const PublishGroup& group_;
  const EncodedGroup& encoded_;
  BlobSource& source_;
  const ScopeKeys keys_;
  std::optional<Reply> refusal_;
  PublishOutcome outcome_ = PublishOutcome::kPublished;
};

void count(Session& session, PublishOutcome outcome) {
  const char* name = "remote.publish_groups";
  if (outcome == PublishOutcome::kSuperseded) name = "remote.publish_superseded";
  if (outcome == PublishOutcome::kConflict) name = "remote.publish_conflicts";
  session.counters().get(name).add();
}

}  // namespace

Result<PublishOutcome> publish_group(Session& session, Breaker& writes, const PublishGroup& group, BlobSource& source,
                                     Deadline deadline) {
  auto encoded = encode_group(group);
  if (!encoded) return fail(std::move(encoded).error());
  const Breaker::Ticket ticket = writes.admit(std::chrono::steady_clock::now());
  if (ticket == Breaker::Ticket::kRefused) {
    return fail(ErrorCode::kUnavailable, "the server refused to write a moment ago");
  }
  PublishJob job(session, group, *encoded, source);
  auto outcome = session.run(Use::kPublish, deadline, [&](Channel& channel) { return job.run(channel); });
  if (outcome && job.refusal()) {
    // The name may lead to the new master by now, which a connection to the old one would never find out.
    if (job.refusal()->text.starts_with("READONLY ")) session.hang_up(Use::kPublish);
    writes.failed(ticket, std::chrono::steady_clock::now());
    session.counters().get("remote.publish_refused").add();
    return fail(redis::to_error(*job.refusal()));
  }
  if (!outcome) {
    writes.abandoned(ticket);
    session.counters().get("remote.publish_failed").add();
    // A server that answers MOVED or ASK is an operator's to change: until then what is queued waits.
    const ErrorCode code = outcome.error().code();
    return fail(code == ErrorCode::kNotSupported ? ErrorCode::kUnavailable : code, outcome.error().what());
  }
  writes.succeeded(ticket);
  count(session, job.outcome());
  return job.outcome();
}

Result<void> report_lost_entry(Session& session, const ScopeId& scope, const std::string& path,
                               const codec::Digest& digest, Deadline deadline) {
  INDUCTORFS_TRY(check_scope(scope));
  if (!codec::is_clean_path(path)) return fail(ErrorCode::kInvalid, "a path that is not clean");
  const ScopeKeys keys(session.options().prefix, scope);
  const std::string nonce = random_nonce();
  const std::string log_length = std::to_string(session.options().log_length);
  const std::string record = codec::encode_record({.set = {}, .removed = {path}});
  const std::string blob = piece_key(session.options().prefix, digest, 0);
  bool removed = false;
  INDUCTORFS_TRY(session.run(Use::kControl, deadline, [&](Channel& channel) -> Result<void> {
    auto reply = channel.call({"EVAL", report_lost_script(), "5", keys.meta, keys.index, keys.counts, keys.owners,
                               keys.log, nonce, log_length, record, path, digest.raw()});
    if (!reply) return fail(std::move(reply).error());
    if (reply->kind != Reply::Kind::kArray || reply->items.empty()) return fail(redis::to_error(*reply));
    removed = reply->items.front().text == "REMOVED";
    if (!removed) return {};
    // Damaged bytes must go too: the next publisher would find the blob there and not send its own. A user without
    // that right still has done the main thing, so the answer does not matter.
    auto unlinked = channel.call({"UNLINK", blob});
    return unlinked ? Result<void>() : fail(std::move(unlinked).error());
  }));
  if (removed) session.counters().get("remote.lost_removed").add();
  return {};
}

}  // namespace inductorfs::remote
