// SPDX-License-Identifier: Apache-2.0
#include "catalog/database/database.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/handle.h"
#include "support/lacks.h"
#include "support/temporary_directory.h"

namespace inductorfs::catalog {
namespace {

class DatabaseTest : public ::testing::Test {
 protected:
  Database open() {
    auto lock = Database::lock(file_);
    if (!lock) throw std::runtime_error(lock.error().to_string());
    auto database = Database::open(file_, *lock);
    if (!database) throw std::runtime_error(database.error().to_string());
    return std::move(*database);
  }
  void sql(const std::string& statement) {
    sqlite3* raw = nullptr;
    ASSERT_EQ(sqlite3_open(file_.c_str(), &raw), SQLITE_OK);
    Handle<sqlite3, sqlite3_close> handle(raw);
    ASSERT_EQ(sqlite3_exec(raw, statement.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(raw);
  }
  static std::map<std::string, codec::Digest> entries(Database& database, const remote::ScopeId& scope) {
    std::map<std::string, codec::Digest> found;
    EXPECT_TRUE(database.read_entries(scope, "", 1'000, [&](std::string_view path, std::string_view value) {
      found[std::string(path)] = codec::decode_entry(path, value)->digest;
    }));
    return found;
  }

  testing::TemporaryDirectory directory_;
  std::string file_ = directory_ / "db";
};

codec::Entry entry(const std::string& path) { return {path, codec::digest_of(path), 1, 0644, 0, "o"}; }

TEST_F(DatabaseTest, SaysThatAPathIsTooLongForIt) {
  while (file_.size() < 600) {
    file_ = file_.substr(0, file_.rfind('/')) + "/" + std::string(100, 'd') + file_.substr(file_.rfind('/'));
    ASSERT_EQ(mkdir(file_.substr(0, file_.rfind('/')).c_str(), 0700), 0);
  }
  auto lock = Database::lock(file_);
  ASSERT_TRUE(lock) << lock.error().to_string();
  const auto database = Database::open(file_, *lock);
  ASSERT_FALSE(database);
  EXPECT_EQ(database.error().code(), ErrorCode::kInvalid);
  EXPECT_NE(database.error().what().find("at most 504 bytes"), std::string::npos) << database.error().what();
  EXPECT_NE(database.error().what().find("name a shorter directory with --store"), std::string::npos);
}

TEST_F(DatabaseTest, TakesThePathThatIsJustShortEnough) {
  file_ = directory_ / std::string(200, 'd');
  ASSERT_EQ(mkdir(file_.c_str(), 0700), 0);
  file_ += "/" + std::string(100, 'e');
  ASSERT_EQ(mkdir(file_.c_str(), 0700), 0);
  file_ += "/" + std::string(504 - file_.size() - 1, 'f');
  EXPECT_EQ(entries(*std::make_unique<Database>(open()), "aa").size(), 0U);
}

TEST_F(DatabaseTest, KeepsEntriesAndPositionTogether) {
  const remote::Position position{7, std::string("no\0nce", 6)};
  {
    Database database = open();
    const std::vector<codec::Entry> set{entry("a"), entry("b\xff")};
    ASSERT_TRUE(database.apply("aa", set, {}, &position));
    const std::vector<std::string> removed{"a"};
    ASSERT_TRUE(database.apply("aa", {}, removed, nullptr));
  }
  Database database = open();
  EXPECT_EQ(*database.position("aa"), position);
  EXPECT_EQ(*database.position("bb"), std::nullopt);
  EXPECT_EQ(entries(database, "aa"), (std::map<std::string, codec::Digest>{{"b\xff", entry("b\xff").digest}}));
}

TEST_F(DatabaseTest, ForgetsAScopeInPieces) {
  Database database = open();
  const std::vector<codec::Entry> set{entry("a"), entry("b"), entry("c")};
  const remote::Position position{1, "n"};
  ASSERT_TRUE(database.apply("aa", set, {}, &position));
  ASSERT_TRUE(database.apply("bb", set, {}, &position));
  EXPECT_FALSE(*database.forget_some("aa", 2));
  EXPECT_EQ(*database.position("aa"), std::nullopt) << "half forgotten, it must be read from the start";
  EXPECT_TRUE(*database.forget_some("aa", 2));
  EXPECT_TRUE(entries(database, "aa").empty());
  EXPECT_EQ(entries(database, "bb").size(), 3U);
  EXPECT_TRUE((*database.position("bb")).has_value());
}

TEST_F(DatabaseTest, KeepsNoPositionOfAnotherRelease) {
  Database database = open();
  const std::vector<codec::Entry> set{entry("a")};
  const remote::Position position{1, "n"};
  ASSERT_TRUE(database.note_release("1.0"));
  ASSERT_TRUE(database.apply("aa", set, {}, &position));
  ASSERT_TRUE(database.note_release("1.0"));
  EXPECT_EQ(*database.position("aa"), position);
  ASSERT_TRUE(database.note_release("1.1"));
  EXPECT_EQ(*database.position("aa"), std::nullopt);
  EXPECT_EQ(entries(database, "aa").size(), 1U);
}

TEST_F(DatabaseTest, KnowsWhichScopesWereFollowedAndInWhatOrder) {
  using Scopes = std::vector<remote::ScopeId>;
  {
    Database database = open();
    EXPECT_EQ(*database.once_followed({}), Scopes{});
    ASSERT_TRUE(database.note_followed({"dd", "aa", "bb"}));
    ASSERT_TRUE(database.note_followed({"bb"}));
    ASSERT_TRUE(database.note_followed({"cc", "aa"}));
    ASSERT_TRUE(database.note_followed({"cc"}));
  }
  Database database = open();
  EXPECT_EQ(*database.once_followed({"cc"}), (Scopes{"aa", "bb", "dd"})) << "the latest first";
  ASSERT_TRUE(database.forget_scope("bb"));
  EXPECT_EQ(*database.once_followed({}), (Scopes{"cc", "aa", "dd"}));
}

TEST_F(DatabaseTest, ReadsAndCountsAScopePieceByPiece) {
  Database database = open();
  const std::vector<codec::Entry> set{entry("a"), entry("b"), entry("b\xff"), entry("c")};
  ASSERT_TRUE(database.apply("aa", set, {}, nullptr));
  ASSERT_TRUE(database.apply("bb", set, {}, nullptr));
  std::vector<std::string> read;
  std::string after;
  while (true) {
    const auto rows = database.read_entries("aa", after, 3, [&](std::string_view path, std::string_view) {
      after = path;
      read.emplace_back(path);
    });
    ASSERT_TRUE(rows);
    if (*rows < 3) break;
  }
  EXPECT_EQ(read, (std::vector<std::string>{"a", "b", "b\xff", "c"}));
  EXPECT_EQ(*database.count_entries("aa", 100), 4U);
  EXPECT_EQ(*database.count_entries("aa", 2), 2U);
  EXPECT_EQ(*database.count_entries("cc", 2), 0U);
}

TEST_F(DatabaseTest, QueueKeepsItsOrderItsErrorsAndReplaces) {
  int64_t first = 0;
  {
    Database database = open();
    first = *database.enqueue(0, "one", {}, {});
    const int64_t second = *database.enqueue(0, "two", {}, {});
    (void)*database.enqueue(0, "three", {}, {});
    const std::vector<int64_t> replaced{second};
    (void)*database.enqueue(0, "two again", replaced, {});
    ASSERT_TRUE(database.note_failure(first, "unavailable", 4));
  }
  Database database = open();
  std::vector<std::string> payloads;
  ASSERT_TRUE(database.read_queue([&](Database::QueueRow row) {
    if (row.id == first) {
      EXPECT_EQ(row.error, "unavailable");
      EXPECT_EQ(row.attempts, 4U);
    }
    payloads.push_back(row.payload);
  }));
  EXPECT_EQ(payloads, (std::vector<std::string>{"one", "three", "two again"}));
  ASSERT_TRUE(database.dequeue(first));
  EXPECT_EQ(*database.queued_payload(first), std::nullopt);
}

TEST_F(DatabaseTest, EnqueueingTakesTheMarkOfTheSameBytesAway) {
  Database database = open();
  const std::vector<HiddenMark> marks{{"p", codec::digest_of("1")}, {"p", codec::digest_of("2")}};
  ASSERT_TRUE(database.hide(marks));
  ASSERT_TRUE(database.hide(marks));
  const std::vector<HiddenMark> shown{marks[0]};
  ASSERT_TRUE(database.enqueue(0, "payload", {}, shown));
  std::vector<std::string> left;
  ASSERT_TRUE(database.read_hidden([&](std::string_view, std::string_view raw) { left.emplace_back(raw); }));
  EXPECT_EQ(left, (std::vector<std::string>{std::string(marks[1].digest.raw())}));
}

TEST_F(DatabaseTest, AMarkThatTheDiskDoesNotTakeIsWrittenWithTheNextChange) {
  Database database = open();
  const std::vector<HiddenMark> marks{{"p", codec::digest_of("1")}, {"q", codec::digest_of("2")}};
  ASSERT_TRUE(arm_fail_points("catalog.disk=ENOSPC"));
  EXPECT_FALSE(database.hide(marks));
  EXPECT_FALSE(database.write_left());
  ASSERT_TRUE(arm_fail_points(""));
  const std::vector<HiddenMark> shown{marks[0]};
  ASSERT_TRUE(database.enqueue(0, "payload", {}, shown));
  std::vector<std::string> left;
  ASSERT_TRUE(database.read_hidden([&](std::string_view path, std::string_view) { left.emplace_back(path); }));
  EXPECT_EQ(left, (std::vector<std::string>{"q"}));
}

TEST_F(DatabaseTest, AFullDiskTakesAllThatWasDeletedMeanwhileWhenItHasRoom) {
  constexpr size_t kMany = 2'500;
  Database database = open();
  ASSERT_TRUE(arm_fail_points("catalog.disk=ENOSPC"));
  for (size_t i = 0; i < kMany; ++i) {
    const std::vector<HiddenMark> mark{{"p" + std::to_string(i), codec::digest_of("1")}};
    EXPECT_FALSE(database.hide(mark));
  }
  ASSERT_TRUE(arm_fail_points(""));
  ASSERT_TRUE(database.note_followed({}));
  size_t written = 0;
  ASSERT_TRUE(database.read_hidden([&](std::string_view, std::string_view) { ++written; }));
  EXPECT_EQ(written, kMany);
}

/// A disk of its own that can be made read-only while no file of it is open for writing.
class DatabaseOnADisk : public DatabaseTest {
 protected:
  void SetUp() override {
    if (::mount("tmpfs", disk_.path().c_str(), "tmpfs", 0, "size=6m") != 0) INDUCTORFS_LACKS("the right to mount");
    file_ = disk_ / "db";
  }
  void TearDown() override { (void)::umount2(disk_.path().c_str(), MNT_DETACH); }
  void make_read_only(bool on) {
    ASSERT_EQ(::mount(nullptr, disk_.path().c_str(), nullptr, MS_REMOUNT | (on ? MS_RDONLY : 0), nullptr), 0)
        << std::strerror(errno);
  }
  /// Queues a row; with `killed` as one whose process ended without closing the file.
  void queue(const std::string& payload, bool killed) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      {
        Database database = open();
        if (!database.enqueue(0, payload, {}, {})) ::_exit(1);
        if (killed) ::_exit(0);
      }
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
    EXPECT_EQ(::access((file_ + "-wal").c_str(), F_OK) == 0, killed) << "what its end leaves";
  }
  static std::vector<std::string> queued(Database& database) {
    std::vector<std::string> found;
    EXPECT_TRUE(database.read_queue([&](Database::QueueRow row) { found.push_back(std::move(row.payload)); }));
    return found;
  }
  testing::TemporaryDirectory disk_;
};

TEST_F(DatabaseOnADisk, IsReadWhileItTakesNoWritesAndWrittenToAfterwards) {
  std::vector<std::string> expected;
  for (const bool killed : {false, true}) {
    queue(killed ? "second" : "first", killed);
    expected.emplace_back(killed ? "second" : "first");
    make_read_only(true);
    auto lock = Database::lock(file_);
    ASSERT_TRUE(lock) << lock.error().to_string();
    const auto refused = Database::open(file_, *lock);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::kReadOnly) << refused.error().to_string();
    auto database = Database::open(file_, *lock, Database::Use::kRead);
    ASSERT_TRUE(database) << database.error().to_string();
    EXPECT_EQ(queued(*database), expected);
    const auto written = database->enqueue(0, "third", {}, {});
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code(), ErrorCode::kReadOnly) << written.error().to_string();
    EXPECT_EQ(queued(*database), expected) << "it is still open";
    make_read_only(false);
    ASSERT_TRUE(database->enqueue(0, "third", {}, {}));
    expected.emplace_back("third");
    EXPECT_EQ(queued(*database), expected);
  }
  Database database = open();
  EXPECT_EQ(queued(database), expected);
}

