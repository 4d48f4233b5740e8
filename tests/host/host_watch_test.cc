// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/host/host_watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "support/learned_facts.h"
#include "support/patience.h"
#include "support/temporary_directory.h"

namespace inductorfs::host {
namespace {

using fingerprint::Facet;
using fingerprint::Fingerprint;
using testing::facts::all_known;
using testing::facts::known;
using testing::facts::unknown;

constexpr Milliseconds kPatience{20000 * testing::kSlowness};

/// What the watch asks and tells.
struct World {
  Result<Fingerprint> facts = all_known();
  std::string traces = "as ever";
  bool cluster = true;
  unsigned probes = 0;
  unsigned looks = 0;
  unsigned announcements = 0;
  std::vector<std::pair<std::string, bool>> applied;  ///< torch's value, and whether scopes changed
};

class Watch : public ::testing::Test {
 protected:
  HostWatch::Hooks hooks() {
    HostWatch::Hooks hooks;
    hooks.learn = [this] {
      return world_.notify_with([](World& world) {
        ++world.probes;
        return world.facts;
      });
    };
    hooks.traces = [this](const Places&) {
      return world_.notify_with([](World& world) {
        ++world.looks;
        return world.traces;
      });
    };
    hooks.apply = [this](const Fingerprint& facts, bool scopes) {
      world_.notify_with([&](World& world) { world.applied.emplace_back(facts.get(Facet::kTorch).value, scopes); });
    };
    hooks.announce = [this] {
      return world_.notify_with([](World& world) {
        ++world.announcements;
        return world.cluster;
      });
    };
    return hooks;
  }

  std::unique_ptr<HostWatch> start(const HostWatchOptions& options, const Fingerprint& facts = all_known()) {
    auto watch = std::make_unique<HostWatch>(options, hooks(), facts, counters_);
    watch->start();
    return watch;
  }
  static HostWatchOptions quick() {
    HostWatchOptions options;
    options.interval = Milliseconds(0);
    options.settle = Milliseconds(1);
    options.confirm = Milliseconds(1);
    options.announce_again = Milliseconds(1);
    return options;
  }
  bool eventually(const std::function<bool(const World&)>& condition) {
    return world_.wait_until(Deadline::after(kPatience).at(), condition, condition);
  }
  void change(const std::function<void(World&)>& how) { world_.with(how); }
  void pause() {
    (void)world_.wait_until(
        Deadline::after(Milliseconds(5)).at(), [](const World&) { return false; }, [](World&) { return 0; });
  }
  /// The news are told after what was applied.
  bool told(const HostWatch& watch, const std::function<bool(const FactsNews&)>& condition) {
    const Deadline deadline = Deadline::after(kPatience);
    while (!condition(watch.news()) && !deadline.passed()) pause();
    return condition(watch.news());
  }

