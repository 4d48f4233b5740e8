// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <fstream>
#include <stdexcept>
#include <vector>

#include "catalog/database/database.h"
#include "catalog/database/publish_codec.h"
#include "inductorfs/base/handle.h"
#include "inductorfs/catalog/catalog_check.h"
#include "support/directory_image.h"
#include "support/temporary_directory.h"

namespace inductorfs::catalog {
namespace {

using inductorfs::testing::image_of;
using store::Finding;
using store::Findings;

codec::Entry entry(const std::string& path) { return {path, codec::digest_of(path), 1, 0644, 0, "o"}; }

Publish group(const std::string& path) { return {Publish::Kind::kPlain, "aa", {entry(path)}, {}, {}}; }

/// A catalog with entries of two scopes and two queued groups, and a store that has their blobs.
class CatalogCheck : public ::testing::Test {
 protected:
  void SetUp() override {
    Database database = open();
    const std::vector<codec::Entry> of_aa{entry("a/one"), entry("a/two"), entry("a/three")};
    const std::vector<codec::Entry> of_bb{entry("b/one")};
    ASSERT_TRUE(database.apply("aa", of_aa, {}, &position_));
    ASSERT_TRUE(database.apply("bb", of_bb, {}, &position_));
    for (const std::string path : {"q/first", "q/second"}) {
      ASSERT_TRUE(database.enqueue(0, encode_publish(group(path)), {}, {}));
      store_.blobs.emplace(codec::digest_of(path), path.size());
    }
  }
  Database open() {
    auto lock = Database::lock(file_);
    if (!lock) throw std::runtime_error(lock.error().to_string());
    auto database = Database::open(file_, *lock);
    if (!database) throw std::runtime_error(database.error().to_string());
    return std::move(*database);
  }
  void add_many() {
    std::vector<codec::Entry> many;
    for (int i = 0; i < 9'000; ++i) many.push_back(entry("m/" + std::to_string(10'000 + i)));
    ASSERT_TRUE(open().apply("aa", many, {}, nullptr));
  }
  /// Of many entries: they are all but the first pages of the file.
  void damage_a_page_of_entries() {
    std::fstream stream(file_, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekp(static_cast<std::streamoff>(std::filesystem::file_size(file_) / 4096 / 2 * 4096));
    stream << std::string(4096, '\x5a');
  }
  void sql(const std::string& statement) {
    sqlite3* raw = nullptr;
    ASSERT_EQ(sqlite3_open(file_.c_str(), &raw), SQLITE_OK);
    Handle<sqlite3, sqlite3_close> handle(raw);
    ASSERT_EQ(sqlite3_exec(raw, statement.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(raw);
  }
  CheckedCatalog checked(bool repair, Findings& findings) {
    auto catalog = check(directory_.path(), kName, store_, repair, findings);
    if (!catalog) throw std::runtime_error(catalog.error().to_string());
    return *catalog;
  }
  static size_t entries(Database& database, const remote::ScopeId& scope) {
    return database.count_entries(scope, 100'000).value();
  }
  std::vector<std::string> queued() {
    std::vector<std::string> paths;
    Database database = open();
    EXPECT_TRUE(database.read_queue([&](const Database::QueueRow& row) {
      const auto publish = decode_publish(row.payload);
      paths.push_back(publish ? publish->entries.front().path : "unreadable");
    }));
    return paths;
  }
  /// What a look alone says; that it changes nothing is checked.
  std::vector<Finding> found() {
    const auto before = image_of(directory_.path());
    Findings findings;
    (void)checked(false, findings);  // what it counts is for others
    EXPECT_EQ(image_of(directory_.path()), before) << "a look changes nothing";
    for (const Finding& finding : findings.all()) {
      EXPECT_EQ(finding.path, kName);
      EXPECT_FALSE(finding.harmless);
      EXPECT_EQ(finding.repair, "");
    }
    return findings.all();
  }

  static constexpr const char* kName = "catalog.sqlite";
  testing::TemporaryDirectory directory_;
  std::string file_ = directory_ / kName;
  store::CheckedStore store_;
  remote::Position position_{7, "nonce"};
};

TEST_F(CatalogCheck, LeavesASoundOneAsItIs) {
  const auto before = image_of(directory_.path());
  for (const bool repair : {false, true}) {
    Findings findings;
    const CheckedCatalog catalog = checked(repair, findings);
    EXPECT_EQ(catalog.entries, 4U);
    EXPECT_EQ(catalog.queued, 2U);
    EXPECT_TRUE(findings.all().empty()) << findings.all().front().what;
  }
  EXPECT_EQ(image_of(directory_.path()), before);
}

TEST_F(CatalogCheck, NoneAtAllIsSoundAndStaysNone) {
  const testing::TemporaryDirectory empty;
  Findings findings;
  const auto catalog = check(empty.path(), kName, store_, true, findings);
  ASSERT_TRUE(catalog);
  EXPECT_EQ(catalog->entries + catalog->queued, 0U);
  EXPECT_TRUE(findings.all().empty());
  EXPECT_TRUE(image_of(empty.path()).empty());
}

TEST_F(CatalogCheck, AnEntryThatCannotBeReadGoesAndItsScopeIsReadAnew) {
  sql("UPDATE entries SET value=x'00' WHERE path=CAST('a/two' AS BLOB) OR path='a/two'");
  const auto looked = found();
  ASSERT_EQ(looked.size(), 1U);
  EXPECT_EQ(looked.front().what, "the entry a/two cannot be read");

  Findings findings;
  (void)checked(true, findings);  // its counts are those of the look
  ASSERT_EQ(findings.all().size(), 1U);
  EXPECT_EQ(findings.all().front().repair, "removed");
  EXPECT_TRUE(findings.sound());
  {
    Database database = open();
    EXPECT_EQ(entries(database, "aa"), 2U);
    EXPECT_EQ(entries(database, "bb"), 1U);
    EXPECT_EQ(*database.position("aa"), std::nullopt) << "the cluster may have the entry";
    EXPECT_EQ(*database.position("bb"), position_);
  }
  EXPECT_EQ(queued(), (std::vector<std::string>{"q/first", "q/second"}));
  EXPECT_TRUE(found().empty());
}

TEST_F(CatalogCheck, AnEntryOfAnotherPathIsFoundByItsCheck) {
  sql("UPDATE entries SET value=(SELECT value FROM entries WHERE path=CAST('a/one' AS BLOB) OR path='a/one') "
      "WHERE path=CAST('a/two' AS BLOB) OR path='a/two'");
  const auto looked = found();
  ASSERT_EQ(looked.size(), 1U);
  EXPECT_EQ(looked.front().what, "the entry a/two cannot be read");
}

TEST_F(CatalogCheck, FindsBadEntriesBeyondTheFirstPage) {
  add_many();
  sql("UPDATE entries SET value=x'' WHERE CAST(path AS TEXT) IN ('m/10000', 'm/14093', 'm/18999')");
  EXPECT_EQ(found().size(), 3U);
  Findings findings;
  EXPECT_EQ(checked(true, findings).entries, 9'004U);
  EXPECT_EQ(findings.repaired(), 3U);
  Findings none;
  EXPECT_EQ(checked(false, none).entries, 9'001U);
  EXPECT_TRUE(none.all().empty());
}

TEST_F(CatalogCheck, AQueuedGroupThatCannotBeReadGoesAlone) {
  ASSERT_TRUE(open().note_queue(true));
  sql("UPDATE queue SET payload=x'ff' WHERE id=(SELECT min(id) FROM queue)");
  const auto looked = found();
  ASSERT_EQ(looked.size(), 1U);
  EXPECT_TRUE(looked.front().what.starts_with("a queued group cannot be published: ")) << looked.front().what;
  Findings findings;
  (void)checked(true, findings);  // its counts are those of the look
  EXPECT_EQ(findings.repaired(), 1U);
  EXPECT_EQ(queued(), (std::vector<std::string>{"q/second"}));
  EXPECT_TRUE(found().empty());
  EXPECT_EQ(open().queue_may_be_short().value(), true) << "the next mount queues it again from its files";
}

TEST_F(CatalogCheck, AQueuedGroupWithoutItsBlobGoesAlone) {
  store_.blobs.erase(codec::digest_of("q/second"));
  const auto looked = found();
  ASSERT_EQ(looked.size(), 1U);
  EXPECT_NE(looked.front().what.find("q/second has no blob " + codec::digest_of("q/second").to_hex()),
            std::string::npos)
      << looked.front().what;
  Findings findings;
  EXPECT_EQ(checked(true, findings).queued, 2U);
  EXPECT_EQ(findings.repaired(), 1U);
  EXPECT_EQ(queued(), (std::vector<std::string>{"q/first"}));
  Database database = open();
  EXPECT_EQ(entries(database, "aa"), 3U) << "entries need no blob here";
}

TEST_F(CatalogCheck, WhatIsNoDatabaseIsSetAsideWhole) {
  const std::string rubbish(8192, '?');
  std::ofstream(file_, std::ios::binary | std::ios::trunc) << rubbish;
  ASSERT_EQ(found().size(), 1U);
  Findings findings;
  const CheckedCatalog catalog = checked(true, findings);
  EXPECT_EQ(catalog.entries + catalog.queued, 0U);
  ASSERT_EQ(findings.all().size(), 1U);
  EXPECT_EQ(findings.all().front().repair, "set aside as catalog.sqlite.damaged, and made anew");
  std::ifstream aside(file_ + ".damaged", std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(aside), {}), rubbish);
  EXPECT_TRUE(found().empty());
  Database database = open();
  EXPECT_EQ(database.queue_may_be_short().value(), true) << "a mount is to seal again what this one had queued";
}

TEST_F(CatalogCheck, ADamagedPageCostsTheEntriesAndNotTheQueue) {
  add_many();
  damage_a_page_of_entries();
  ASSERT_FALSE(found().empty());
  Findings findings;
  const CheckedCatalog catalog = checked(true, findings);
  EXPECT_EQ(catalog.queued, 2U);
  EXPECT_EQ(catalog.entries, 0U) << "they come again from the cluster";
  EXPECT_TRUE(findings.sound());
  EXPECT_EQ(queued(), (std::vector<std::string>{"q/first", "q/second"}));
  EXPECT_TRUE(found().empty());
}

TEST_F(CatalogCheck, OneWithOtherTablesIsSetAsideAndKeepsItsQueue) {
  sql("DROP TABLE followed");
  ASSERT_EQ(found().size(), 1U);
  Findings findings;
  EXPECT_EQ(checked(true, findings).queued, 2U);
  ASSERT_EQ(findings.all().size(), 1U);
  EXPECT_EQ(findings.all().front().repair, "set aside as catalog.sqlite.damaged, and made anew");
  EXPECT_TRUE(found().empty());
}

TEST_F(CatalogCheck, OneThatWasFoundDamagedInUseIsReadWholeAndKeptIfItIsSound) {
  ASSERT_TRUE(Database::note_damaged(file_));
  EXPECT_TRUE(found().empty());
  EXPECT_EQ(queued(), (std::vector<std::string>{"q/first", "q/second"}));

  add_many();
  damage_a_page_of_entries();
  ASSERT_TRUE(Database::note_damaged(file_));
  const auto looked = found();
  ASSERT_EQ(looked.size(), 1U);
  EXPECT_NE(looked.front().what.find("it was found damaged while it was in use: "), std::string::npos)
      << looked.front().what;
  Findings findings;
  EXPECT_EQ(checked(true, findings).queued, 2U);
  EXPECT_TRUE(findings.sound());
  EXPECT_TRUE(found().empty());
}

TEST_F(CatalogCheck, OneOfANewerVersionIsLeftAlone) {
  sql("UPDATE meta SET value=" + std::to_string(Database::kVersion + 1) + " WHERE name='version'");
  sql("UPDATE queue SET payload=x'ff'");
  const auto before = image_of(directory_.path());
  Findings findings;
  const auto refused = check(directory_.path(), kName, store_, true, findings);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kNotSupported);
  EXPECT_TRUE(findings.all().empty());
  EXPECT_EQ(image_of(directory_.path()), before);
}

TEST_F(CatalogCheck, OneThatIsInUseIsRefused) {
  const Database database = open();
  Findings findings;
  const auto refused = check(directory_.path(), kName, store_, true, findings);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kBusy);
}

}  // namespace
}  // namespace inductorfs::catalog
