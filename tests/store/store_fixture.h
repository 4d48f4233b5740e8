// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "inductorfs/base/fd.h"
#include "inductorfs/store/blob_store.h"
#include "store/local_store.h"
#include "support/fake_clock.h"
#include "support/temporary_directory.h"

namespace inductorfs::store {

/// A store in a fresh directory, that can be reopened in this boot or another.
class StoreTest : public ::testing::Test {
 protected:
  [[nodiscard]] Result<std::unique_ptr<BlobStore>> try_open(const std::string& directory, uint64_t limit = 1ULL << 30) {
    return open_local({{directory, limit}, boot_, &clock_, packed_most_}, counters_);
  }
  void open(uint64_t limit = 1ULL << 30) {
    store_.reset();
    auto opened = try_open(directory(), limit);
    ASSERT_TRUE(opened) << opened.error().to_string();
    store_ = std::move(*opened);
  }
  [[nodiscard]] std::string directory() const { return root_ / "store"; }
  [[nodiscard]] std::string file_of(const codec::Digest& digest) const { return directory() + "/" + blob_path(digest); }
  [[nodiscard]] std::string content(const codec::Digest& digest) {
    const auto blob = store_->open_blob(digest);
    return blob ? read_all(*blob) : "error: " + blob.error().to_string();
  }
  [[nodiscard]] static std::string read_all(const BlobFile& blob) {
    const auto bytes = blob.read_all(1 << 20);
    return bytes ? *bytes : "error: " + bytes.error().to_string();
  }
  [[nodiscard]] static size_t files_in(const std::string& folder) {
    size_t count = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) count += entry.is_regular_file();
    return count;
  }
  [[nodiscard]] uint64_t counter(const std::string& name) { return counters_.get(name).get(); }

  inductorfs::testing::TemporaryDirectory root_;
  inductorfs::testing::FakeClock clock_;
  std::string boot_ = "boot-1";
  uint64_t packed_most_ = 0;  ///< as LocalStoreOptions; most tests look for the blobs' files
  Counters counters_;
  std::unique_ptr<BlobStore> store_;
};

}  // namespace inductorfs::store
