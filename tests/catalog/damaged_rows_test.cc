// SPDX-License-Identifier: Apache-2.0
#include <sqlite3.h>

#include <array>
#include <fstream>

#include "catalog_fixture.h"
#include "inductorfs/base/handle.h"

namespace inductorfs::catalog {
namespace {

/// Rows of the database that are not as they were written.
class DamagedRows : public CatalogFixture {
 protected:
  void change(const std::string& statement) {
    sqlite3* raw = nullptr;
    ASSERT_EQ(sqlite3_open(options_.file.c_str(), &raw), SQLITE_OK);
    Handle<sqlite3, sqlite3_close> handle(raw);
    ASSERT_EQ(sqlite3_busy_timeout(raw, 10'000), SQLITE_OK);  // the publisher may be noting a failure
    ASSERT_EQ(sqlite3_exec(raw, statement.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(raw);
  }
  void damage_oldest_of_the_queue() {
    change(
        "UPDATE queue SET payload = CAST(substr(payload, 1, 20) || x'00' || substr(payload, 22) AS BLOB) "
        "WHERE id = (SELECT min(id) FROM queue)");
  }
};

TEST_F(DamagedRows, OfTheQueueAreQueuedAgainFromTheFiles) {
  Catalog& first = open();
  ASSERT_TRUE(first.enqueue(plain("f", "bytes")));
  ASSERT_TRUE(first.enqueue(plain("g", "other")));
  first.note_queue(true);
  close();
  damage_oldest_of_the_queue();

  Catalog& catalog = open();

  EXPECT_EQ(catalog.status().queued_paths, std::vector<std::string>{"g"});
  EXPECT_TRUE(catalog.queue_may_be_short()) << "the file system queues again what lacks";
  EXPECT_FALSE(catalog.publish_state("f"));
  EXPECT_EQ(counted("catalog.damaged_rows"), 1U);
  EXPECT_EQ(counted("publish.refused"), 0U);
  EXPECT_EQ(store_.usage().damaged, 1U);
  close();
  EXPECT_TRUE(open().queue_may_be_short());
  EXPECT_EQ(counted("catalog.damaged_rows"), 1U) << "told once";
}

TEST_F(DamagedRows, OfTheQueueThatThePublisherMeetsAreNotRefused) {
  Catalog& catalog = start_synced();
  catalog.note_queue(true);
  remote_.fail_with(Error(ErrorCode::kUnavailable, "connection refused"));
  ASSERT_TRUE(catalog.enqueue(plain("f", "bytes")));
  damage_oldest_of_the_queue();
  remote_.fail_with(std::nullopt);

  ASSERT_TRUE(catalog.drain(Deadline::after(kPatience)));

  const auto report = catalog.publish_state("f");
  ASSERT_TRUE(report);
  EXPECT_EQ(report->state, PublishState::kKeptLocal);
  EXPECT_TRUE(report->damaged);
  EXPECT_EQ(counted("publish.refused"), 0U);
  EXPECT_EQ(counted("catalog.damaged_rows"), 1U);
  EXPECT_TRUE(catalog.queue_may_be_short());
  EXPECT_EQ(store_.usage().damaged, 1U);
  ASSERT_TRUE(catalog.enqueue(plain("f", "bytes")));
  ASSERT_TRUE(catalog.drain(Deadline::after(kPatience)));
  EXPECT_EQ(catalog.publish_state("f")->state, PublishState::kPublished);
}

TEST_F(DamagedRows, OfTheClusterAreToldAndReadAgain) {
  remote_.set_with_bytes("aa", elsewhere("f", ""), "bytes");
  start_synced();
  ASSERT_TRUE(eventually([&] { return catalog_->find("f").has_value(); }));
  close();
  change("UPDATE entries SET value = CAST(x'02' || zeroblob(length(value) - 1) AS BLOB)");

  Catalog& catalog = start_synced();

  EXPECT_TRUE(eventually([&] { return catalog.find("f").has_value(); }));
  EXPECT_EQ(counted("catalog.damaged_rows"), 1U);
  EXPECT_EQ(store_.usage().damaged, 1U);
}

TEST_F(DamagedRows, AWholeFileThatIsDamagedIsTold) {
  ASSERT_TRUE(open().enqueue(plain("f", "bytes")));
  close();
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, options_.file, std::string(4096, 'x')));

  EXPECT_TRUE(open().queue_may_be_short());

  EXPECT_EQ(store_.usage().damaged, 1U);
}

TEST_F(DamagedRows, AFileWithOtherTablesThanItsOwnIsBegunAnew) {
  const std::array<std::string, 14> damages = {
      "DROP TABLE meta",
      "DROP TABLE scopes",
      "DROP TABLE entries",
      "DROP TABLE hidden",
      "DROP TABLE followed",
      "DROP TABLE queue",
      "CREATE TRIGGER t BEFORE INSERT ON queue BEGIN SELECT RAISE(ABORT,'no'); END",
      "UPDATE sqlite_schema SET sql=replace(sql,'payload','paylobd') WHERE name='queue'",
      "UPDATE sqlite_schema SET sql=replace(sql,'NOT NULL','NOT_NULL') WHERE name='hidden'",
      "UPDATE sqlite_schema SET sql='CREATE TABLE x(' WHERE name='entries'",
      "UPDATE sqlite_schema SET rootpage=9999 WHERE name='hidden'",
      "UPDATE sqlite_schema SET name='metb' WHERE name='meta'",
      "UPDATE sqlite_sequence SET seq=9223372036854775807",
      "DELETE FROM sqlite_schema"};
  uint64_t renewed = 0;
  for (const auto& damage : damages) {
    ASSERT_TRUE(open().enqueue(plain("f", damage)));
    catalog_->note_queue(true);
    close();
    change("PRAGMA writable_schema=ON; " + damage);

    Catalog& catalog = open();

    EXPECT_EQ(counted("catalog.damaged"), ++renewed) << damage;
    EXPECT_TRUE(catalog.queue_may_be_short()) << damage;
    const auto queued = catalog.enqueue(plain("g", damage));
    EXPECT_TRUE(queued) << damage << ": " << queued.error().to_string();
  }
}

TEST_F(DamagedRows, AnotherTableCostsNoGroupThatCanBeRead) {
  ASSERT_TRUE(open().enqueue(plain("f", "bytes")));
  close();
  change("PRAGMA writable_schema=ON; UPDATE sqlite_schema SET sql='CREATE TABLE x(' WHERE name='entries'");

  EXPECT_EQ(open().status().queued_paths, std::vector<std::string>{"f"});
}

TEST_F(DamagedRows, AnotherTableShowsNoDeletedNameAgain) {
  remote_.set_with_bytes("aa", elsewhere("deleted", ""), "bytes");
  remote_.set_with_bytes("aa", elsewhere("kept", ""), "other");
  start_synced().hide("deleted");
  close();
  change("PRAGMA writable_schema=ON; UPDATE sqlite_schema SET sql='CREATE TABLE x(' WHERE name='entries'");

  Catalog& catalog = start_synced();

  EXPECT_EQ(counted("catalog.damaged"), 1U);
  EXPECT_TRUE(eventually([&] { return catalog.find("kept").has_value(); })) << "read again from the cluster";
  EXPECT_FALSE(catalog.find("deleted"));
}

TEST_F(DamagedRows, StatisticsAndAnotherLayoutOfTheTablesAreNoDamage) {
  ASSERT_TRUE(open().enqueue(plain("f", "bytes")));
  close();
  change("ANALYZE; PRAGMA writable_schema=ON; UPDATE sqlite_schema SET sql=replace(sql, ', ', ',\n  ')");

  EXPECT_EQ(open().status().queued_paths, std::vector<std::string>{"f"});
  EXPECT_EQ(counted("catalog.damaged"), 0U);
}

/// Whole pages of the file.
class DamagedPages : public DamagedRows {
 protected:
  int64_t ask(const std::string& question) {
    sqlite3* raw = nullptr;
    EXPECT_EQ(sqlite3_open(options_.file.c_str(), &raw), SQLITE_OK);
    Handle<sqlite3, sqlite3_close> handle(raw);
    int64_t answer = -1;
    const auto take = [](void* to, int, char** columns, char**) {
      *static_cast<int64_t*>(to) = std::stoll(columns[0]);
      return 0;
    };
    EXPECT_EQ(sqlite3_exec(raw, question.c_str(), take, &answer, nullptr), SQLITE_OK) << sqlite3_errmsg(raw);
    return answer;
  }
  /// In place, as a disk does it under a database that is in use.
  void damage(const std::string& table) {
    change("PRAGMA wal_checkpoint(TRUNCATE)");
    const int64_t page = ask("SELECT rootpage FROM sqlite_schema WHERE name='" + table + "'");
    std::fstream stream(options_.file, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekp((page - 1) * 4096);
    stream << std::string(200, '\x5a');
  }
};

TEST_F(DamagedPages, OfWhatAStartDoesNotReadAreFoundByIt) {
  uint64_t renewed = 0;
  for (const std::string table : {"sqlite_sequence", "meta", "scopes", "followed", "hidden", "queue"}) {
    ASSERT_TRUE(open().enqueue(plain("f", table)));
    close();
    damage(table);

    Catalog& catalog = open();

    EXPECT_EQ(counted("catalog.damaged"), ++renewed) << table;
    const auto queued = catalog.enqueue(plain("g", table));
    EXPECT_TRUE(queued) << table << ": " << queued.error().to_string();
  }
}

TEST_F(DamagedPages, ThatAServingCatalogMeetsAreNoVerdictAndTheNextStartBeginsAnew) {
  Catalog& first = open();
  std::atomic<int> told{0};
  first.set_damage_listener([&told] { ++told; });
  first.start({}, {});
  ASSERT_TRUE(first.wait_synced(Deadline::after(kPatience)));
  ASSERT_TRUE(first.enqueue(plain("f", "bytes")));
  ASSERT_TRUE(first.drain(Deadline::after(kPatience)));
  damage("sqlite_sequence");

  for (int i = 0; i < 3; ++i) {
    const auto queued = first.enqueue(plain("g", "bytes"));
    ASSERT_FALSE(queued);
    EXPECT_EQ(queued.error().code(), ErrorCode::kUnavailable) << queued.error().to_string();
  }
  EXPECT_TRUE(eventually([&] { return told == 1; }));
  EXPECT_EQ(store_.usage().damaged, 1U) << "status warns";
  EXPECT_EQ(counted("publish.refused"), 0U);
  close();
  EXPECT_EQ(told, 1);

  Catalog& second = open();
  EXPECT_EQ(counted("catalog.damaged"), 1U);
  EXPECT_TRUE(second.queue_may_be_short());
  ASSERT_TRUE(second.enqueue(plain("g", "bytes")));
  close();
  EXPECT_EQ(open().status().queued, 1U);
  EXPECT_EQ(counted("catalog.damaged"), 1U) << "once";
}

/// Of the header and of what describes the tables.
TEST_F(DamagedPages, OneBitOfTheFirstCostsNoGroupAndNoMount) {
  constexpr size_t kStep = 61;  // meets each bit of a byte in turn
  constexpr size_t kHeader = 100;
  ASSERT_TRUE(open().enqueue(plain("f", "bytes")));
  catalog_->note_queue(true);
  close();
  const std::string sound = *read_file(AT_FDCWD, options_.file, 1 << 20);
  for (size_t bit = 0; bit < 4096UL * 8; bit += kStep) {
    if (sound[bit / 8] == 0 && bit / 8 >= kHeader) continue;
    std::string damaged = sound;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    for (const char* suffix : {"-wal", "-shm"}) (void)::unlink((options_.file + suffix).c_str());
    ASSERT_TRUE(write_file_atomically(AT_FDCWD, options_.file, damaged));

    const bool taken = open().enqueue(plain("g", "bytes")).has_value();
    const auto paths = open().status().queued_paths;
    for (const std::string path : {"f", "g"}) {
      const bool is_queued = (path == "g" && !taken) || std::ranges::find(paths, path) != paths.end();
      EXPECT_TRUE(is_queued || catalog_->queue_may_be_short()) << path << " of byte " << bit / 8 << " bit " << bit % 8;
    }
    EXPECT_TRUE(catalog_->enqueue(plain("h", "bytes"))) << "byte " << bit / 8 << " bit " << bit % 8;
    close();
  }
}

}  // namespace
}  // namespace inductorfs::catalog
