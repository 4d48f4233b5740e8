// SPDX-License-Identifier: Apache-2.0
#include "store/local_store.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fstream>
#include <thread>
#include <vector>

#include "inductorfs/store/store_check.h"
#include "store_fixture.h"
#include "support/lacks.h"

namespace inductorfs::store {
namespace {

using codec::digest_of;

/// A small tmpfs that goes at the end of the test. Not mounted where the test has no right to. Confined to the test
/// thread.
class SmallDisk {
 public:
  SmallDisk(std::string path, const char* options, const char* kind = "tmpfs") : path_(std::move(path)) {
    std::filesystem::create_directories(path_);
    mounted_ = ::mount(kind, path_.c_str(), kind, 0, options) == 0;
  }
  ~SmallDisk() {
    if (mounted_) (void)::umount2(path_.c_str(), MNT_DETACH);  // the temporary directory's removal will tell
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  [[nodiscard]] bool mounted() const { return mounted_; }

 private:
  std::string path_;
  bool mounted_ = false;
};

class BlobStoreTest : public StoreTest {
 protected:
  void SetUp() override { open(); }
};

TEST_F(BlobStoreTest, WhatWasPutIsFoundAndReadable) {
  const auto digest = store_->put("hello");
  ASSERT_TRUE(digest);
  EXPECT_EQ(*digest, digest_of("hello"));
  EXPECT_EQ(store_->find(*digest)->size, 5U);
  EXPECT_EQ(content(*digest), "hello");
  EXPECT_EQ(store_->usage().blobs, 1U);
  EXPECT_EQ(store_->usage().bytes, 5U);
  EXPECT_EQ(counter("store.bytes"), 5U);
}

TEST_F(BlobStoreTest, AbsentIsNoError) {
  EXPECT_FALSE(store_->find(digest_of("absent")));
  EXPECT_EQ(store_->open_blob(digest_of("absent")).error().code(), ErrorCode::kNotFound);
  store_->discard(digest_of("absent"));
  EXPECT_EQ(counter("store.corrupt"), 0U);
}

TEST_F(BlobStoreTest, WriterStreamsAndTheBlobIsInvisibleUntilCommit) {
  auto writer = store_->create(0);
  ASSERT_TRUE(writer);
  ASSERT_TRUE((*writer)->append("hel"));
  ASSERT_TRUE((*writer)->append("lo"));
  EXPECT_FALSE(store_->find(digest_of("hello")));
  ASSERT_TRUE((*writer)->commit(digest_of("hello")));
  EXPECT_EQ(content(digest_of("hello")), "hello");
  EXPECT_EQ(files_in(directory() + "/tmp"), 0U);
}

TEST_F(BlobStoreTest, WrongDigestIsCorruptAndLeavesNothing) {
  auto writer = store_->create(5);
  ASSERT_TRUE((*writer)->append("hellO"));
  EXPECT_EQ((*writer)->commit(digest_of("hello")).error().code(), ErrorCode::kCorrupt);
  EXPECT_EQ((*writer)->commit(digest_of("hellO")).error().code(), ErrorCode::kInvalid) << "it has ended";
  EXPECT_EQ((*writer)->append("x").error().code(), ErrorCode::kInvalid);
  EXPECT_FALSE(store_->find(digest_of("hello")));
  EXPECT_FALSE(store_->find(digest_of("hellO")));
  EXPECT_EQ(files_in(directory() + "/tmp"), 0U);
}

TEST_F(BlobStoreTest, AbandonedWriterLeavesNothing) {
  {
    auto writer = store_->create(5);
    ASSERT_TRUE((*writer)->append("hello"));
    EXPECT_EQ(files_in(directory() + "/tmp"), 1U);
  }
  EXPECT_EQ(files_in(directory() + "/tmp"), 0U);
  EXPECT_EQ(store_->usage().blobs, 0U);
}

TEST_F(BlobStoreTest, ABlobThatIsThereKeepsItsFile) {
  ASSERT_TRUE(store_->put("hello"));
  struct stat before {};
  ASSERT_EQ(::stat(file_of(digest_of("hello")).c_str(), &before), 0);
  auto writer = store_->create(5);
  ASSERT_TRUE((*writer)->append("hello"));
  ASSERT_TRUE((*writer)->commit(digest_of("hello")));
  ASSERT_TRUE(store_->put("hello"));
  struct stat after {};
  ASSERT_EQ(::stat(file_of(digest_of("hello")).c_str(), &after), 0);
  EXPECT_EQ(after.st_ino, before.st_ino);
  EXPECT_EQ(store_->usage().bytes, 5U);
  EXPECT_EQ(files_in(directory() + "/tmp"), 0U);
}

TEST_F(BlobStoreTest, EmptyBlobIsABlob) {
  ASSERT_TRUE(store_->put(""));
  EXPECT_EQ(store_->find(digest_of(""))->size, 0U);
  EXPECT_EQ(content(digest_of("")), "");
}

TEST_F(BlobStoreTest, OnlyTheOwnerCanRead) {
  ASSERT_TRUE(store_->put("hello"));
  struct stat info {};
  ASSERT_EQ(::stat(file_of(digest_of("hello")).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  ASSERT_EQ(::stat(directory().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0700U);
}

TEST_F(BlobStoreTest, DescriptorFromOpenBlobIsReadOnly) {
  ASSERT_TRUE(store_->put("hello"));
  const auto blob = store_->open_blob(digest_of("hello"));
  ASSERT_TRUE(blob);
  EXPECT_FALSE(pwrite_full(blob->file(), "x", 0));
}

TEST_F(BlobStoreTest, AdoptLinksWithoutCopying) {
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, root_ / "private", "hello"));
  ASSERT_TRUE(store_->adopt(AT_FDCWD, root_ / "private", digest_of("hello")));
  struct stat source {};
  struct stat blob {};
  ASSERT_EQ(::stat((root_ / "private").c_str(), &source), 0);
  ASSERT_EQ(::stat(file_of(digest_of("hello")).c_str(), &blob), 0);
  EXPECT_EQ(source.st_ino, blob.st_ino);
  EXPECT_EQ(source.st_mode & 0777U, 0644U) << "the writer's mode stays";
  std::filesystem::remove(root_ / "private");
  EXPECT_EQ(content(digest_of("hello")), "hello");
  EXPECT_EQ(store_->usage().bytes, 5U);
  EXPECT_EQ(files_in(directory() + "/tmp"), 0U);
}

TEST_F(BlobStoreTest, AdoptOfABlobThatIsThereLeavesItAlone) {
  ASSERT_TRUE(store_->put("hello"));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, root_ / "private", "hello"));
  ASSERT_TRUE(store_->adopt(AT_FDCWD, root_ / "private", digest_of("hello")));
  struct stat info {};
  ASSERT_EQ(::stat((root_ / "private").c_str(), &info), 0);
  EXPECT_EQ(info.st_nlink, 1U);
  EXPECT_EQ(store_->usage().bytes, 5U);
}

TEST_F(BlobStoreTest, AdoptRelativeToADirectory) {
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, root_ / "private", "hello"));
  const auto dir = open_at(AT_FDCWD, root_.path(), O_RDONLY | O_DIRECTORY);
  ASSERT_TRUE(store_->adopt(dir->get(), "private", digest_of("hello")));
  EXPECT_EQ(content(digest_of("hello")), "hello");
}

