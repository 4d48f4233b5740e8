// SPDX-License-Identifier: Apache-2.0
#include <sqlite3.h>
#include <sys/xattr.h>

#include <atomic>
#include <map>

#include "catalog/database/database.h"
#include "catalog_fixture.h"

namespace inductorfs::catalog {
namespace {

/// A disk below SQLite of whose reads one fails with EIO, which its unix VFS tells as SQLITE_IOERR_CORRUPTFS and its
/// interface as SQLITE_CORRUPT. It is the process's default while this object lives.
class FailingReads {
 public:
  FailingReads() : disk_(sqlite3_vfs_find(nullptr)), shim_(*disk_) {
    self = this;
    shim_.zName = "failing";
    shim_.xOpen = [](sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* given) {
      const int code = self->disk_->xOpen(self->disk_, name, file, flags, given);
      if (code == SQLITE_OK) file->pMethods = self->counted(file->pMethods);
      return code;
    };
    EXPECT_EQ(sqlite3_vfs_register(&shim_, 1), SQLITE_OK);
  }
  ~FailingReads() {
    EXPECT_EQ(sqlite3_vfs_register(disk_, 1), SQLITE_OK);
    EXPECT_EQ(sqlite3_vfs_unregister(&shim_), SQLITE_OK);
    self = nullptr;
  }
  FailingReads(const FailingReads&) = delete;
  FailingReads& operator=(const FailingReads&) = delete;

  /// The `number`-th read from now on; 0: none.
  void fail(uint64_t number) { left_ = number; }
  [[nodiscard]] bool has_failed() const { return left_ == 0; }

 private:
  static int read(sqlite3_file* file, void* to, int size, sqlite3_int64 at) {
    uint64_t left = self->left_;
    while (left != 0 && !self->left_.compare_exchange_weak(left, left - 1)) {
    }
    if (left == 1) return SQLITE_IOERR_CORRUPTFS;
    return self->real_.at(file->pMethods)->xRead(file, to, size, at);
  }
  const sqlite3_io_methods* counted(const sqlite3_io_methods* real) {
    for (const auto& [mine, theirs] : real_) {
      if (theirs == real) return mine;
    }
    made_.push_back(std::make_unique<sqlite3_io_methods>(*real));
    made_.back()->xRead = read;
    real_.emplace(made_.back().get(), real);
    return made_.back().get();
  }

  static inline FailingReads* self = nullptr;
  sqlite3_vfs* disk_;
  sqlite3_vfs shim_;
  std::atomic<uint64_t> left_{0};
  std::map<const sqlite3_io_methods*, const sqlite3_io_methods*> real_;
  std::vector<std::unique_ptr<sqlite3_io_methods>> made_;
};

class FailedReads : public CatalogFixture {
 protected:
  FailedReads() {
    remote_.set_with_bytes("aa", elsewhere("removed", ""), "bytes");
    remote_.set_with_bytes("aa", elsewhere("kept", ""), "other");
    start_synced().hide("removed");
    catalog_->note_queue(true);
    close();
    remote_.fail_with(Error(ErrorCode::kUnavailable, "connection refused"));
    EXPECT_TRUE(open().enqueue(plain("queued", "bytes")));
    close();
  }
  ~FailedReads() override { close(); }  // before its disk
  FailedReads(const FailedReads&) = delete;
  FailedReads& operator=(const FailedReads&) = delete;

  void expect_all(uint64_t number) {
    EXPECT_FALSE(catalog_->find("removed")) << number;
    EXPECT_EQ(catalog_->status().queued_paths, std::vector<std::string>{"queued"}) << number;
    EXPECT_EQ(counted("catalog.damaged"), 0U) << number;
    EXPECT_NE(::access((options_.file + ".damaged").c_str(), F_OK), 0) << number;
  }

  FailingReads disk_;
};

TEST_F(FailedReads, OfAStartCostNothing) {
  uint64_t number = 1;
  for (bool failed = true; failed && !HasFailure(); ++number) {
    disk_.fail(number);
    auto opened = try_open();
    failed = disk_.has_failed();
    disk_.fail(0);
    if (!opened) {
      EXPECT_NE(opened.error().code(), ErrorCode::kCorrupt) << number << ": " << opened.error().to_string();
      opened = try_open();
    }
    ASSERT_TRUE(opened) << number << ": " << opened.error().to_string();
    catalog_ = std::move(*opened);
    expect_all(number);
    close();
  }
  EXPECT_GT(number, 10U) << "reads of a start";
}

TEST_F(FailedReads, OfACatalogInUseCostNothingAtTheNextStart) {
  ASSERT_TRUE(Database::note_damaged(options_.file)) << "as it did when SQLite called it malformed";
  open();
  expect_all(0);
  EXPECT_LT(::getxattr(options_.file.c_str(), "user.inductorfs.damaged", nullptr, 0), 0) << "it is looked at once";
}

}  // namespace
}  // namespace inductorfs::catalog
