// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "inductorfs/base/log.h"
#include "remote/formats/group.h"
#include "remote/formats/head.h"
#include "remote/formats/keys.h"
#include "remote/formats/piece.h"
#include "remote/formats/scripts.h"
#include "remote/operations/blob_shelf.h"
#include "remote/operations/redis_operations.h"

namespace inductorfs::remote {
namespace {

using redis::Reply;

/// How long a host may take to send what it has claimed before another one sends it too.
constexpr Milliseconds kClaimBase{5'000};
constexpr Milliseconds kClaimMost{60'000};
/// In bytes a millisecond, before compression: a slower link is not worth waiting for.
constexpr uint64_t kClaimRate = 4ULL * 1024;
constexpr uint64_t kClaimBytesMost = 1ULL << 30;
constexpr int kSecondsBetweenNewer = 600;

/// One publish. Confined to the publishing thread.
class PublishJob {
 public:
  PublishJob(RedisClient& session, const PublishGroup& group, const EncodedGroup& encoded, BlobSource& source)
      : session_(session),
        group_(group),
        encoded_(encoded),
        source_(source),
        keys_(session.options().prefix, group.scope),
        sending_(keys_.sending(group.contest ? group.contest->key : group.entries.front().path)) {}

  Result<void> run(Conversation& channel) {
    refusal_.reset();
    outcome_.reset();
    claimed_ = false;
    BlobShelf blobs = shelf(channel);
    INDUCTORFS_TRY(look(channel, blobs, Claim::kNo));
    if (outcome_) return {};
    if (!blobs.missing().empty()) {
      blobs = shelf(channel);
      INDUCTORFS_TRY(look(channel, blobs, Claim::kTake));
      if (refusal_) return {};
      auto stored = outcome_ ? Result<void>() : store(channel, blobs.missing());
      if (outcome_ || refusal_ || !stored) {
        release(channel);
        return stored;
      }
    }
    INDUCTORFS_TRY_ASSIGN(auto status, evaluate(channel, held_ && !blobs.missing().empty() ? "repair" : "write"));
    return conclude(status);
  }

  /// The server is well but will not write now.
  [[nodiscard]] const std::optional<Reply>& refusal() const { return refusal_; }
  /// Requires: run() has succeeded, and there is no refusal.
  [[nodiscard]] PublishOutcome outcome() const { return outcome_.value_or(PublishOutcome::kPublished); }

 private:
  /// What the script compares with the entry of the first path: "" nothing, "-" no entry, "=" and a digest.
  struct Condition {
    std::string text;
    static Condition of(const PublishGroup& group) {
      if (group.first_of_path) return {"-"};
      return group.replaces ? Condition::of(group.replaces->digest) : Condition{};
    }
    static Condition of(const std::optional<codec::Digest>& digest) {
      return {digest ? "=" + std::string(digest->raw()) : "-"};
    }
  };

  enum class Claim { kNo, kTake };

  BlobShelf shelf(Conversation& channel) const { return {session_, channel, distinct_digests(group_.entries)}; }

  // What the cluster has of the group already, in one round trip, which writes nothing but a claim: of a thousand hosts
  // that compiled the same job all but one or two are done with it. Sets the outcome when nothing is to be sent.
  //
  // The claim comes first in the pipeline: what another host has published before it is seen behind it. Claims are
  // there because N hosts that finish at once would all send before the first of them is seen. They expire by
  // themselves; that two hosts send the same after all costs bytes, never an entry.
  Result<void> look(Conversation& channel, BlobShelf& blobs, Claim claim) {
    // The origin outlives a restart, so that a host finds its own claim again.
    const std::string& origin = group_.entries.front().origin;
    const std::string lease = lease_text();
    std::vector<redis::Command> commands;
    if (claim == Claim::kTake) commands.push_back({"SET", sending_, origin, "NX", "GET", "PX", lease});
    const size_t first = commands.size();
    redis::Command& entries = commands.emplace_back(redis::Command{"HMGET", keys_.index});
    for (const auto& [path, value] : encoded_.values) entries.push_back(path);
    if (group_.contest) {
      commands.push_back({"HGET", keys_.counts, group_.contest->key});
      commands.push_back({"EXISTS", keys_.index, keys_.owners});
    }
    const size_t own = commands.size();
    blobs.ask(commands);
    INDUCTORFS_TRY_ASSIGN(auto replies, channel.call_all(commands));
    INDUCTORFS_TRY(blobs.take(std::span(replies).subspan(own)));
    if (blobs.untold()) return fail(*blobs.untold());
    INDUCTORFS_TRY(judge(channel, std::span(replies).subspan(first, own - first), blobs.missing().empty()));
    if (claim == Claim::kTake) take_claim(replies.front(), origin);
    return {};
  }

  void take_claim(Reply& reply, const std::string& origin) {
    if (refuses_writes(reply)) {
      refusal_ = std::move(reply);
    } else if (reply.kind == Reply::Kind::kString && reply.text != origin) {
      if (!outcome_) outcome_ = PublishOutcome::kClaimed;
    } else {
      claimed_ = !reply.is_error();  // a user who may not claim sends without
    }
  }

  // The next host need not wait until the claim has expired. Should this fail, it will.
  void release(Conversation& channel) {
    if (claimed_) (void)channel.call({"UNLINK", sending_});
  }

  std::string lease_text() const {
    uint64_t bytes = 0;
    for (const codec::Entry& entry : group_.entries) bytes += std::min(entry.size, kClaimBytesMost);
    const auto sending = Milliseconds(static_cast<Milliseconds::rep>(std::min(bytes, kClaimBytesMost) / kClaimRate));
    return std::to_string(std::min(kClaimMost, kClaimBase + sending).count());
  }

  // `replies`: the entries; of a contest its count, and whether the keys that belong to it are there.
  Result<void> judge(Conversation& channel, std::span<const Reply> replies, bool has_blobs) {
    const Reply& held = replies.front();
    if (held.kind != Reply::Kind::kArray || held.items.size() != encoded_.values.size()) {
      return fail(redis::to_error(held));
    }
    if (group_.contest && replies[1].is_error()) return fail(redis::to_error(replies[1]));
    // Neither compared nor replaced, and its blob is not looked for: only a newer release can read it.
    if (std::ranges::any_of(held.items, [](const Reply& item) { return codec::is_newer_entry(item.text); })) {
      outcome_ = PublishOutcome::kNewer;
      return {};
    }
    condition_ = Condition::of(group_);
    held_ = true;
    bool same = true;
    for (size_t i = 0; i < held.items.size(); ++i) {
      const std::string& value = encoded_.values[i].second;
      held_ = held_ && stored_digest(held.items[i].text) == stored_digest(value);
      same = same && held.items[i].text == value;
    }
    if (held_ && has_blobs) outcome_ = same ? PublishOutcome::kPublished : PublishOutcome::kHeld;
    if (held_) return {};
    if (group_.contest) {
      const Reply& count = replies[1];
      const bool whole = replies[2].integer == 2;  // counts alone, the rest evicted, are dropped by the script
      const uint64_t groups = to_generation(count.text).value_or(0);  // no number: the script drops it
      if (whole && groups > group_.contest->most) outcome_ = PublishOutcome::kSuperseded;
      return {};
    }
    return compare(channel, held.items.front().text);
  }

  // With the value of what is under the first path, empty when there is nothing.
  Result<void> compare(Conversation& channel, std::string_view held) {
    const auto digest = codec::Digest::from_raw(stored_digest(held));
    if (group_.replaces && Condition::of(digest).text != condition_.text) outcome_ = PublishOutcome::kConflict;
    if (!group_.first_of_path || !digest) return {};
    condition_ = Condition::of(digest);
    if (is_of_origin(held, group_.entries.front())) return {};
    // Another's bytes are as good as ours, while the cluster has them.
    BlobShelf theirs(session_, channel, {*digest});
    INDUCTORFS_TRY(theirs.look());
    if (theirs.untold()) return fail(*theirs.untold());
    if (theirs.missing().empty()) outcome_ = PublishOutcome::kSuperseded;
    return {};
  }

  Result<void> store(Conversation& channel, const std::vector<codec::Digest>& missing) {
    PieceWriter writer(session_, channel);
    Result<void> written;
    for (const codec::Digest& digest : missing) {
      written = writer.write(digest, source_);
      if (!written) break;
    }
    if (written) written = writer.flush();
    if (writer.refusal() && refuses_writes(*writer.refusal())) {
      refusal_ = writer.refusal();
      return {};
    }
    session_.counters().get("remote.publish_blobs").add(missing.size());
    return written;
  }

  // The script's word; empty when the server refuses to write.
  Result<std::string> evaluate(Conversation& channel, std::string_view mode) {
    const RemoteOptions& options = session_.options();
    const std::string log_length = std::to_string(options.log_length);
    const std::string index_limit = std::to_string(options.index_limit);
    const std::string most = std::to_string(group_.contest ? group_.contest->most : 0);
    const std::string contest = group_.contest ? group_.contest->key : "";
    const std::string nonce = random_nonce();
    const Lifetime lifetime = Lifetime::of_scopes(options);
    redis::Command command = {"EVAL",
                              publish_script(),
                              "5",
                              keys_.meta,
                              keys_.index,
                              keys_.counts,
                              keys_.owners,
                              keys_.log,
                              nonce,
                              log_length,
                              index_limit,
                              encoded_.record,
                              contest,
                              most,
                              condition_.text,
                              mode,
                              lifetime.text,
                              lifetime.renew_below_text};
    for (const auto& [path, value] : encoded_.values) {
      command.push_back(path);
      command.push_back(value);
    }
    std::vector<redis::Command> commands = {std::move(command)};
    if (claimed_) commands.push_back({"UNLINK", sending_});
    tell_followers(channel, keys_, commands);
    INDUCTORFS_TRY_ASSIGN(auto replies, channel.call_all(commands));
    Reply& reply = replies.front();
    if (refuses_writes(reply)) {
      refusal_ = std::move(reply);
      return std::string();
    }
    if (reply.kind != Reply::Kind::kArray || reply.items.empty()) return fail(redis::to_error(reply));
    return reply.items.front().text;
  }

  Result<void> conclude(const std::string& status) {
    if (refusal_) return {};
    if (status == "PUBLISHED" || status == "SAME") {
      outcome_ = PublishOutcome::kPublished;
    } else if (status == "HELD") {
      outcome_ = PublishOutcome::kHeld;
    } else if (status == "NEWER") {
      outcome_ = PublishOutcome::kNewer;
    } else if (status == "SUPERSEDED" || (status == "CONFLICT" && group_.first_of_path)) {
      outcome_ = PublishOutcome::kSuperseded;
    } else if (status == "CONFLICT") {
      outcome_ = PublishOutcome::kConflict;
    } else if (status == "FULL") {
      outcome_ = PublishOutcome::kFull;
    } else {
      return fail(ErrorCode::kInternal, "the publish script gave an unknown answer");
    }
    return {};
  }

  RedisClient& session_;
  const PublishGroup& group_;
  const EncodedGroup& encoded_;
  BlobSource& source_;
  const ScopeKeys keys_;
  const std::string sending_;
  Condition condition_;
  bool claimed_ = false;
  bool held_ = false;  ///< all digests are under their paths
  std::optional<Reply> refusal_;
  std::optional<PublishOutcome> outcome_;
};

void count(RedisClient& session, PublishOutcome outcome) {
  const char* name = "remote.publish_groups";
  if (outcome == PublishOutcome::kHeld) name = "remote.publish_held";
  if (outcome == PublishOutcome::kNewer) name = "remote.publish_newer";
  if (outcome == PublishOutcome::kFull) name = "remote.publish_full";
  if (outcome == PublishOutcome::kClaimed) name = "remote.publish_claimed";
  if (outcome == PublishOutcome::kSuperseded) name = "remote.publish_superseded";
  if (outcome == PublishOutcome::kConflict) name = "remote.publish_conflicts";
  session.counters().get(name).add();
}

void tell_of_newer(const PublishGroup& group) {
  log::write_limited(log::Level::kWarning, "remote.publish_newer",
                     {{"scope", group.scope}, {"path", group.entries.front().path}, {"entries", group.entries.size()}},
                     kSecondsBetweenNewer);
}

}  // namespace

bool refuses_writes(const Reply& reply) {
  constexpr std::array<std::string_view, 4> kWords = {"OOM ", "MISCONF ", "READONLY ", "NOREPLICAS "};
  return reply.is_error() &&
         std::any_of(kWords.begin(), kWords.end(), [&](std::string_view word) { return reply.text.starts_with(word); });
}

Result<PublishOutcome> RedisRemote::publish(const PublishGroup& group, BlobSource& source, Deadline deadline) {
  if (session_.options().read_only) return read_only();
  Breaker& writes = shared_->writes;
  INDUCTORFS_TRY_ASSIGN(auto encoded, encode_group(group));
  const Breaker::Ticket ticket = writes.admit(std::chrono::steady_clock::now());
  if (ticket == Breaker::Ticket::kRefused) {
    return fail(ErrorCode::kUnavailable, writes_->refusal().why + "; it is asked again in a moment");
  }
  PublishJob job(session_, group, encoded, source);
  auto outcome = session_.run(Use::kPublish, deadline, [&](Conversation& channel) { return job.run(channel); });
  if (outcome && job.refusal()) {
    // The name may lead to the new master by now, which a connection to the old one would never find out.
    if (job.refusal()->text.starts_with("READONLY ")) session_.hang_up(Use::kPublish);
    writes.failed(ticket, std::chrono::steady_clock::now());
    session_.counters().get("remote.publish_refused").add();
    Error why = redis::to_error(*job.refusal());
    writes_->refused(WriteCondition::Write::kPublish, why);
    return fail(std::move(why));
  }
  if (!outcome) {
    writes.abandoned(ticket);
    session_.counters().get("remote.publish_failed").add();
    // A server that answers MOVED or ASK is an operator's to change: until then what is queued waits.
    const ErrorCode code = outcome.error().code();
    if (code == ErrorCode::kNotPermitted) writes_->refused(WriteCondition::Write::kPublish, outcome.error());
    // While other shards of a cluster answer, it is this group's turn that has to wait, not the whole queue's.
    const bool away = code == ErrorCode::kUnavailable || code == ErrorCode::kTimedOut;
    if (away && session_.shards() != nullptr && session_.health().reachable) {
      return fail(ErrorCode::kInternal, outcome.error().what());
    }
    return fail(code == ErrorCode::kNotSupported ? ErrorCode::kUnavailable : code, outcome.error().what());
  }
  writes.succeeded(ticket);
  // The other outcomes wrote nothing.
  if (job.outcome() == PublishOutcome::kPublished) writes_->taken(WriteCondition::Write::kPublish);
  count(session_, job.outcome());
  if (job.outcome() == PublishOutcome::kNewer) tell_of_newer(group);
  return job.outcome();
}

Result<void> RedisRemote::report_lost(const ScopeId& scope, const std::string& path, const codec::Digest& digest,
                                      Deadline deadline) {
  if (session_.options().read_only) return read_only();
  INDUCTORFS_TRY(check_scope(scope));
  if (!codec::is_clean_path(path)) return fail(ErrorCode::kInvalid, "a path that is not clean");
  const ScopeKeys keys(session_.options().prefix, scope);
  const std::string nonce = random_nonce();
  const std::string log_length = std::to_string(session_.options().log_length);
  const std::string record = codec::encode_record({.set = {}, .removed = {path}});
  const Lifetime lifetime = Lifetime::of_scopes(session_.options());
  const std::string blob = piece_key(session_.options().prefix, digest, 0);
  bool removed = false;
  INDUCTORFS_TRY(session_.run(Use::kControl, deadline, [&](Conversation& channel) -> Result<void> {
    std::vector<redis::Command> commands = {{"EVAL", report_lost_script(), "5", keys.meta, keys.index, keys.counts,
                                             keys.owners, keys.log, nonce, log_length, record, path, digest.raw(),
                                             lifetime.text, lifetime.renew_below_text}};
    tell_followers(channel, keys, commands);
    INDUCTORFS_TRY_ASSIGN(auto replies, channel.call_all(commands));
    const Reply& reply = replies.front();
    if (reply.kind != Reply::Kind::kArray || reply.items.empty()) return fail(redis::to_error(reply));
    removed = reply.items.front().text == "REMOVED";
    if (!removed) return {};
    // Damaged bytes must go too: the next publisher would find the blob there and not send its own. A user without
    // that right still has done the main thing, so the answer does not matter.
    auto unlinked = channel.call({"UNLINK", blob});
    return unlinked ? Result<void>() : fail(std::move(unlinked).error());
  }));
  if (removed) session_.counters().get("remote.lost_removed").add();
  return {};
}

}  // namespace inductorfs::remote