  Counters counters_;
  Guarded<World> world_;
};

TEST_F(Watch, AppliesWhatHasChangedWhenAsked) {
  const auto watch = start(quick());
  change([](World& world) { world.facts = all_known({{Facet::kTorch, "v=other"}}); });

  watch->look();

  ASSERT_TRUE(eventually([](const World& world) { return world.applied.size() == 1; }));
  EXPECT_EQ(world_.with([](World& world) { return world.applied.front(); }),
            std::make_pair(std::string("v=other"), true));
  ASSERT_TRUE(told(*watch, [](const FactsNews& news) { return news.changes == 1; }));
  EXPECT_EQ(watch->news().last_change, std::vector<std::string>{"torch: v=torch -> v=other"});
  EXPECT_NE(watch->news().changed, 0);
  // The cluster is told of the new scopes: once at the start, once more now.
  EXPECT_TRUE(eventually([](const World& world) { return world.announcements == 2; }));
}

TEST_F(Watch, ChangesNothingWhenTheFactsAreTheSame) {
  const auto watch = start(quick());
  watch->look();
  ASSERT_TRUE(told(*watch, [](const FactsNews& news) { return news.probes == 1; }));
  ASSERT_TRUE(eventually([](const World& world) { return world.applied.size() == 1; }));
  EXPECT_FALSE(world_.with([](World& world) { return world.applied.front().second; }));
  EXPECT_EQ(watch->news().changes, 0U);
}

TEST_F(Watch, AnnouncesAtOnceWhatHasComeIntoUse) {
  const auto watch = start(quick());  // without a timer
  ASSERT_TRUE(eventually([](const World& world) { return world.announcements == 1; }));
  watch->announce_now();
  ASSERT_TRUE(eventually([](const World& world) { return world.announcements == 2; }));
  EXPECT_EQ(world_.with([](const World& world) { return world.probes; }), 0U) << "the host is not asked for that";
}

TEST_F(Watch, KeepsAFacetUntilItHasFailedSeveralTimes) {
  const auto watch = start(quick());
  change([](World& world) { world.facts->set(Facet::kTorch, unknown("is being installed")); });

  watch->look();

  ASSERT_TRUE(eventually([](const World& world) { return !world.applied.empty() && world.applied.back().second; }));
  world_.with([](World& world) {
    EXPECT_EQ(world.probes, HostWatch::kConfirmations);
    ASSERT_EQ(world.applied.size(), HostWatch::kConfirmations);
    EXPECT_EQ(world.applied[0], std::make_pair(std::string("v=torch"), false));
    EXPECT_EQ(world.applied[1], std::make_pair(std::string("v=torch"), false));
    EXPECT_EQ(world.applied[2], std::make_pair(std::string(), true));
  });
  ASSERT_TRUE(told(*watch, [](const FactsNews& news) { return news.changes == 1; }));
  EXPECT_EQ(watch->news().last_change, std::vector<std::string>{"torch: v=torch -> not known: is being installed"});
}

TEST_F(Watch, ForgetsAFailureThatWasOne) {
  change([](World& world) { world.facts->set(Facet::kTorch, unknown("too slow")); });
  HostWatchOptions slow = quick();
  slow.confirm = kPatience * 10;
  const auto patient = start(slow);
  patient->look();
  ASSERT_TRUE(told(*patient, [](const FactsNews& news) { return !news.kept.empty(); }));
  EXPECT_EQ(patient->news().kept, std::vector<std::string>{"torch: too slow"});
  change([](World& world) { world.facts = all_known(); });

  patient->look();

  ASSERT_TRUE(told(*patient, [](const FactsNews& news) { return news.probes == 2 && news.kept.empty(); }));
  EXPECT_EQ(patient->news().changes, 0U);
}

TEST_F(Watch, TakesAFileAtItsWord) {
  HostWatchOptions options = quick();
  options.from_file = true;
  const auto watch = start(options);
  change([](World& world) { world.facts->set(Facet::kTorch, unknown("gone")); });
  watch->look();
  ASSERT_TRUE(told(*watch, [](const FactsNews& news) { return news.changes == 1; }));
  EXPECT_EQ(watch->news().probes, 1U);
}

TEST_F(Watch, KeepsAllWhenNothingCanBeLearned) {
  const auto watch = start(quick());
  change([](World& world) { world.facts = fail(ErrorCode::kInvalid, "no fingerprint: /f: broken"); });
  watch->look();
  ASSERT_TRUE(told(*watch, [](const FactsNews& news) { return news.probes == 1; }));
  EXPECT_EQ(watch->news().problem, "no fingerprint: /f: broken");
  EXPECT_TRUE(world_.with([](World& world) { return world.applied.empty(); }));
  EXPECT_EQ(counters_.snapshot().at("host.probe_failures"), 1U);
}

TEST_F(Watch, AsksTheDeviceOnlyWhenTracesChange) {
  HostWatchOptions options = quick();
  options.interval = Milliseconds(1);
  const auto watch = start(options);
  ASSERT_TRUE(eventually([](const World& world) { return world.looks >= 5; }));
  EXPECT_EQ(world_.with([](World& world) { return world.probes; }), 0U);

  change([](World& world) { world.traces = "another driver"; });

  ASSERT_TRUE(eventually([](const World& world) { return world.probes == 1; }));
  const unsigned looks = world_.with([](World& world) { return world.looks; });
  ASSERT_TRUE(eventually([looks](const World& world) { return world.looks >= looks + 5; }));
  EXPECT_EQ(world_.with([](World& world) { return world.probes; }), 1U);
}

TEST_F(Watch, AsksAgainForWhatIsNotKnown) {
  HostWatchOptions options = quick();
  options.interval = Milliseconds(1);
  Fingerprint facts = all_known();
  facts.set(Facet::kGpu, unknown("the driver hangs"));
  const auto watch = start(options, facts);
  ASSERT_TRUE(eventually([](const World& world) { return world.applied.size() == 1; }));
  ASSERT_TRUE(told(*watch, [](const FactsNews& news) { return news.changes == 1; }));
  EXPECT_EQ(watch->news().last_change, std::vector<std::string>{"gpu: not known: the driver hangs -> v=gpu"});
}

TEST_F(Watch, ReadsAFileByTheTimer) {
  HostWatchOptions options = quick();
  options.interval = Milliseconds(1);
  options.from_file = true;
  const auto watch = start(options);
  ASSERT_TRUE(eventually([](const World& world) { return world.probes >= 3; }));
  EXPECT_EQ(world_.with([](World& world) { return world.looks; }), 0U);
}

TEST_F(Watch, NoticesAnInstalledPackage) {
  const testing::TemporaryDirectory directory;
  const std::string torch = directory / "site/torch";
  ASSERT_TRUE(make_directories(torch).has_value());
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, torch + "/__init__.py", "").has_value());
  Fingerprint facts = all_known();
  facts.set(Facet::kTorch, known("v=torch", torch));
  change([&](World& world) { world.facts = facts; });
  const auto watch = start(quick(), facts);
  // The traces are taken after the folders are watched.
  ASSERT_TRUE(eventually([](const World& world) { return world.looks == 1; }));

