// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/takeover/request_slots.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <new>

namespace inductorfs::takeover {
namespace {

constexpr size_t kSlotHead = 512;  ///< a Slot, before its request
static_assert(sizeof(Slot) <= kSlotHead);
constexpr size_t kPageSize = 4096;
/// fuse_in_header (Linux, include/uapi/linux/fuse.h): length, opcode, unique, node, user.
constexpr size_t kUniqueOffset = 8;
constexpr size_t kUserOffset = 24;

/// A thread's request begins a page: the pages before it are not the kernel's business.
constexpr size_t kThreadStride = kPageSize + RequestSlots::kRequestRoom;
constexpr size_t kDetachedStride = kSlotHead + RequestSlots::kDetachedRoom;
/// Of a spare thread, always there: its head's page, and the one by which everybody sees whether it holds a request.
constexpr size_t kSpareKept = 2 * kPageSize;
/// Of a thread: its head's page and 16 KiB of its request.
constexpr size_t kLockedFirst = 5 * kPageSize;
static_assert(kThreadStride % kPageSize == 0);

std::atomic_ref<uint32_t> length_word(char* request) {
  return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(request));
}

uint64_t unique_of(Slot& slot) {
  uint64_t unique = 0;
  std::memcpy(&unique, slot.request() + kUniqueOffset, sizeof(unique));
  return unique;
}

/// Best effort: a request that meets a page which is not there is found out before it is finished. An ordinary user may
/// lock 8 MiB as a rule, which is less than 8 threads have, and mlock(2) locks all of what it is given or nothing. So
/// what every request needs comes first: of each thread the slot's head and the start of a request, where all but the
/// long WRITEs end; then what is detached; then the rest as far as it goes.
void lock_slots(std::span<char> threads, std::span<char> detached) {
  for (size_t at = 0; at < threads.size(); at += kThreadStride) {
    if (::mlock(threads.data() + at, kLockedFirst) != 0) return;
  }
  if (::mlock(detached.data(), detached.size()) != 0) return;
  for (size_t at = 0; at < threads.size(); at += kThreadStride) {
    if (::mlock(threads.data() + at, kThreadStride) != 0) return;
  }
}

/// Present in this process's page tables.
void populate(std::span<char> memory) {
  (void)::madvise(memory.data(), memory.size(),
                  MADV_POPULATE_WRITE);  // Linux 5.14; otherwise touched by the first use
}

/// Where the slots' byte lies in the region: behind its first page (Region::slots).
off_t offset_of(size_t byte) { return static_cast<off_t>(kPageSize + byte); }

bool allocate(int fd, off_t offset, size_t size) {
  return ::fallocate(fd, FALLOC_FL_KEEP_SIZE, offset, static_cast<off_t>(size)) == 0;
}

/// Some nanoseconds instead of twenty, and as many milliseconds late as the kernel's tick has.
int64_t coarse_now() {
  timespec now{};
  (void)::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);  // cannot fail for this clock
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

struct Current {
  Slot* slot = nullptr;
  std::optional<uint64_t> begun;
};
Current& current() noexcept {
  thread_local Current served;
  return served;
}

}  // namespace

Serving::Serving(Slot& slot, bool resumed) noexcept {
  current() = {&slot, std::nullopt};
  thread_local const pid_t thread = ::gettid();
  slot.steps.store(0, std::memory_order_relaxed);
  slot.thread.store(thread, std::memory_order_relaxed);
  slot.began.store(coarse_now(), std::memory_order_relaxed);
  slot.served.store(unique_of(slot), std::memory_order_release);
  if (resumed && slot.phase.load() == Slot::kBegun) current().begun = slot.witness.load();
}
Serving::~Serving() { current() = {}; }

Slot* serving_slot() noexcept { return current().slot; }

void note_progress() noexcept {
  if (Slot* slot = current().slot; slot != nullptr) slot->steps.fetch_add(1, std::memory_order_relaxed);
}

void begin_effect(uint64_t witness) noexcept {
  Slot* slot = current().slot;
  if (slot == nullptr) return;
  slot->witness.store(witness, std::memory_order_relaxed);
  slot->phase.store(Slot::kBegun, std::memory_order_release);
}

std::optional<uint64_t> begun_effect() noexcept { return current().begun; }

uint32_t Slot::length() const noexcept {
  auto* self = const_cast<Slot*>(this);
  return length_word(self->request()).load(std::memory_order_acquire);
}

void Slot::free() noexcept {
  length_word(request()).store(0, std::memory_order_release);
  // A worker that is killed here leaves marks on an empty slot, which nobody reads before the next request clears them.
  phase.store(kTaken, std::memory_order_relaxed);
  witness.store(0, std::memory_order_relaxed);
  progress.store(0, std::memory_order_relaxed);
  deaths.store(0, std::memory_order_relaxed);
  served.store(0, std::memory_order_relaxed);
}

bool Slot::was_served() const noexcept {
  const uint64_t begun = served.load(std::memory_order_acquire);
  return begun != 0 && begun == unique_of(const_cast<Slot&>(*this));
}

void Slot::keep_reply(std::string_view reply_bytes) noexcept {
  if (reply_bytes.size() > kReplyLimit) return;
  std::memcpy(reply, reply_bytes.data(), reply_bytes.size());
  reply_size = static_cast<uint32_t>(reply_bytes.size());
  phase.store(kAnswered, std::memory_order_release);
}

RequestSlots::RequestSlots(const Region& region)
    : fd_(region.fd()), memory_(region.slots()), threads_(region.threads()), spares_(region.spares()) {
  // Kept there as far as the limits allow (region.cc: map). What no spare thread uses takes no memory.
  const std::span<char> always = memory_.first((threads_ - spares_) * kThreadStride);
  const std::span<char> detached = memory_.subspan(threads_ * kThreadStride);
  populate(always);
  populate(detached);
  lock_slots(always, detached);
}

