// SPDX-License-Identifier: Apache-2.0
#include "vfs/nodes/notifier.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "vfs/host.h"

namespace inductorfs::testing {
namespace {

/// A kernel whose locks somebody holds until the test lets go.
class BlockingKernel final : public vfs::KernelCache {
 public:
  struct State {
    bool blocked = false;
    bool inside = false;
    std::vector<std::string> told;
  };
  void forget_name(vfs::NodeId, const std::string& name) override { tell(name); }
  void forget_content(vfs::NodeId node) override { tell("#" + std::to_string(static_cast<uint64_t>(node))); }
  Guarded<State> state;

 private:
  void tell(const std::string& what) {
    state.notify_with([](State& now) { now.inside = true; });
    state.wait_until(
        std::chrono::steady_clock::now() + std::chrono::seconds(20), [](const State& now) { return !now.blocked; },
        [&](State& now) {
          now.inside = false;
          now.told.push_back(what);
        });
  }
};

std::vector<std::string> told(BlockingKernel& kernel) {
  return kernel.state.with([](const auto& state) { return state.told; });
}

TEST(Notifier, TellsInOrderAndEachThatWaitsOnce) {
  BlockingKernel kernel;
  vfs::Notifier notifier;
  kernel.state.with([](auto& state) { state.blocked = true; });
  notifier.start(kernel);
  notifier.forget_name(vfs::NodeId{1}, "first");
  ASSERT_TRUE(eventually([&] { return kernel.state.with([](const auto& state) { return state.inside; }); }));
  for (int i = 0; i < 3; ++i) notifier.forget_name(vfs::NodeId{1}, "second");  // adding never waits for the kernel
  notifier.forget_content(vfs::NodeId{7});
  // The first is being told: what changed since needs a notice of its own.
  notifier.forget_name(vfs::NodeId{1}, "first");

  kernel.state.notify_with([](auto& state) { state.blocked = false; });

  ASSERT_TRUE(eventually([&] { return told(kernel).size() == 4; }));
  EXPECT_EQ(told(kernel), (std::vector<std::string>{"first", "second", "#7", "first"}));
  notifier.stop();
}

TEST(Notifier, LetsWhoAddsTooManyWait) {
  BlockingKernel kernel;
  vfs::Notifier notifier;
  kernel.state.with([](auto& state) { state.blocked = true; });
  notifier.start(kernel);
  notifier.forget_name(vfs::NodeId{1}, "held");
  ASSERT_TRUE(eventually([&] { return kernel.state.with([](const auto& state) { return state.inside; }); }));
  std::vector<vfs::Notifier::Notice> notices;
  for (size_t i = 0; i <= vfs::Notifier::kLimit; ++i) notices.push_back({vfs::NodeId{1}, std::to_string(i)});
  const std::vector<vfs::Notifier::Notice> one_too_many{notices.back()};
  notices.pop_back();
  notifier.forget_all(notices);
  notifier.wish_forgotten(vfs::NodeId{1}, "a wish does not wait");
  std::atomic<bool> added = false;
  std::thread adder([&] {
    notifier.forget_all(one_too_many);
    added = true;
  });
  EXPECT_FALSE(added);

  kernel.state.notify_with([](auto& state) { state.blocked = false; });

  adder.join();
  ASSERT_TRUE(eventually([&] {
    return kernel.state.with([](const auto& state) { return state.told.size() == vfs::Notifier::kLimit + 2; });
  }));
  EXPECT_EQ(told(kernel).back(), std::to_string(vfs::Notifier::kLimit));
  notifier.stop();
}

TEST(Notifier, DropsWhatComesBeforeTheStartAndAfterTheStop) {
  BlockingKernel kernel;
  vfs::Notifier notifier;
  notifier.forget_name(vfs::NodeId{1}, "before");
  notifier.start(kernel);
  notifier.forget_name(vfs::NodeId{1}, "now");
  ASSERT_TRUE(eventually([&] { return told(kernel).size() == 1; }));
  notifier.stop();
  notifier.forget_name(vfs::NodeId{1}, "after");
  notifier.stop();
  EXPECT_EQ(told(kernel), (std::vector<std::string>{"now"}));
}

}  // namespace
}  // namespace inductorfs::testing
