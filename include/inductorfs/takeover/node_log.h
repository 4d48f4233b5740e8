// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "inductorfs/base/guarded.h"
#include "inductorfs/takeover/region.h"

/// What the kernel knows of a mount's inodes: the log from which the next worker rebuilds its table of nodes.
namespace inductorfs::takeover {

/// Appended records, and now and then a new start from a snapshot of what is still true. A record, or several together,
/// are there as a whole or not at all, whenever the writer is killed: the log's length is stored last. It costs a copy
/// within memory and no system call. Safe for concurrent use.
class NodeLog {
 public:
  explicit NodeLog(const Region& region);

  /// Adds records, each of which the reader gets back as it was given; all become visible in one step. Ignored when the
  /// log is full (`full()`): the next worker then does not know what the kernel knows.
  void append(std::span<const std::string_view> records);

  /// Calls `use` for each record, the oldest first.
  void read(const std::function<void(std::string_view record)>& use) const;

  /// Whether half of the log or more is no longer true, by what `live` says is; or the log is full, and there would be
  /// room. Not again before the log has grown by a part of what the last snapshot took: a snapshot is as long as all
  /// that is true, so its cost must be spread over as many records, also where `live` is an estimate that is too low.
  [[nodiscard]] bool wants_snapshot(size_t live_bytes) const;
  /// Starts anew with what `write` adds. Requires: nothing is appended meanwhile.
  void snapshot(const std::function<void(const std::function<void(std::string_view)>& add)>& write);

  [[nodiscard]] size_t bytes() const;
  [[nodiscard]] bool full() const;
  /// The largest id that was ever given to a node; survives snapshots.
  [[nodiscard]] uint64_t last_id() const;
  void set_last_id(uint64_t id);

  /// Of each half; only touched pages take memory.
  static constexpr size_t kHalf = size_t{1} << 30;
  [[nodiscard]] static size_t bytes_for();

 private:
  struct Header;
  struct Writing {};
  [[nodiscard]] Header& header() const;
  [[nodiscard]] char* half(uint32_t which) const;
  [[nodiscard]] static bool add(char* start, size_t& used, std::string_view record);

  std::span<char> memory_;
  Guarded<Writing> writing_;
  std::atomic<size_t> snapshot_bytes_{0};      ///< what the last snapshot of this process took
  mutable std::atomic<size_t> asked_live_{0};  ///< by the last wants_snapshot() that was answered with true
  std::atomic<size_t> retry_below_{SIZE_MAX};  ///< what was true had no room: no other try until it is less
};

}  // namespace inductorfs::takeover
