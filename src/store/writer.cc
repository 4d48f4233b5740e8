// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "inductorfs/base/fail_point.h"
#include "local_store.h"

namespace inductorfs::store {
namespace {

/// How much more of the limit a writer takes at a time when its hint was too low.
constexpr uint64_t kRoomStep = 1ULL << 20;
constexpr mode_t kBlobMode = 0600;

/// A blob that becomes a file of its own. Needs external synchronisation.
class LocalWriter final : public BlobWriter {
 public:
  LocalWriter(LocalStore& store, uint64_t reserved, Verifier verifier)
      : store_(store), reserved_(reserved), verifies_(verifier == Verifier::kStore) {}
  ~LocalWriter() override { abandon(); }
  LocalWriter(const LocalWriter&) = delete;
  LocalWriter& operator=(const LocalWriter&) = delete;

  Result<void> start() {
    temporary_ = store_.holdings().next_temporary();
    auto fd = open_at(store_.holdings().folder(), temporary_, O_WRONLY | O_CREAT | O_EXCL, kBlobMode);
    if (!fd && fd.error().code() == ErrorCode::kNoSpace && store_.room().free_space(kRoomStep) > 0) {
      fd = open_at(store_.holdings().folder(), temporary_, O_WRONLY | O_CREAT | O_EXCL, kBlobMode);
    }
    INDUCTORFS_TRY(fd);
    fail_point("store.created");
    fd_ = std::move(*fd);
    return {};
  }

  Result<void> append(std::string_view bytes) override {
    if (!fd_) return ended();
    auto written = write(bytes);
    if (!written) abandon();
    return written;
  }

  Result<void> commit(const codec::Digest& expected) override {
    if (!fd_) return ended();
    fd_.reset();
    if (verifies_ && hasher_.finish() != expected) {
      abandon();
      return fail(ErrorCode::kCorrupt, "store blob " + expected.to_hex() + ": the bytes have another digest");
    }
    auto installed = store_.install(temporary_, expected, written_, reserved_);
    if (installed) {
      reserved_ = 0;
      temporary_.clear();
    } else {
      abandon();
    }
    return installed;
  }

 private:
  [[nodiscard]] static tl::unexpected<Error> ended() {
    return fail(ErrorCode::kInvalid, "store blob: this writer has ended already");
  }

  Result<void> reserve(uint64_t exact) {
    // The step is a convenience: near the limit exactly what is needed must do.
    const uint64_t step = std::max(exact, kRoomStep);
    const bool generous = store_.room().try_make(step, false).has_value();
    if (!generous) INDUCTORFS_TRY(store_.room().make(exact));
    reserved_ += generous ? step : exact;
    return {};
  }

  Result<void> write(std::string_view bytes) {
    const uint64_t end = written_ + bytes.size();
    if (end > reserved_) INDUCTORFS_TRY(reserve(end - reserved_));
    auto put = pwrite_full(fd_.get(), bytes, written_);
    while (!put && put.error().code() == ErrorCode::kNoSpace &&
           store_.room().free_space(std::max(bytes.size(), kRoomStep)) > 0) {
      put = pwrite_full(fd_.get(), bytes, written_);
    }
    if (!put && put.error().code() == ErrorCode::kNoSpace) return fail(store_.room().disk_full(put.error()));
    INDUCTORFS_TRY(put);
    fail_point("store.written");
    if (verifies_) hasher_.update(bytes);
    written_ = end;
    return {};
  }

  void abandon() {
    fd_.reset();
    store_.room().release(std::exchange(reserved_, 0));
    // What cannot be unlinked now goes with the next open of the store.
    if (!temporary_.empty()) (void)::unlinkat(store_.holdings().folder(), temporary_.c_str(), 0);
    temporary_.clear();
  }

  LocalStore& store_;
  uint64_t reserved_;
  const bool verifies_;
  uint64_t written_ = 0;
  std::string temporary_;
  Fd fd_;
  codec::Hasher hasher_;
};

Result<std::unique_ptr<BlobWriter>> make_file_writer(LocalStore& store, uint64_t size_hint, Verifier verifier) {
  INDUCTORFS_TRY(store.room().make(size_hint));
  auto writer = std::make_unique<LocalWriter>(store, size_hint, verifier);
  INDUCTORFS_TRY(writer->start());
  return writer;
}

/// A blob that goes into a pack when it is whole; until then it is in memory. One that becomes larger than its hint
/// said, or for which there can be no pack, becomes a file. Needs external synchronisation.
class PackWriter final : public BlobWriter {
 public:
  PackWriter(LocalStore& store, uint64_t reserved, Verifier verifier)
      : store_(store), reserved_(reserved), verifier_(verifier) {
    bytes_.reserve(reserved);
  }
  ~PackWriter() override { give_back(); }
  PackWriter(const PackWriter&) = delete;
  PackWriter& operator=(const PackWriter&) = delete;

  Result<void> append(std::string_view bytes) override {
    if (ended_) return ended();
    if (!file_ && bytes_.size() + bytes.size() > reserved_) {
      auto begun = begin_file(bytes_.size() + bytes.size());
      ended_ = !begun;
      INDUCTORFS_TRY(begun);
    }
    if (file_) return file_->append(bytes);
    bytes_.append(bytes);
    return {};
  }

  Result<void> commit(const codec::Digest& expected) override {
    if (std::exchange(ended_, true)) return ended();
    if (file_) return file_->commit(expected);
    if (verifier_ == Verifier::kStore && codec::digest_of(bytes_) != expected) {
      give_back();
      return fail(ErrorCode::kCorrupt, "store blob " + expected.to_hex() + ": the bytes have another digest");
    }
    auto packed = store_.pack(bytes_, expected, reserved_);
    if (packed) {
      reserved_ = 0;
      return packed;
    }
    if (packed.error().code() != ErrorCode::kNotSupported) {
      give_back();
      return packed;
    }
    INDUCTORFS_TRY(begin_file(bytes_.size()));
    return file_->commit(expected);
  }

 private:
  [[nodiscard]] static tl::unexpected<Error> ended() {
    return fail(ErrorCode::kInvalid, "store blob: this writer has ended already");
  }

  Result<void> begin_file(uint64_t size) {
    give_back();
    INDUCTORFS_TRY_ASSIGN(file_, make_file_writer(store_, size, verifier_));
    return file_->append(std::exchange(bytes_, {}));
  }

  void give_back() { store_.room().release(std::exchange(reserved_, 0)); }

  LocalStore& store_;
  uint64_t reserved_;
  const Verifier verifier_;
  std::string bytes_;
  std::unique_ptr<BlobWriter> file_;
  bool ended_ = false;
};

}  // namespace

Result<std::unique_ptr<BlobWriter>> make_writer(LocalStore& store, uint64_t size_hint, Verifier verifier) {
  if (!store.is_packed_size(size_hint)) return make_file_writer(store, size_hint, verifier);
  INDUCTORFS_TRY(store.room().make(size_hint));
  return std::make_unique<PackWriter>(store, size_hint, verifier);
}

}  // namespace inductorfs::store
