// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "inductorfs/store/store_check.h"
#include "store_fixture.h"

namespace inductorfs::store {
namespace {

/// The parameter: the largest blob that goes into a pack.
class EvictionStorm : public StoreTest, public ::testing::WithParamInterface<uint64_t> {
 protected:
  void SetUp() override { packed_most_ = GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Packed, EvictionStorm, ::testing::Values(0, 400, kPackedMost));

TEST_P(EvictionStorm, LimitHoldsUnderConcurrentWriters) {
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
          const auto blob = store_->open_blob(*digest);
          if (blob && read_all(*blob) != bytes) ++wrong;
          if (store_->usage().bytes > kLimit) over = true;
        }
      });
    }
  }
  EXPECT_FALSE(over);
  EXPECT_EQ(failures, 0) << "4 writers of at most 810 bytes always fit into 4000";
  EXPECT_EQ(wrong, 0);
  const uint64_t bytes = store_->usage().bytes;
  EXPECT_EQ(counter("store.bytes"), bytes);
  store_.reset();
  Findings findings;
  const auto on_disk = check(directory(), false, findings);
  ASSERT_TRUE(on_disk && findings.all().empty());
  EXPECT_EQ(on_disk->bytes, bytes) << "index and disk agree";
  EXPECT_EQ(files_in(directory() + "/tmp"), 0U);
}

}  // namespace
}  // namespace inductorfs::store
