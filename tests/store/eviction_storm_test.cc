// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "store_fixture.h"

namespace inductorfs::store {
namespace {

using EvictionStorm = StoreTest;

TEST_F(EvictionStorm, LimitHoldsUnderConcurrentWriters) {
  constexpr uint64_t kLimit = 4000;
  open(kLimit);
  std::atomic<bool> over{false};
  std::atomic<int> failures{0};
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (uint32_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(t);
        for (int i = 0; i < 300; ++i) {
          std::string bytes = std::to_string(t) + "/" + std::to_string(i);
          bytes.resize(random() % 800 + 10, '.');
          const auto digest = store_->put(bytes);
          if (!digest) {
            ++failures;
            continue;
          }
          const auto fd = store_->open_blob(*digest);
          if (fd && read_all(fd->get()) != bytes) ++wrong;
          if (store_->usage().bytes > kLimit) over = true;
        }
      });
    }
  }
  EXPECT_FALSE(over);
  EXPECT_EQ(failures, 0) << "4 writers of at most 810 bytes always fit into 4000";
  EXPECT_EQ(wrong, 0);
  uint64_t on_disk = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory() + "/blobs")) {
    if (entry.is_regular_file()) on_disk += entry.file_size();
  }
  EXPECT_EQ(on_disk, store_->usage().bytes) << "index and folder agree";
  EXPECT_EQ(counter("store.bytes"), on_disk);
  EXPECT_EQ(files_in(directory() + "/tmp"), 0U);
}

}  // namespace
}  // namespace inductorfs::store