  ASSERT_TRUE(write_file_atomically(AT_FDCWD, torch + "/version.py", "2").has_value());

  EXPECT_TRUE(eventually([](const World& world) { return world.probes >= 1; }));
}

TEST_F(Watch, TellsTheClusterAgainUntilItListens) {
  change([](World& world) { world.cluster = false; });
  const auto watch = start(quick());
  ASSERT_TRUE(eventually([](const World& world) { return world.announcements >= 2; }));
  change([](World& world) { world.cluster = true; });
  const unsigned before = world_.with([](World& world) { return world.announcements; });
  EXPECT_TRUE(eventually([before](const World& world) { return world.announcements > before; }));
}

TEST_F(Watch, StopsWithoutApplyingWhatAProbeFound) {
  HostWatch* running = nullptr;
  HostWatch::Hooks slow = hooks();
  slow.learn = [&]() -> Result<Fingerprint> {
    change([](World& world) { ++world.probes; });
    const Deadline deadline = Deadline::after(kPatience);
    while (!running->stopping() && !deadline.passed()) pause();
    return all_known({{Facet::kTorch, "v=other"}});
  };
  HostWatch watch(quick(), slow, all_known(), counters_);
  running = &watch;
  watch.start();
  watch.look();
  const Deadline deadline = Deadline::after(kPatience);
  while (world_.with([](World& world) { return world.probes; }) == 0 && !deadline.passed()) pause();

  watch.stop();

  EXPECT_TRUE(watch.stopping());
  EXPECT_TRUE(world_.with([](World& world) { return world.applied.empty(); }));
  watch.stop();
}

}  // namespace
}  // namespace inductorfs::host