TEST_F(BlobStoreTest, AdoptOfWhatIsNoFileIsRefused) {
  EXPECT_EQ(store_->adopt(AT_FDCWD, root_ / "absent", digest_of("x")).error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(store_->adopt(AT_FDCWD, root_.path(), digest_of("x")).error().code(), ErrorCode::kInvalid);
  std::filesystem::create_symlink("/etc/passwd", root_ / "link");
  EXPECT_EQ(store_->adopt(AT_FDCWD, root_ / "link", digest_of("x")).error().code(), ErrorCode::kInvalid);
  EXPECT_EQ(store_->usage().blobs, 0U);
}

TEST_F(BlobStoreTest, AdoptCopiesFromAnotherFileSystem) {
  const SmallDisk disk(root_ / "disk", "size=1m");
  if (!disk.mounted()) INDUCTORFS_LACKS("the right to mount a tmpfs");
  const std::string big(300'000, 'b');
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, root_ / "disk/private", big));
  ASSERT_TRUE(store_->adopt(AT_FDCWD, root_ / "disk/private", digest_of(big)));
  EXPECT_EQ(content(digest_of(big)), big);
  EXPECT_EQ(store_->adopt(AT_FDCWD, root_ / "disk/private", digest_of("lie")).error().code(), ErrorCode::kCorrupt)
      << "a copy is checked";
}

