// SPDX-License-Identifier: Apache-2.0
#include "remote/formats/group.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_set>

#include "inductorfs/base/encoding.h"

namespace inductorfs::remote {

Result<void> check_scope(const ScopeId& scope) {
  const auto plain = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z'); };
  if (scope.empty() || scope.size() > kScopeLengthLimit || !std::all_of(scope.begin(), scope.end(), plain)) {
    return fail(ErrorCode::kInvalid,
                "a scope's name is 1 to " + std::to_string(kScopeLengthLimit) + " lower-case letters and digits");
  }
  return {};
}

Result<EncodedGroup> encode_group(const PublishGroup& group) {
  INDUCTORFS_TRY(check_scope(group.scope));
  if (group.entries.empty()) return fail(ErrorCode::kInvalid, "a group without entries");
  if (group.entries.size() > codec::kRecordEntryLimit) {
    return fail(ErrorCode::kTooLarge, "a group of " + std::to_string(group.entries.size()) + " entries; the limit is " +
                                          std::to_string(codec::kRecordEntryLimit));
  }
  if (group.contest && (group.contest->key.empty() || group.contest->key.size() > kContestKeyLimit)) {
    return fail(ErrorCode::kInvalid, "a contest key is 1 to " + std::to_string(kContestKeyLimit) + " bytes long");
  }
  if (group.first_of_path && (group.entries.size() != 1 || group.contest || group.replaces)) {
    return fail(ErrorCode::kInvalid, "the first of a path is one entry without another condition");
  }
  EncodedGroup encoded;
  std::unordered_set<std::string_view> paths;
  for (const codec::Entry& entry : group.entries) {
    if (!codec::is_clean_path(entry.path)) return fail(ErrorCode::kInvalid, "a path that is not clean");
    if (!paths.insert(entry.path).second) return fail(ErrorCode::kInvalid, "a path that comes twice: " + entry.path);
    if (entry.size > std::numeric_limits<int64_t>::max()) return fail(ErrorCode::kInvalid, "a size out of range");
    encoded.values.emplace_back(entry.path, codec::encode_entry(entry));
  }
  encoded.record = codec::encode_record({.set = group.entries, .removed = {}});
  if (encoded.record.size() > kRecordBytesLimit) {
    return fail(ErrorCode::kTooLarge, "a group whose record has " + std::to_string(encoded.record.size()) +
                                          " bytes; the limit is " + std::to_string(kRecordBytesLimit));
  }
  return encoded;
}

std::vector<codec::Digest> distinct_digests(const std::vector<codec::Entry>& entries) {
  std::vector<codec::Digest> digests;
  std::unordered_set<codec::Digest> seen;
  for (const codec::Entry& entry : entries) {
    if (seen.insert(entry.digest).second) digests.push_back(entry.digest);
  }
  return digests;
}

std::string_view stored_digest(std::string_view value) {
  if (value.size() < kDigestOffset + codec::Digest::kSize || codec::is_newer_entry(value)) return {};
  return value.substr(kDigestOffset, codec::Digest::kSize);
}

bool is_of_origin(std::string_view value, const codec::Entry& entry) {
  const auto held = codec::decode_entry(entry.path, value);
  return held && held->origin == entry.origin;
}

std::string random_nonce() {
  std::array<char, 16> bytes{};
  // Without GRND_NONBLOCK at most 256 bytes never come short (getrandom(2)).
  INDUCTORFS_CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return to_hex({bytes.data(), bytes.size()});
}

void DeltaFold::put(codec::Entry&& entry, bool removed) {
  codec::Entry& added = entries_.emplace_back(std::move(entry));
  const auto [known, is_new] = by_path_.try_emplace(added.path, removed_.size());
  if (is_new) {
    removed_.push_back(removed);
    return;
  }
  codec::Entry& earlier = entries_[known->second];
  added.path = std::move(earlier.path);  // the map's key is in its bytes
  earlier = std::move(added);
  entries_.pop_back();
  removed_[known->second] = removed;
}

void DeltaFold::apply(codec::LogRecord&& record) {
  for (codec::Entry& entry : record.set) set(std::move(entry));
  for (std::string& path : record.removed) {
    codec::Entry gone;
    gone.path = std::move(path);
    put(std::move(gone), true);
  }
}

Delta DeltaFold::finish(bool reset, Position position) && {
  by_path_ = {};
  Delta delta;
  delta.reset = reset;
  delta.position = std::move(position);
  if (std::ranges::find(removed_, true) == removed_.end()) {
    delta.set = std::move(entries_);
    return delta;
  }
  for (const bool removed : removed_) {
    codec::Entry& entry = entries_.front();
    if (!removed) {
      delta.set.push_back(std::move(entry));
    } else if (!reset) {
      delta.removed.push_back(std::move(entry.path));
    }
    entries_.pop_front();
  }
  return delta;
}

}  // namespace inductorfs::remote
