// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "catalog/fake_remote.h"
#include "inductorfs/catalog/catalog.h"
#include "support/memory_store.h"
#include "support/patience.h"
#include "support/temporary_directory.h"

namespace inductorfs::catalog {

inline constexpr Milliseconds kPatience{20'000 * testing::kSlowness};  ///< far more than anything here takes

/// Asks again until `condition` holds; false when it never did.
template <typename F>
[[nodiscard]] bool eventually(F&& condition) {
  const auto deadline = Deadline::after(kPatience);
  while (!condition()) {
    if (deadline.passed()) return false;
    (void)::poll(nullptr, 0, 1);  // what is waited for needs the processor
  }
  return true;
}

/// One host with two scopes, "aa" (all paths but those below "b/") and "bb" (those), and a cluster made by the test.
/// Other scopes are as "aa".
class CatalogFixture : public ::testing::Test {
 protected:
  struct Told {
    std::vector<std::string> changed;
    std::vector<PublishReport> reports;
  };

  CatalogFixture() {
    options_.file = directory_ / "catalog/index.db";
    options_.scopes = {"aa", "bb"};
    options_.origin = "host/mount";
    options_.poll_interval = Milliseconds(2);
  }

  [[nodiscard]] static bool accepts(const remote::ScopeId& scope, std::string_view path) {
    return (scope == "bb") == path.starts_with("b/");
  }
  [[nodiscard]] Result<std::unique_ptr<Catalog>> try_open() {
    return Catalog::open(options_, remote_, remote_, store_, accepts, counters_);
  }
  Catalog& open() {
    catalog_.reset();
    auto opened = try_open();
    if (!opened) throw std::runtime_error(opened.error().to_string());
    catalog_ = std::move(*opened);
    return *catalog_;
  }
  Catalog& start() {
    Catalog& catalog = open();
    catalog.start(
        [this](const std::vector<std::string>& paths) {
          told_.with([&](Told& told) { told.changed.insert(told.changed.end(), paths.begin(), paths.end()); });
        },
        [this](const PublishReport& report) { told_.with([&](Told& told) { told.reports.push_back(report); }); });
    return catalog;
  }
  Catalog& start_synced() {
    Catalog& catalog = start();
    EXPECT_TRUE(catalog.wait_synced(Deadline::after(kPatience)));
    return catalog;
  }
  /// As after a restart of the daemon.
  void close() { catalog_.reset(); }

  /// An entry whose bytes are in the store.
  codec::Entry stored(const std::string& path, const std::string& bytes) {
    return {path, *store_.put(bytes), bytes.size(), 0644, 1'000, "elsewhere"};
  }
  /// One that only the cluster knows.
  static codec::Entry elsewhere(const std::string& path, const std::string& bytes) {
    return {path, codec::digest_of(bytes), bytes.size(), 0644, 2'000, "other/mount"};
  }
  Publish plain(const std::string& path, const std::string& bytes) {
    return {Publish::Kind::kPlain, "aa", {stored(path, bytes)}, {}, {}};
  }
  [[nodiscard]] std::vector<std::string> changed() {
    return told_.with([](const Told& told) { return told.changed; });
  }
  [[nodiscard]] bool was_told(const std::string& path) {
    const auto paths = changed();
    return std::ranges::find(paths, path) != paths.end();
  }
  [[nodiscard]] std::vector<PublishReport> reports() {
    return told_.with([](const Told& told) { return told.reports; });
  }
  [[nodiscard]] uint64_t counted(const std::string& name) { return counters_.get(name).get(); }
  /// Publishes and answers how it ended.
  PublishReport publish(const Publish& publish) {
    const size_t before = reports().size();
    auto queued = catalog_->enqueue(publish);
    EXPECT_TRUE(queued) << queued.error().to_string();
    auto drained = catalog_->drain(Deadline::after(kPatience));
    EXPECT_TRUE(drained) << drained.error().to_string();
    const auto all = reports();
    if (all.size() != before + 1) throw std::runtime_error("not exactly one report");
    return all.back();
  }

  testing::TemporaryDirectory directory_;
  testing::MemoryStore store_;
  FakeRemote remote_;
  Counters counters_;
  CatalogOptions options_;
  Guarded<Told> told_;
  std::unique_ptr<Catalog> catalog_;
};

}  // namespace inductorfs::catalog