TEST_F(BlobStoreTest, DiscardDropsAndCounts) {
  ASSERT_TRUE(store_->put("hello"));
  store_->set_eviction_guard([](const codec::Digest&) { return false; });
  store_->discard(digest_of("hello"));
  EXPECT_FALSE(store_->find(digest_of("hello")));
  EXPECT_EQ(files_in(directory() + "/blobs"), 0U);
  EXPECT_EQ(counter("store.corrupt"), 1U);
  ASSERT_TRUE(store_->put("hello"));
  EXPECT_EQ(content(digest_of("hello")), "hello");
}

TEST_F(BlobStoreTest, TellsOfDamageBeforeTheBlobGoes) {
  ASSERT_TRUE(store_->put("hello"));
  ino_t told = 0;
  store_->set_damage_listener([&](const codec::Digest& digest, int file) {
    EXPECT_EQ(digest, digest_of("hello"));
    EXPECT_TRUE(std::filesystem::exists(file_of(digest)));
    struct stat inode {};
    ASSERT_EQ(::fstat(file, &inode), 0);
    told = inode.st_ino;
  });
  struct stat inode {};
  ASSERT_EQ(::stat(file_of(digest_of("hello")).c_str(), &inode), 0);
  store_->discard(digest_of("hello"));
  EXPECT_EQ(told, inode.st_ino);

  told = 0;
  ASSERT_TRUE(store_->put("hello"));
  ASSERT_EQ(::stat(file_of(digest_of("hello")).c_str(), &inode), 0);
  std::filesystem::resize_file(file_of(digest_of("hello")), 2);
  EXPECT_FALSE(store_->find(digest_of("hello")));
  EXPECT_EQ(told, inode.st_ino);
}

