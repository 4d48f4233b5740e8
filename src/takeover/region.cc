// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/takeover/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "inductorfs/takeover/node_log.h"
#include "inductorfs/takeover/request_slots.h"

namespace inductorfs::takeover {
namespace {

constexpr uint64_t kMagic = 0x69667374616b6533;  // "ifstake3": the layout of everything in here
constexpr size_t kPageSize = 4096;

struct Header {
  uint64_t magic;
  uint64_t threads;
  Page page;
  uint64_t spares;  ///< of `threads`
};
static_assert(sizeof(Header) <= kPageSize);

size_t rounded(size_t bytes) { return (bytes + kPageSize - 1) / kPageSize * kPageSize; }
size_t slots_size(size_t threads) { return rounded(RequestSlots::bytes_for(threads)); }
size_t whole_size(size_t threads) { return kPageSize + slots_size(threads) + NodeLog::bytes_for(); }

Result<char*> map(int fd, size_t size) {
  void* start = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (start == MAP_FAILED) return fail_errno("mmap", "takeover memory");
  // A request is copied here by the kernel while its reader may be killed: it must not meet a page that is not there
  // (fuse_dev_do_read() ends a request with EIO when its copy fails).
  const size_t busy = kPageSize;
  (void)::mlock(start, busy);  // best effort: RLIMIT_MEMLOCK
  return static_cast<char*>(start);
}

Header& header_at(char* start) { return *std::launder(reinterpret_cast<Header*>(start)); }

}  // namespace

Result<Region> Region::create(size_t threads, size_t most_spares) {
  if (threads == 0 || threads > kThreadLimit) return fail(ErrorCode::kInvalid, "takeover memory: 1 to 256 threads");
  const size_t spares = std::min(most_spares, kThreadLimit - threads);
  threads += spares;
  Fd memory(::memfd_create("inductorfs-takeover", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) return fail_errno("memfd_create");
  const size_t size = whole_size(threads);
  if (::ftruncate(memory.get(), static_cast<off_t>(size)) != 0) return fail_errno("ftruncate", "takeover memory");
  // A worker that makes it smaller would end its supervisor.
  if (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return fail_errno("seal", "takeover memory");
  }
  INDUCTORFS_TRY_ASSIGN(auto start, map(memory.get(), size));
  // All that is always used, now: later there may be no memory, and a store to such a page would be a SIGBUS.
  if (::fallocate(memory.get(), 0, 0, kPageSize) != 0) return fail_errno("fallocate", "takeover memory");
  auto* header = new (start) Header{0, threads, {}, spares};
  Region region(std::move(memory), start, size);
  INDUCTORFS_TRY(RequestSlots::reserve(region));
  RequestSlots::lay_out(region.slots(), threads);
  header->magic = kMagic;
  return region;
}

Result<Region> Region::attach(Fd memory) {
  struct stat status {};
  if (::fstat(memory.get(), &status) != 0) return fail_errno("stat", "takeover memory");
  const auto size = static_cast<size_t>(status.st_size);
  if (size < kPageSize) return fail(ErrorCode::kInvalid, "takeover memory: too small");
  INDUCTORFS_TRY_ASSIGN(auto start, map(memory.get(), size));
  Region region(std::move(memory), start, size);
  const Header& header = header_at(start);
  if (header.magic != kMagic || header.threads == 0 || header.threads > kThreadLimit ||
      header.spares >= header.threads || size != whole_size(static_cast<size_t>(header.threads))) {
    return fail(ErrorCode::kInvalid,
                "takeover memory: of another version of inductorfs; unmount and mount again to change the version");
  }
  return region;
}

Region::Region(Region&& other) noexcept
    : memory_(std::move(other.memory_)),
      start_(std::exchange(other.start_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

Region::~Region() {
  if (start_ != nullptr) (void)::munmap(start_, size_);
}

Page& Region::page() const { return header_at(start_).page; }
size_t Region::threads() const { return static_cast<size_t>(header_at(start_).threads); }
size_t Region::spares() const { return static_cast<size_t>(header_at(start_).spares); }
std::span<char> Region::slots() const { return {start_ + kPageSize, slots_size(threads())}; }
std::span<char> Region::log() const {
  const size_t offset = kPageSize + slots_size(threads());
  return {start_ + offset, size_ - offset};
}

}  // namespace inductorfs::takeover