std::span<char> RequestSlots::of_spare(size_t thread) const {
  INDUCTORFS_CHECK(thread >= threads_ - spares_ && thread < threads_);
  return memory_.subspan(thread * kThreadStride, kThreadStride);
}

bool RequestSlots::prepare(size_t spare_thread) const {
  const std::span<char> slot = of_spare(spare_thread);
  if (!allocate(fd_, offset_of(spare_thread * kThreadStride), slot.size())) return false;
  populate(slot);
  (void)::mlock(slot.data(), kLockedFirst);  // as in lock_slots()
  return true;
}

void RequestSlots::give_back(size_t spare_thread) const {
  (void)::munlock(of_spare(spare_thread).data(), kThreadStride);  // what is not locked stays so
  constexpr int kHole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  // Best effort: pages that stay are used by the next thread there.
  (void)::fallocate(fd_, kHole, offset_of(spare_thread * kThreadStride + kSpareKept), kThreadStride - kSpareKept);
}

Result<void> RequestSlots::reserve(const Region& region) {
  const size_t threads = region.threads();
  const size_t always = (threads - region.spares()) * kThreadStride;
  bool done = allocate(region.fd(), offset_of(0), always);
  for (size_t at = always; done && at < threads * kThreadStride; at += kThreadStride) {
    done = allocate(region.fd(), offset_of(at), kSpareKept);
  }
  if (done) done = allocate(region.fd(), offset_of(threads * kThreadStride), kDetached * kDetachedStride);
  return done ? Result<void>() : fail_errno("fallocate", "takeover memory");
}

size_t RequestSlots::bytes_for(size_t threads) { return threads * kThreadStride + kDetached * kDetachedStride; }

void RequestSlots::lay_out(std::span<char> memory, size_t threads) {
  for (size_t i = 0; i < threads; ++i) {
    auto* slot = new (memory.data() + i * kThreadStride) Slot;
    slot->request_size = kRequestRoom;
    slot->request_offset = kPageSize;
  }
  for (size_t i = 0; i < kDetached; ++i) {
    auto* slot = new (memory.data() + threads * kThreadStride + i * kDetachedStride) Slot;
    slot->request_size = kDetachedRoom;
    slot->request_offset = kSlotHead;
  }
}

Slot& RequestSlots::of_thread(size_t thread) const {
  return *std::launder(reinterpret_cast<Slot*>(memory_.data() + thread * kThreadStride));
}

Slot& RequestSlots::detached(size_t index) const {
  return *std::launder(reinterpret_cast<Slot*>(memory_.data() + threads_ * kThreadStride + index * kDetachedStride));
}

Slot* RequestSlots::detach(const Slot& from) {
  auto& source = const_cast<Slot&>(from);
  const uint32_t length = source.length();
  if (length < sizeof(uint32_t) || length > kDetachedRoom) return nullptr;
  for (size_t tries = 0; tries < kDetached; ++tries) {
    Slot& slot = detached(next_.fetch_add(1, std::memory_order_relaxed) % kDetached);
    uint32_t owned = Slot::kTaken;
    // The phase keeps other threads off while the length, by which the next worker knows the request, is still 0.
    if (slot.length() != 0 || !slot.phase.compare_exchange_strong(owned, Slot::kBegun)) continue;
    if (slot.length() != 0) {
      slot.phase.store(Slot::kTaken);
      continue;
    }
    std::memcpy(slot.request() + sizeof(length), source.request() + sizeof(length), length - sizeof(length));
    length_word(slot.request()).store(length, std::memory_order_release);
    return &slot;
  }
  return nullptr;
}

std::map<uint32_t, size_t> RequestSlots::served_by_user(Milliseconds at_least) const {
  const int64_t latest = coarse_now() - std::chrono::nanoseconds(at_least).count();
  std::map<uint32_t, size_t> count;
  for (size_t i = 0; i < threads_; ++i) {
    Slot& slot = of_thread(i);
    if (slot.served.load(std::memory_order_acquire) == 0) continue;
    if (slot.began.load(std::memory_order_relaxed) > latest || slot.phase.load() == Slot::kAnswered) continue;
    auto& of = *reinterpret_cast<uint32_t*>(slot.request() + kUserOffset);  // its thread may read the next one there
    ++count[std::atomic_ref<uint32_t>(of).load(std::memory_order_relaxed)];
  }
  return count;
}

std::vector<Slot*> RequestSlots::left_over() const {
  std::vector<Slot*> found(threads_ + kDetached);
  found.resize(left_over(found));
  return found;
}

size_t RequestSlots::left_over(std::span<Slot*> room) const {
  size_t count = 0;
  const auto add = [&](Slot& slot) {
    if (slot.length() == 0) {
      slot.free();  // marks of a worker that was killed while it took or freed it
      return;
    }
    const auto same = [&](Slot* other) { return unique_of(*other) == unique_of(slot); };
    if (std::any_of(room.begin(), room.begin() + static_cast<ptrdiff_t>(count), same)) {
      slot.free();  // killed between the copy and the end of the original
    } else if (count < room.size()) {
      room[count++] = &slot;
    }
  };
  for (size_t i = 0; i < threads_; ++i) add(of_thread(i));
  for (size_t i = 0; i < kDetached; ++i) {
    detached(i).phase.store(Slot::kTaken);  // it says there who takes the slot, and a lookup may be done again
    add(detached(i));
  }
  return count;
}

}  // namespace inductorfs::takeover
