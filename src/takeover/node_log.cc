// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/takeover/node_log.h"

#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <new>

namespace inductorfs::takeover {
namespace {

constexpr size_t kPageSize = 4096;
constexpr size_t kSnapshotFloor = 1 << 20;  ///< below that, what is no longer true costs nothing
/// The part of a snapshot by which the log grows at least before the next one.
constexpr size_t kLeastGrowth = 4;
/// Each record begins with its length, and ends where the next one is aligned.
constexpr size_t kAlignment = 4;

size_t room_for(size_t record) { return (sizeof(uint32_t) + record + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

struct NodeLog::Header {
  /// Which half is the log: its number in the lowest bit, and the bytes in it above. One word, so that a snapshot
  /// takes the log's place in one step.
  std::atomic<uint64_t> state{0};
  std::atomic<uint64_t> last_id{0};
  std::atomic<uint32_t> full{0};
};

NodeLog::NodeLog(const Region& region) : memory_(region.log()) {}

size_t NodeLog::bytes_for() { return kPageSize + 2 * kHalf; }

// A zeroed page is an empty log: nothing has to be laid out.
NodeLog::Header& NodeLog::header() const { return *std::launder(reinterpret_cast<Header*>(memory_.data())); }
char* NodeLog::half(uint32_t which) const { return memory_.data() + kPageSize + which * kHalf; }

bool NodeLog::add(char* start, size_t& used, std::string_view record) {
  const size_t room = room_for(record.size());
  if (record.size() > UINT32_MAX || room > kHalf - used) return false;
  const auto length = static_cast<uint32_t>(record.size());
  std::memcpy(start + used, &length, sizeof(length));
  std::memcpy(start + used + sizeof(length), record.data(), record.size());
  used += room;
  return true;
}

void NodeLog::append(std::span<const std::string_view> records) {
  writing_.with([&](Writing&) {
    const uint64_t state = header().state.load(std::memory_order_relaxed);
    const auto which = static_cast<uint32_t>(state & 1);
    size_t used = state >> 1;
    for (const auto record : records) {
      if (!add(half(which), used, record)) return header().full.store(1);
    }
    header().state.store(used << 1 | which, std::memory_order_release);
  });
}

void NodeLog::read(const std::function<void(std::string_view record)>& use) const {
  const uint64_t state = header().state.load(std::memory_order_acquire);
  const char* start = half(static_cast<uint32_t>(state & 1));
  const size_t used = state >> 1;
  for (size_t at = 0; at + sizeof(uint32_t) <= used && used <= kHalf;) {
    uint32_t length = 0;
    std::memcpy(&length, start + at, sizeof(length));
    if (length > used - at - sizeof(length)) return;
    use({start + at + sizeof(length), length});
    at += room_for(length);
  }
}

bool NodeLog::wants_snapshot(size_t live_bytes) const {
  const size_t used = bytes();
  const size_t before = snapshot_bytes_.load(std::memory_order_relaxed);
  const bool wanted = full() ? live_bytes < kHalf / 2 && live_bytes < retry_below_.load()
                             : used > kSnapshotFloor && used / 2 > live_bytes && used > before + before / kLeastGrowth;
  if (wanted) asked_live_.store(live_bytes, std::memory_order_relaxed);
  return wanted;
}

void NodeLog::snapshot(const std::function<void(const std::function<void(std::string_view)>& add)>& write) {
  writing_.with([&](Writing&) {
    const auto old = static_cast<uint32_t>(header().state.load(std::memory_order_relaxed) & 1);
    const uint32_t fresh = 1 - old;
    size_t used = 0;
    bool whole = true;
    write([&](std::string_view record) { whole = whole && add(half(fresh), used, record); });
    if (!whole) {
      retry_below_.store(asked_live_.load() / 2);
      return header().full.store(1);
    }
    retry_below_.store(SIZE_MAX);
    snapshot_bytes_.store(used, std::memory_order_relaxed);
    header().state.store(used << 1 | fresh, std::memory_order_release);
    header().full.store(0);
    (void)::madvise(half(old), kHalf, MADV_REMOVE);  // its memory; what stays is overwritten one day
  });
}

size_t NodeLog::bytes() const { return header().state.load(std::memory_order_relaxed) >> 1; }
bool NodeLog::full() const { return header().full.load() != 0; }
uint64_t NodeLog::last_id() const { return header().last_id.load(); }
void NodeLog::set_last_id(uint64_t id) { header().last_id.store(id); }

}  // namespace inductorfs::takeover