TEST_F(BlobStoreTest, KnowsOfDamageUntilARepair) {
  ASSERT_TRUE(store_->put("hello"));
  ASSERT_TRUE(store_->put("unfit"));
  store_->drop(digest_of("unfit"));
  EXPECT_FALSE(store_->find(digest_of("unfit")));
  EXPECT_EQ(store_->usage().damaged, 0U) << "sound, and of no use here";
  EXPECT_EQ(counter("store.corrupt"), 0U);
  store_->discard(digest_of("hello"));
  store_->note_damage();
  open();
  EXPECT_EQ(store_->usage().damaged, 2U);
  EXPECT_EQ(store_->usage().damaged_at, clock_.wall_now() / 1'000'000'000);

  store_.reset();
  Findings findings;
  ASSERT_TRUE(check(directory(), false, findings));
  open();
  EXPECT_EQ(store_->usage().damaged, 2U);
  store_.reset();
  ASSERT_TRUE(check(directory(), true, findings));
  open();
  EXPECT_EQ(store_->usage().damaged, 0U);
}

TEST_F(BlobStoreTest, WhatACrashOfTheHostTookIsNoFaultOfTheDisk) {
  ASSERT_TRUE(store_->put("hello"));
  const std::string copy = root_ / "copy";
  std::filesystem::copy(directory(), copy, std::filesystem::copy_options::recursive);
  std::filesystem::resize_file(copy + "/" + blob_path(digest_of("hello")), 2);
  boot_ = "boot-2";
  const auto crashed = try_open(copy);
  ASSERT_TRUE(crashed);
  EXPECT_FALSE((*crashed)->find(digest_of("hello")));
  EXPECT_EQ((*crashed)->usage().damaged, 0U);
}

TEST_F(BlobStoreTest, ABlobRemovedBehindItsBackIsAMissFromThenOn) {
  ASSERT_TRUE(store_->put("hello"));
  std::filesystem::remove(file_of(digest_of("hello")));
  EXPECT_EQ(store_->open_blob(digest_of("hello")).error().code(), ErrorCode::kNotFound);
  EXPECT_FALSE(store_->find(digest_of("hello")));
  EXPECT_EQ(counter("store.corrupt"), 1U);
}

TEST_F(BlobStoreTest, ABlobThatLostItsEndIsAMissFromThenOn) {
  ASSERT_TRUE(store_->put("hello"));
  std::filesystem::resize_file(file_of(digest_of("hello")), 2);
  EXPECT_EQ(store_->open_blob(digest_of("hello")).error().code(), ErrorCode::kNotFound);
  EXPECT_FALSE(store_->find(digest_of("hello")));
}

TEST_F(BlobStoreTest, ABlobWhoseFileWasWrittenToIsAMissFromThenOn) {
  const auto write = [&](const std::string& bytes) {
    std::fstream(file_of(digest_of("hello")), std::ios::in | std::ios::out) << bytes;
    const struct timespec later[2] = {{0, UTIME_OMIT}, {4'000'000'000, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, file_of(digest_of("hello")).c_str(), later, 0), 0);  // a clock has steps
  };
  ASSERT_TRUE(store_->put("hello"));
  write("jello");
  EXPECT_FALSE(store_->find(digest_of("hello")));
  EXPECT_EQ(counter("store.corrupt"), 1U);
  ASSERT_TRUE(store_->put("hello"));
  write("jello");
  EXPECT_EQ(store_->open_blob(digest_of("hello")).error().code(), ErrorCode::kNotFound);
  ASSERT_TRUE(store_->put("hello"));
  write("jello");
  ASSERT_TRUE(store_->put("hello")) << "not taken for one that is there";
  EXPECT_EQ(content(digest_of("hello")), "hello");
}

TEST_F(BlobStoreTest, ABlobWhoseFileGotAnotherTimeStays) {
  ASSERT_TRUE(store_->put("hello"));
  const struct timespec times[2] = {{0, UTIME_OMIT}, {1, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, file_of(digest_of("hello")).c_str(), times, 0), 0);
  EXPECT_TRUE(store_->find(digest_of("hello")));
  EXPECT_EQ(content(digest_of("hello")), "hello");
  EXPECT_EQ(counter("store.corrupt"), 0U);
}

TEST_F(BlobStoreTest, ClosedStoreRefusesWritesAndStillReads) {
  ASSERT_TRUE(store_->put("hello"));
  auto open_writer = store_->create(1);
  ASSERT_TRUE(open_writer);
  store_->close();
  store_->close();
  EXPECT_EQ(content(digest_of("hello")), "hello");
  EXPECT_EQ(store_->put("more").error().code(), ErrorCode::kUnavailable);
  ASSERT_TRUE((*open_writer)->append("x"));
  EXPECT_EQ((*open_writer)->commit(digest_of("x")).error().code(), ErrorCode::kUnavailable);
  store_->discard(digest_of("hello"));
  EXPECT_TRUE(store_->find(digest_of("hello"))) << "the directory may be another owner's by now";
}

TEST_F(BlobStoreTest, ConcurrentWritersOfOneBlobAllSucceed) {
  const std::string bytes(200'000, 'x');
  std::atomic<int> succeeded{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&] {
        if (store_->put(bytes)) ++succeeded;
      });
    }
  }
  EXPECT_EQ(succeeded, 8);
  EXPECT_EQ(store_->usage().blobs, 1U);
  EXPECT_EQ(store_->usage().bytes, bytes.size());
  EXPECT_EQ(files_in(directory() + "/tmp"), 0U);
}

uint64_t available_in(const std::string& directory) {
  struct statvfs disk {};
  return ::statvfs(directory.c_str(), &disk) == 0 ? disk.f_bavail * disk.f_frsize : 0;
}

TEST_F(StoreTest, KeepsTheFloorOfTheDiskFree) {
  const SmallDisk disk(directory(), "size=4m,mode=0700");
  if (!disk.mounted()) INDUCTORFS_LACKS("the right to mount a tmpfs");
  constexpr uint64_t kFloor = 1 << 20;
  auto opened = open_local({{directory(), 1ULL << 30, kFloor}, boot_, &clock_}, counters_);
  ASSERT_TRUE(opened) << opened.error().to_string();
  store_ = std::move(*opened);
  EXPECT_EQ(store_->usage().free_floor, kFloor);
  const auto bytes_of = [](int i) { return std::to_string(i) + std::string(100'000, 'x'); };
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(store_->put(bytes_of(i))) << i;
    EXPECT_GE(available_in(directory()), kFloor) << i;
  }
  EXPECT_FALSE(store_->find(digest_of(bytes_of(0)))) << "the least recently used goes";
  EXPECT_TRUE(store_->find(digest_of(bytes_of(58))));

  ASSERT_TRUE(write_file_atomically(AT_FDCWD, directory() + "/filler", std::string(1 << 20, 'f')));
  EXPECT_LT(available_in(directory()), kFloor);
  store_->keep_floor();
  EXPECT_GE(available_in(directory()), kFloor) << "what another program filled, blobs make room for";

  store_->set_eviction_guard([](const codec::Digest&) { return false; });
  Result<codec::Digest> last = digest_of("");
  for (int i = 100; i < 140 && last; ++i) last = store_->put(bytes_of(i));
  ASSERT_FALSE(last);
  EXPECT_EQ(last.error().code(), ErrorCode::kNoSpace);
  EXPECT_NE(last.error().what().find("stay free for others"), std::string::npos) << last.error().what();
  EXPECT_GE(available_in(directory()), kFloor);
  store_.reset();
}

TEST_F(StoreTest, TheDefaultFloorIsASmallPartOfTheDisk) {
  const SmallDisk disk(directory(), "size=4m,mode=0700");
  if (!disk.mounted()) INDUCTORFS_LACKS("the right to mount a tmpfs");
  auto opened = open_local({{directory(), 1ULL << 30, StoreOptions::kFloorByDisk}, boot_, &clock_}, counters_);
  ASSERT_TRUE(opened) << opened.error().to_string();
  EXPECT_EQ((*opened)->usage().free_floor, (4ULL << 20) / 50);
}

TEST_F(StoreTest, ADiskThatTellsNoSizeIsNotFull) {
  const SmallDisk disk(directory(), "mode=0700", "ramfs");
  if (!disk.mounted()) INDUCTORFS_LACKS("the right to mount a ramfs");
  for (const uint64_t floor : {StoreOptions::kFloorByDisk, uint64_t{1} << 20}) {
    auto opened = open_local({{directory(), 1ULL << 30, floor}, boot_, &clock_}, counters_);
    ASSERT_TRUE(opened) << opened.error().to_string();
    store_ = std::move(*opened);
    ASSERT_TRUE(store_->put("hello"));
    ASSERT_TRUE(store_->put(std::string(100'000, 'x')));
    store_->keep_floor();
    EXPECT_EQ(content(digest_of("hello")), "hello");
    EXPECT_EQ(counter("store.evicted"), 0U);
    store_.reset();
  }
}

TEST_F(StoreTest, FullDiskEvictsFirstAndThenSaysSo) {
  const SmallDisk disk(directory(), "size=2m,mode=0700");
  if (!disk.mounted()) INDUCTORFS_LACKS("the right to mount a tmpfs");
  open(1ULL << 30);
  for (int i = 0; i < 40; ++i) {
    const std::string bytes = std::to_string(i) + std::string(100'000, 'x');
    ASSERT_TRUE(store_->put(bytes)) << "old blobs make room: " << i;
    EXPECT_EQ(content(digest_of(bytes)), bytes);
  }
  EXPECT_GT(counter("store.evicted"), 10U);
  store_->set_eviction_guard([](const codec::Digest&) { return false; });
  Result<codec::Digest> last = digest_of("");
  for (int i = 100; i < 140 && last; ++i) last = store_->put(std::to_string(i) + std::string(100'000, 'y'));
  ASSERT_FALSE(last);
  EXPECT_EQ(last.error().code(), ErrorCode::kNoSpace);
  EXPECT_NE(last.error().what().find("lower the store's size limit"), std::string::npos) << last.error().what();
  // Without a hint the write itself finds the disk full.
  auto writer = store_->create(0);
  ASSERT_TRUE(writer);
  const auto appended = (*writer)->append(std::string(3'000'000, 'z'));
  ASSERT_FALSE(appended);
  EXPECT_EQ(appended.error().code(), ErrorCode::kNoSpace);
  EXPECT_NE(appended.error().what().find("free some space"), std::string::npos) << appended.error().what();
  writer->reset();
  EXPECT_EQ(files_in(directory() + "/tmp"), 0U);
  store_.reset();
}

TEST_F(StoreTest, ReadOnlyFileSystemIsSaidWithItsRemedy) {
  const SmallDisk disk(directory(), "size=1m");
  if (!disk.mounted()) INDUCTORFS_LACKS("the right to mount a tmpfs");
  open();
  store_.reset();
  ASSERT_EQ(::mount(nullptr, directory().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
  const auto opened = try_open(directory());
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), ErrorCode::kReadOnly);
  EXPECT_NE(opened.error().what().find("writable"), std::string::npos) << opened.error().what();
}

}  // namespace
}  // namespace inductorfs::store
