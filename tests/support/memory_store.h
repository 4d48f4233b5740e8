// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "inductorfs/base/guarded.h"
#include "inductorfs/store/blob_store.h"

namespace inductorfs::testing {

/// A blob store in memory, without eviction; descriptors are memfds. Safe for concurrent use.
class MemoryStore final : public store::BlobStore {
 public:
  using store::BlobStore::create;
  [[nodiscard]] Result<std::unique_ptr<store::BlobWriter>> create(uint64_t, store::Verifier) override {
    return std::make_unique<Writer>(*this);
  }
  [[nodiscard]] Result<codec::Digest> put(std::string_view bytes) override {
    const codec::Digest digest = codec::digest_of(bytes);
    blobs_.with([&](Blobs& blobs) { blobs.emplace(digest, std::string(bytes)); });
    return digest;
  }
  [[nodiscard]] Result<void> adopt(int dir, const std::string& path, const codec::Digest& digest) override {
    auto bytes = read_file(dir, path, uint64_t{1} << 30);
    if (!bytes) return tl::make_unexpected(std::move(bytes).error());
    blobs_.with([&](Blobs& blobs) { blobs.emplace(digest, std::move(*bytes)); });
    return {};
  }
  [[nodiscard]] std::optional<store::BlobInfo> find(const codec::Digest& digest) override {
    return blobs_.with([&](const Blobs& blobs) -> std::optional<store::BlobInfo> {
      auto found = blobs.find(digest);
      if (found == blobs.end()) return std::nullopt;
      return store::BlobInfo{digest, found->second.size()};
    });
  }
  [[nodiscard]] Result<store::BlobFile> open_blob(const codec::Digest& digest) override {
    return blobs_.with([&](const Blobs& blobs) -> Result<store::BlobFile> {
      auto found = blobs.find(digest);
      if (found == blobs.end()) return fail(ErrorCode::kNotFound);
      Fd file(::memfd_create("blob", MFD_CLOEXEC));
      if (!file) return fail_errno("memfd_create");
      INDUCTORFS_TRY(write_full(file.get(), found->second));
      return store::BlobFile(std::move(file), 0, found->second.size());
    });
  }
  void mark_read(const codec::Digest&) override {}
  void discard(const codec::Digest& digest) override {
    blobs_.with([&](Blobs& blobs) { blobs.erase(digest); });
  }
  void note_damage() override { damaged_.fetch_add(1); }
  uint64_t free_space(uint64_t) override { return 0; }  // in memory there is no disk to fill
  void set_eviction_guard(store::EvictionGuard) override {}
  void set_damage_listener(store::DamageListener) override {}
  [[nodiscard]] store::StoreUsage usage() const override {
    return blobs_.with([this](const Blobs& blobs) {
      store::StoreUsage usage;
      usage.damaged = damaged_.load();
      usage.blobs = blobs.size();
      for (const auto& [digest, bytes] : blobs) usage.bytes += bytes.size();
      return usage;
    });
  }
  void close() override {}

  /// The bytes of a blob; empty when it is not here.
  [[nodiscard]] std::string bytes(const codec::Digest& digest) const {
    return blobs_.with([&](const Blobs& blobs) {
      auto found = blobs.find(digest);
      return found == blobs.end() ? std::string() : found->second;
    });
  }
  /// Damages a blob in place, as a bad disk would.
  void damage(const codec::Digest& digest) {
    blobs_.with([&](Blobs& blobs) { blobs.at(digest).front() ^= 1; });
  }

 private:
  using Blobs = std::map<codec::Digest, std::string>;

  class Writer final : public store::BlobWriter {
   public:
    explicit Writer(MemoryStore& owner) : owner_(owner) {}
    Result<void> append(std::string_view bytes) override {
      bytes_ += bytes;
      return {};
    }
    Result<void> commit(const codec::Digest& expected) override {
      if (codec::digest_of(bytes_) != expected) return fail(ErrorCode::kCorrupt, "other bytes than said");
      owner_.blobs_.with([&](Blobs& blobs) { blobs.emplace(expected, std::move(bytes_)); });
      return {};
    }

   private:
    MemoryStore& owner_;
    std::string bytes_;
  };

  Guarded<Blobs> blobs_;
  std::atomic<uint64_t> damaged_{0};
};

}  // namespace inductorfs::testing
