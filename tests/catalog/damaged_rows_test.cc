// SPDX-License-Identifier: Apache-2.0
#include <sqlite3.h>

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

}  // namespace
}  // namespace inductorfs::catalog
