// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "inductorfs/base/result.h"
#include "inductorfs/remote/index.h"

/// What both kinds of remote make from a group before anything is stored. The functions are pure.
namespace inductorfs::remote {

/// A record must fit into one reply of the server, and a reader takes kRecordsPerRead of them at once.
inline constexpr size_t kRecordBytesLimit = size_t{1} << 20;
inline constexpr size_t kScopeLengthLimit = 128;
inline constexpr size_t kContestKeyLimit = 1024;

struct EncodedGroup {
  std::vector<std::pair<std::string, std::string>> values;  ///< path, encoded entry
  std::string record;
};

/// Checks a scope's id, which becomes a part of a key, inside braces. kInvalid unless it is lower-case letters and
/// digits.
[[nodiscard]] Result<void> check_scope(const ScopeId& scope);
/// Encodes a group. kInvalid: no entry, a path that is not clean or comes twice, a contest key over its limit,
/// first_of_path with several entries or another condition. kTooLarge: more entries than codec::kRecordEntryLimit, or a
/// longer record than kRecordBytesLimit.
[[nodiscard]] Result<EncodedGroup> encode_group(const PublishGroup& group);

/// Returns the digests of a group's entries, each once, in order.
[[nodiscard]] std::vector<codec::Digest> distinct_digests(const std::vector<codec::Entry>& entries);

/// The place of the digest in an encoded entry of this release (codec/entry.h: version, digest, ...).
inline constexpr size_t kDigestOffset = 1;
/// Returns the digest inside an encoded entry; nothing for a value that is too short, or that a newer release wrote.
[[nodiscard]] std::string_view stored_digest(std::string_view value);

/// Says whether an encoded entry was published by the origin of `entry`, which has the same path.
[[nodiscard]] bool is_of_origin(std::string_view value, const codec::Entry& entry);

/// Returns 32 random hexadecimal digits, which no other call returns.
[[nodiscard]] std::string random_nonce();

/// Folds records, in order, into the change that they make together: the last change of each path counts.
/// Needs external synchronisation.
class DeltaFold {
 public:
  DeltaFold() = default;
  DeltaFold(const DeltaFold&) = delete;
  DeltaFold& operator=(const DeltaFold&) = delete;
  /// Says how many paths are about to come.
  void expect(size_t paths) { by_path_.reserve(paths); }
  void apply(codec::LogRecord&& record);
  void set(codec::Entry&& entry) { put(std::move(entry), false); }
  [[nodiscard]] size_t size() const { return entries_.size(); }
  /// Returns the change. With `reset` it names no removed paths, because the reader forgets everything first.
  [[nodiscard]] Delta finish(bool reset, Position position) &&;

 private:
  void put(codec::Entry&& entry, bool removed);

  // A scope may have a million entries, so none is copied and no path is kept twice.
  std::deque<codec::Entry> entries_;                      ///< whose elements stay where they are
  std::vector<bool> removed_;                             ///< of each entry; one that is removed has only its path
  std::unordered_map<std::string_view, size_t> by_path_;  ///< the place of each; keys: their paths
};

}  // namespace inductorfs::remote
