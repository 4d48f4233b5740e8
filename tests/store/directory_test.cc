// SPDX-License-Identifier: Apache-2.0
#include "store/directory.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inductorfs/base/fail_point.h"
#include "store_fixture.h"

namespace inductorfs::store {
namespace {

using codec::digest_of;

class StoreDirectory : public StoreTest {
 protected:
  void write(const std::string& name, std::string_view bytes) {
    ASSERT_TRUE(write_file_atomically(AT_FDCWD, directory() + "/" + name, bytes));
  }
  [[nodiscard]] std::string read(const std::string& name) const {
    return read_file(AT_FDCWD, directory() + "/" + name, 4096).value_or("absent");
  }
  void expect_refused(ErrorCode code, const std::string& remedy) {
    const auto opened = try_open(directory());
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code(), code) << opened.error().to_string();
    EXPECT_NE(opened.error().what().find(remedy), std::string::npos) << opened.error().what();
    EXPECT_NE(opened.error().what().find(directory()), std::string::npos) << opened.error().what();
    EXPECT_EQ(opened.error().what().find('\n'), std::string::npos);
  }
  /// Overwrites a blob's bytes in place, as a host crash would, keeping its size.
  /// As a disk does, which changes no time of the file.
  void damage(const codec::Digest& digest) {
    auto fd = open_at(AT_FDCWD, file_of(digest), O_WRONLY);
    ASSERT_TRUE(fd);
    struct stat before {};
    ASSERT_EQ(::fstat(fd->get(), &before), 0);
    ASSERT_TRUE(pwrite_full(fd->get(), std::string(2, '\0'), 0));
    const struct timespec times[2] = {before.st_atim, before.st_mtim};
    ASSERT_EQ(::futimens(fd->get(), times), 0);
  }
};

TEST_F(StoreDirectory, IsMadeWithItsParents) {
  auto opened = try_open(directory() + "/deep/er");
  ASSERT_TRUE(opened);
  EXPECT_TRUE((*opened)->put("x"));
}

TEST_F(StoreDirectory, ReopeningFindsEverything) {
  open();
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(store_->put("blob " + std::to_string(i)));
  const StoreUsage before = store_->usage();
  open();
  EXPECT_EQ(store_->usage().blobs, 50U);
  EXPECT_EQ(store_->usage().bytes, before.bytes);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(content(digest_of("blob " + std::to_string(i))), "blob " + std::to_string(i));
}

TEST_F(StoreDirectory, LayoutIsTheDocumentedOne) {
  open();
  ASSERT_TRUE(store_->put("hello"));
  EXPECT_EQ(read("format"), "inductorfs-store 1\n");
  EXPECT_EQ(read("lock"), std::to_string(::getpid()) + "\n");
  EXPECT_EQ(read("state"), "open boot-1 sound\n");
  EXPECT_EQ(read("blobs/2c/2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"), "hello");
  store_->close();
  EXPECT_EQ(read("state"), "clean boot-1 sound\n");
}

TEST_F(StoreDirectory, SecondOwnerIsBusyAndToldWhoHasIt) {
  open();
  expect_refused(ErrorCode::kBusy, "process " + std::to_string(::getpid()));
  expect_refused(ErrorCode::kBusy, "another store directory");
  store_->close();
  EXPECT_TRUE(try_open(directory()));
}

TEST_F(StoreDirectory, ALockThatOthersHoldIsGoneOnWithAndLeftHeld) {
  open();
  store_.reset();
  const std::string path = directory() + "/lock";
  Fd lock(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  expect_refused(ErrorCode::kBusy, "in use");
  StoreOptions options;
  options.directory = directory();
  options.lock = lock.get();
  for (int life = 0; life < 2; ++life) {
    auto store = BlobStore::open(options, counters_);
    ASSERT_TRUE(store) << store.error().what();
    (*store)->close();
    store->reset();
    expect_refused(ErrorCode::kBusy, "in use");
  }
  lock.reset();
  EXPECT_TRUE(try_open(directory()));
}

TEST_F(StoreDirectory, ALockOfADirectoryThatWasMadeAnewIsTakenAnew) {
  open();
  store_.reset();
  const Fd stale(::open((directory() + "/lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::unlink((directory() + "/lock").c_str()), 0);
  StoreOptions options;
  options.directory = directory();
  options.lock = stale.get();
  auto store = BlobStore::open(options, counters_);
  ASSERT_TRUE(store) << store.error().what();
  expect_refused(ErrorCode::kBusy, "in use");
  (*store)->close();
  EXPECT_TRUE(try_open(directory()));
}

TEST_F(StoreDirectory, AStartFreesItsReserveWhereAQuotaLeavesNoRoomAndTheDiskHas) {
  open();
  store_->keep_floor();
  const auto is_there = [this](const char* name) { return ::access((directory() + "/" + name).c_str(), F_OK) == 0; };
  ASSERT_TRUE(is_there("reserve") && is_there("reserve.1"));
  struct stat reserve {};
  ASSERT_EQ(::stat((directory() + "/reserve").c_str(), &reserve), 0);
  EXPECT_EQ(reserve.st_size, 1 << 20);
  open();
  EXPECT_TRUE(is_there("reserve") && is_there("reserve.1")) << "there is room";
  store_.reset();
  ASSERT_TRUE(arm_fail_points("disk.write=EDQUOT"));
  open();
  ASSERT_TRUE(arm_fail_points(""));
  EXPECT_FALSE(is_there("reserve") || is_there("reserve.1"));
}

TEST_F(StoreDirectory, SaysThatThereIsNoRoomUntilAWriteFindsSome) {
  open();
  EXPECT_EQ(counter("store.without_room"), 0U);
  ASSERT_TRUE(arm_fail_points("disk.write=EDQUOT"));
  EXPECT_EQ(store_->free_space(1), 0U);
  store_->keep_floor();
  EXPECT_EQ(counter("store.without_room"), 1U);
  ASSERT_TRUE(arm_fail_points(""));
  store_->keep_floor();
  EXPECT_EQ(counter("store.without_room"), 0U);
  open();
  ASSERT_TRUE(arm_fail_points("disk.write=EDQUOT"));
  store_->keep_floor();
  EXPECT_EQ(counter("store.without_room"), 1U) << "as the next worker finds out";
  ASSERT_TRUE(arm_fail_points(""));
}

TEST_F(StoreDirectory, NewerFormatIsRefusedAndLeftAlone) {
  open();
  ASSERT_TRUE(store_->put("hello"));
  store_.reset();
  write("format", "inductorfs-store 2\n");
  expect_refused(ErrorCode::kNotSupported, "upgrade");
  EXPECT_EQ(read("format"), "inductorfs-store 2\n");
  EXPECT_EQ(files_in(directory() + "/blobs"), 1U);
}

TEST_F(StoreDirectory, DamagedMarkerIsRefusedAndLeftAlone) {
  open();
  ASSERT_TRUE(store_->put("hello"));
  store_.reset();
  for (const std::string& marker :
       {std::string(), std::string("inductorfs-store \n"), std::string("inductorfs-store 1"),
        std::string("inductorfs-store 0\n"), std::string("inductorfs-store 1\nx"), std::string("inductorfs-store -1\n"),
        std::string(5000, 'x'), std::string("inductorfs-store 99999999999999999999\n")}) {
    write("format", marker);
    expect_refused(ErrorCode::kCorrupt, "write it anew (echo inductorfs-store 1 > " + directory() + "/format)");
  }
  EXPECT_EQ(files_in(directory() + "/blobs"), 1U);
  write("format", "inductorfs-store 1\n");  // as the shell does it
  open();
  EXPECT_EQ(content(digest_of("hello")), "hello");
}

TEST_F(StoreDirectory, ForeignDirectoryIsRefusedAndLeftAlone) {
  ASSERT_TRUE(make_directories(directory() + "/tmp"));
  write("tmp/thesis.txt", "years of work");
  struct stat before {};
  ASSERT_EQ(::stat(directory().c_str(), &before), 0);
  expect_refused(ErrorCode::kInvalid, "empty directory");
  EXPECT_EQ(read("tmp/thesis.txt"), "years of work");
  EXPECT_EQ(read("lock"), "absent");
  struct stat after {};
  ASSERT_EQ(::stat(directory().c_str(), &after), 0);
  EXPECT_EQ(before.st_mode, after.st_mode);
}

TEST_F(StoreDirectory, FileInItsPlaceIsSaidWithARemedy) {
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, directory(), ""));
  expect_refused(ErrorCode::kNotDirectory, "another store directory");
}

TEST_F(StoreDirectory, TemporaryFilesOfAnEarlierLifeGo) {
  open();
  store_.reset();
  write("tmp/17", "half a blob");
  open();
  EXPECT_EQ(files_in(directory() + "/tmp"), 0U);
}

TEST_F(StoreDirectory, WhatIsNoBlobIsNotShownAndNotRemoved) {
  open();
  store_.reset();
  ASSERT_TRUE(make_directories(directory() + "/blobs/ab"));
  write("blobs/ab/notes", "x");
  write("blobs/ab/" + digest_of("hello").to_hex(), "hello");
  open();
  EXPECT_EQ(store_->usage().blobs, 0U) << "a blob in another's folder is none";
  EXPECT_EQ(read("blobs/ab/notes"), "x");
}

TEST_F(StoreDirectory, CleanCloseNeedsNoVerification) {
  open();
  ASSERT_TRUE(store_->put("hello"));
  store_.reset();
  boot_ = "boot-2";
  open();
  damage(digest_of("hello"));
  EXPECT_TRUE(store_->find(digest_of("hello"))) << "nobody looked into it";
}

TEST_F(StoreDirectory, AfterAHostCrashEachBlobIsVerifiedAtItsFirstUse) {
  open();
  for (const char* bytes : {"hello", "sound"}) ASSERT_TRUE(store_->put(bytes));
  store_.reset();
  damage(digest_of("hello"));
  write("state", "open boot-1 sound\n");
  boot_ = "boot-2";
  open();
  EXPECT_EQ(read("state"), "open boot-2 suspect\n");
  EXPECT_FALSE(store_->find(digest_of("hello")));
  EXPECT_EQ(store_->open_blob(digest_of("hello")).error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(counter("store.corrupt"), 1U);
  EXPECT_EQ(content(digest_of("sound")), "sound");
  EXPECT_EQ(store_->usage().blobs, 1U);
  EXPECT_FALSE(std::filesystem::exists(file_of(digest_of("hello"))));
}

TEST_F(StoreDirectory, AVerifiedBlobIsNotVerifiedAgain) {
  open();
  ASSERT_TRUE(store_->put("hello"));
  store_.reset();
  write("state", "open boot-1 sound\n");
  boot_ = "boot-2";
  open();
  ASSERT_TRUE(store_->find(digest_of("hello")));
  damage(digest_of("hello"));
  EXPECT_TRUE(store_->find(digest_of("hello")));
}

TEST_F(StoreDirectory, AKilledDaemonOfThisBootLeavesNoSuspects) {
  open();
  ASSERT_TRUE(store_->put("hello"));
  store_.reset();
  write("state", "open boot-1 sound\n");
  open();
  damage(digest_of("hello"));
  EXPECT_TRUE(store_->find(digest_of("hello"))) << "the page cache outlived the daemon: nothing was verified";
}

TEST_F(StoreDirectory, MissingOrDamagedStateMeansSuspect) {
  for (const char* state : {"", "gibberish", "clean boot-1 suspect\n", "clean boot-1", "open boot-1 suspect\n"}) {
    open();
    ASSERT_TRUE(store_->put("hello"));
    store_.reset();
    write("state", state);
    damage(digest_of("hello"));
    open();
    EXPECT_FALSE(store_->find(digest_of("hello"))) << state;
  }
}

TEST_F(StoreDirectory, SuspicionOutlivesACleanCloseUntilAllIsVerified) {
  open();
  ASSERT_TRUE(store_->put("hello"));
  store_.reset();
  write("state", "open boot-1 sound\n");
  boot_ = "boot-2";
  open();  // nobody uses the blob in this life
  open();
  damage(digest_of("hello"));
  EXPECT_FALSE(store_->find(digest_of("hello")));
  store_.reset();
  EXPECT_EQ(read("state"), "clean boot-2 sound\n");
}

TEST_F(StoreDirectory, GoodBytesReplaceASuspectBlob) {
  open();
  for (const char* bytes : {"hello", "other"}) ASSERT_TRUE(store_->put(bytes));
  store_.reset();
  for (const char* bytes : {"hello", "other"}) damage(digest_of(bytes));
  write("state", "open boot-1 sound\n");
  boot_ = "boot-2";
  open();
  ASSERT_TRUE(store_->put("hello"));
  EXPECT_EQ(content(digest_of("hello")), "hello");
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, root_ / "private", "other"));
  ASSERT_TRUE(store_->adopt(AT_FDCWD, root_ / "private", digest_of("other")));
  EXPECT_EQ(content(digest_of("other")), "other");
  EXPECT_EQ(store_->usage().bytes, 10U);
  EXPECT_EQ(counter("store.corrupt"), 0U);
}

TEST_F(StoreDirectory, AdoptOfTheSuspectFileItselfLeavesNoTemporary) {
  open();
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, root_ / "private", "hello"));
  ASSERT_TRUE(store_->adopt(AT_FDCWD, root_ / "private", digest_of("hello")));
  store_.reset();
  write("state", "");
  open();
  ASSERT_TRUE(store_->adopt(AT_FDCWD, root_ / "private", digest_of("hello")));
  EXPECT_EQ(content(digest_of("hello")), "hello");
  EXPECT_EQ(files_in(directory() + "/tmp"), 0U);
}

TEST(RunningBootId, IsAUuid) {
  EXPECT_EQ(running_boot_id().size(), 36U) << running_boot_id();
  EXPECT_EQ(running_boot_id(), running_boot_id());
}

}  // namespace
}  // namespace inductorfs::store
