// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "inductorfs/base/guarded.h"
#include "remote/forwarding_remote.h"
#include "vfs/host.h"

/// What is fetched before anybody asks, over two hosts.
namespace inductorfs::testing {
namespace {

std::string code(int number) { return in_code_directory(code_name(std::to_string(number)) + ".cpp"); }

using Asked = Guarded<std::vector<codec::Digest>>;

/// Notes in which order blobs are asked for.
class NotedBlobs final : public remote::ForwardingBlobs {
 public:
  NotedBlobs(std::shared_ptr<remote::Blobs> inner, std::shared_ptr<Asked> asked)
      : ForwardingBlobs(std::move(inner)), asked_(std::move(asked)) {}
  void fetch_within(std::span<const codec::Digest> digests, remote::BlobSink& sink, Budget& budget) override {
    asked_->with([&](auto& asked) { asked.insert(asked.end(), digests.begin(), digests.end()); });
    inner().fetch_within(digests, sink, budget);
  }

 private:
  std::shared_ptr<Asked> asked_;
};

TEST(Prefetch, ALookupAsksForItsOwnBytesBeforeAnythingThatIsForeseen) {
  const auto cluster = remote::make_memory_cluster();
  Host a{cluster};
  vfs::JobStart start;
  for (int i = 0; i < 12; ++i) {
    ASSERT_TRUE(a.publish_file(code(i), "// " + std::to_string(i)));
    start.keys.push_back(code(i));
  }
  start.first = {code(0)};
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(a.file_system->note_start(start) && a.sync());

  const auto asked = std::make_shared<Asked>();
  HostOptions options;
  options.prefetch_bytes = 1;  // nothing fits, so that only the list is asked for beside the file itself
  options.fetch_threads = 1;
  options.wrap_remote = [&](auto inner) {
    inner.blobs = std::make_shared<NotedBlobs>(inner.blobs, asked);
    return inner;
  };
  Host b{cluster, options};
  ASSERT_TRUE(eventually([&] { return b.catalog->start_list("", code(0)).has_value(); }));
  ASSERT_TRUE(b.exists(code(0)));
  const std::vector<codec::Digest> expected{b.catalog->find(code(0))->entry.digest,
                                            b.catalog->start_list("", code(0))->entry.digest};
  const auto order = [&] { return asked->with([](const auto& digests) { return digests; }); };
  EXPECT_TRUE(eventually([&] { return order().size() == 2; }));
  EXPECT_EQ(order(), expected);
}

}  // namespace
}  // namespace inductorfs::testing