TEST_F(DatabaseTest, OneDaemonAtATime) {
  Database database = open();
  const auto second = Database::lock(file_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), ErrorCode::kBusy);
  EXPECT_NE(second.error().what().find(file_), std::string::npos);
}

TEST_F(DatabaseTest, ANewerVersionIsRefusedWithARemedy) {
  { Database database = open(); }
  sql("UPDATE meta SET value=2 WHERE name='version'");
  auto lock = Database::lock(file_);
  ASSERT_TRUE(lock);
  const auto opened = Database::open(file_, *lock);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), ErrorCode::kNotSupported);
  EXPECT_NE(opened.error().what().find("use the newer inductorfs"), std::string::npos);
}

TEST_F(DatabaseTest, AFileThatIsNoDatabaseIsCorrupt) {
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, file_, std::string(8192, 'x')));
  auto lock = Database::lock(file_);
  ASSERT_TRUE(lock);
  const auto opened = Database::open(file_, *lock);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), ErrorCode::kCorrupt);
}

TEST_F(DatabaseTest, AFileThatLacksWhatTheProgramAsksForIsCorrupt) {
  Database database = open();
  sql("DROP TABLE hidden");
  const auto read = database.read_hidden([](std::string_view, std::string_view) {});
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), ErrorCode::kCorrupt) << read.error().to_string();
}

TEST_F(DatabaseTest, SetAsideLeavesNothingThatANewFileCouldReplay) {
  { Database database = open(); }
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, file_ + "-wal", "an old log"));
  ASSERT_TRUE(Database::set_aside(file_));
  EXPECT_NE(::access(file_.c_str(), F_OK), 0);
  EXPECT_NE(::access((file_ + "-wal").c_str(), F_OK), 0);
  EXPECT_EQ(::access((file_ + ".damaged").c_str(), F_OK), 0);
}

TEST_F(DatabaseTest, ADirectoryInItsPlaceIsAnErrorAndNoCrash) {
  ASSERT_EQ(::mkdir(file_.c_str(), 0755), 0);
  auto lock = Database::lock(file_);
  ASSERT_TRUE(lock);
  EXPECT_FALSE(Database::open(file_, *lock));
}

}  // namespace
}  // namespace inductorfs::catalog
