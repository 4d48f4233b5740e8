// SPDX-License-Identifier: Apache-2.0
#include "store/pack.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/store/store_check.h"
#include "store_fixture.h"

namespace inductorfs::store {
namespace {

using codec::digest_of;

constexpr uint64_t kBlockOfDisk = 512;

/// A store whose small blobs go into packs.
class Packed : public StoreTest {
 protected:
  void SetUp() override {
    packed_most_ = kPackedMost;
    open();
  }
  [[nodiscard]] static std::string blob(int number, size_t size = 20'000) {
    std::string bytes = "blob " + std::to_string(number) + " ";
    bytes.resize(size, static_cast<char>('a' + number % 26));
    return bytes;
  }
  void put(int from, int to) {
    for (int i = from; i < to; ++i) ASSERT_TRUE(store_->put(blob(i)));
  }
  [[nodiscard]] bool has(int number) { return store_->find(digest_of(blob(number))).has_value(); }
  [[nodiscard]] std::string pack(uint64_t number = 1) const { return directory() + "/" + Pack::bytes_path(number); }
  [[nodiscard]] std::string index(uint64_t number = 1) const { return directory() + "/" + Pack::index_path(number); }
  [[nodiscard]] bool there(const std::string& path) const { return ::access(path.c_str(), F_OK) == 0; }
  [[nodiscard]] uint64_t bytes_on_disk() const {
    struct stat info {};
    return ::stat(pack().c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_blocks) * kBlockOfDisk : 0;
  }
  void overwrite(const std::string& path, uint64_t at, std::string_view bytes) {
    const auto fd = open_at(AT_FDCWD, path, O_RDWR);
    ASSERT_TRUE(fd && pwrite_full(fd->get(), bytes, at));
  }
  [[nodiscard]] std::vector<Finding> checked(bool repair) {
    Findings findings;
    const auto store = check(directory(), repair, findings);
    EXPECT_TRUE(store);
    return findings.all();
  }
};

TEST_F(Packed, AThousandSmallBlobsAreTwoFiles) {
  put(0, 1000);
  EXPECT_EQ(files_in(directory() + "/blobs"), 0U);
  EXPECT_EQ(files_in(directory() + "/packs"), 2U);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(content(digest_of(blob(i))), blob(i));
  open();
  EXPECT_EQ(store_->usage().blobs, 1000U);
  EXPECT_EQ(store_->usage().bytes, 1000 * 20'000U);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(content(digest_of(blob(i))), blob(i));
}

TEST_F(Packed, TheLargestAndTheEmptyBlobToo) {
  const std::string largest = blob(1, kPackedMost);
  const std::string larger = blob(1, kPackedMost + 1);
  // The empty one last, where its place lies behind the end of the pack.
  for (const std::string& bytes : {largest, larger, blob(2, 100), std::string()}) {
    ASSERT_TRUE(store_->put(bytes));
    EXPECT_EQ(content(digest_of(bytes)), bytes);
  }
  open();
  for (const std::string& bytes : {std::string(), largest, larger}) EXPECT_EQ(content(digest_of(bytes)), bytes);
  EXPECT_EQ(files_in(directory() + "/blobs"), 1U);
}

TEST_F(Packed, ABlobThatGrowsBeyondItsHintBecomesAFile) {
  const std::string bytes = blob(1, 500'000);
  auto writer = store_->create(1000);
  ASSERT_TRUE(writer);
  for (size_t at = 0; at < bytes.size(); at += 700)
    ASSERT_TRUE((*writer)->append(std::string_view(bytes).substr(at, 700)));
  ASSERT_TRUE((*writer)->commit(digest_of(bytes)));
  EXPECT_EQ(content(digest_of(bytes)), bytes);
  EXPECT_EQ(files_in(directory() + "/blobs"), 1U);
}

TEST_F(Packed, WrongDigestIsCorruptAndLeavesNothing) {
  auto writer = store_->create(5);
  ASSERT_TRUE(writer && (*writer)->append("hello"));
  EXPECT_EQ((*writer)->commit(digest_of("other")).error().code(), ErrorCode::kCorrupt);
  EXPECT_EQ((*writer)->append("more").error().code(), ErrorCode::kInvalid);
  EXPECT_FALSE(store_->find(digest_of("hello")));
  open(5);
  EXPECT_TRUE(store_->put("again")) << "its reservation is given back";
}

TEST_F(Packed, WhoHasVerifiedTheBytesIsTakenAtItsWord) {
  for (const size_t size : {size_t{5}, size_t{300'000}}) {
    const auto digest = digest_of("other " + std::to_string(size));
    auto writer = store_->create(size, Verifier::kCaller);
    ASSERT_TRUE(writer && (*writer)->append(blob(1, size)) && (*writer)->commit(digest));
    EXPECT_EQ(content(digest), blob(1, size));
  }
}

TEST_F(Packed, AnEvictedBlobGivesItsSpaceBack) {
  put(0, 100);
  const uint64_t before = bytes_on_disk();
  EXPECT_GE(store_->free_space(60 * 20'000), 60 * 20'000U);
  EXPECT_FALSE(has(0));
  EXPECT_TRUE(has(99));
  EXPECT_LE(bytes_on_disk(), before - 60 * 20'000);
  open();
  EXPECT_FALSE(has(0)) << "it does not come back";
  EXPECT_EQ(store_->usage().blobs, 40U);
  for (int i = 60; i < 100; ++i) EXPECT_EQ(content(digest_of(blob(i))), blob(i));
}

TEST_F(Packed, ABlobStaysReadableAfterItsEvictionAndThenGivesItsSpaceBack) {
  put(0, 100);
  {
    const auto file = store_->open_blob(digest_of(blob(0)));
    ASSERT_TRUE(file);
    put(0, 1);
    store_->discard(digest_of(blob(0)));
    EXPECT_FALSE(has(0));
    EXPECT_EQ(read_all(*file), blob(0));
    ASSERT_TRUE(store_->put(blob(0))) << "it may come again meanwhile";
    EXPECT_EQ(read_all(*file), blob(0));
    EXPECT_EQ(content(digest_of(blob(0))), blob(0));
    store_->discard(digest_of(blob(0)));
    (void)store_->free_space(UINT64_MAX);
    EXPECT_TRUE(there(pack())) << "while somebody reads it";
    EXPECT_EQ(read_all(*file), blob(0));
  }
  EXPECT_FALSE(there(pack()));
  EXPECT_FALSE(there(index()));
}

TEST_F(Packed, ADroppedBlobIsSyncedBeforeTheStoreIsClean) {
  put(0, 2);
  open();
  store_->discard(digest_of(blob(0)));
  ASSERT_TRUE(arm_fail_points("store.sync=EIO"));
  store_.reset();
  ASSERT_TRUE(arm_fail_points(""));
  EXPECT_EQ(read_file(AT_FDCWD, directory() + "/state", 100).value_or(""), "open boot-1 sound\n");
}

TEST_F(Packed, WhoReadsMayOutliveTheStore) {
  put(0, 2);
  const auto file = store_->open_blob(digest_of(blob(0)));
  ASSERT_TRUE(file);
  store_->discard(digest_of(blob(0)));
  store_.reset();
  EXPECT_EQ(read_all(*file), blob(0));
}

TEST_F(Packed, ANewPackBeginsWhenOneIsFull) {
  put(0, 1);
  store_.reset();
  // All places of the index are taken.
  ASSERT_EQ(::truncate(index().c_str(), static_cast<off_t>((uint64_t{kPackRecords} + 1) * kPackRecordSize)), 0);
  open();
  put(1, 3);
  EXPECT_TRUE(there(pack(2)));
  EXPECT_TRUE(has(0) && has(1) && has(2));
  store_->discard(digest_of(blob(0)));
  EXPECT_FALSE(there(pack(1)) || there(index(1)));
  EXPECT_TRUE(there(pack(2)));
  open();
  EXPECT_EQ(store_->usage().blobs, 2U);
}

TEST_F(Packed, BytesWithoutARecordAreGivenBackByTheNextOpen) {
  put(0, 1);
  store_.reset();
  overwrite(pack(), 20ULL * kPackBlock, std::string(4 << 20, 'x'));  // of a writer that was killed
  const uint64_t before = bytes_on_disk();
  open();
  EXPECT_LT(bytes_on_disk(), before - (4 << 20) + kPackBlock);
  EXPECT_EQ(content(digest_of(blob(0))), blob(0));
  put(1, 2);
  EXPECT_EQ(content(digest_of(blob(1))), blob(1));
}

TEST_F(Packed, WhatIsNoRecordIsPassedOver) {
  put(0, 3);
  store_.reset();
  overwrite(index(), 2 * kPackRecordSize, "torn");  // the record of the second blob
  open();
  EXPECT_TRUE(has(0) && has(2));
  EXPECT_FALSE(has(1));
  put(1, 2);
  put(3, 5);
  open();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(content(digest_of(blob(i))), blob(i));
}

TEST_F(Packed, ARecordBehindTheEndOfThePackIsPassedOver) {
  put(0, 3);
  store_.reset();
  ASSERT_EQ(::truncate(pack().c_str(), 30'000), 0);
  open();
  EXPECT_TRUE(has(0));
  EXPECT_FALSE(has(1) || has(2));
  put(3, 4);
  EXPECT_EQ(content(digest_of(blob(3))), blob(3));
  EXPECT_EQ(content(digest_of(blob(0))), blob(0));
}

TEST_F(Packed, APackThatIsCutWhileItIsOpenIsAMissFromThenOn) {
  put(0, 3);
  ASSERT_EQ(::truncate(pack().c_str(), 30'000), 0);
  EXPECT_EQ(store_->open_blob(digest_of(blob(2))).error().code(), ErrorCode::kNotFound);
  EXPECT_FALSE(has(2));
  EXPECT_TRUE(store_->put(blob(2)));
  EXPECT_EQ(content(digest_of(blob(2))), blob(2));
}

TEST_F(Packed, AfterACrashOfTheHostADamagedBlobIsDroppedAtItsFirstUse) {
  put(0, 3);
  store_.reset();
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, directory() + "/state", "open boot-1 sound\n"));
  overwrite(pack(), 5ULL * kPackBlock, "damage");  // the second blob begins there
  boot_ = "boot-2";
  open();
  EXPECT_EQ(store_->usage().blobs, 3U);
  EXPECT_EQ(content(digest_of(blob(0))), blob(0));
  EXPECT_FALSE(has(1));
  EXPECT_EQ(content(digest_of(blob(2))), blob(2));
  EXPECT_EQ(counter("store.corrupt"), 1U);
  ASSERT_TRUE(store_->put(blob(1)));
  EXPECT_EQ(content(digest_of(blob(1))), blob(1));
}

TEST_F(Packed, ASuspectBlobIsReplacedByVerifiedBytes) {
  put(0, 1);
  store_.reset();
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, directory() + "/state", "open boot-1 sound\n"));
  overwrite(pack(), 100, "damage");
  boot_ = "boot-2";
  open();
  auto writer = store_->create(blob(0).size());
  ASSERT_TRUE(writer && (*writer)->append(blob(0)) && (*writer)->commit(digest_of(blob(0))));
  EXPECT_EQ(content(digest_of(blob(0))), blob(0));
  open();
  EXPECT_EQ(store_->usage().blobs, 1U);
  EXPECT_EQ(content(digest_of(blob(0))), blob(0));
}

TEST_F(Packed, ASuspectFileIsReplacedByAPackedBlobAndLeavesNothing) {
  packed_most_ = 0;
  open();
  put(0, 1);
  store_.reset();
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, directory() + "/state", "open boot-1 sound\n"));
  boot_ = "boot-2";
  packed_most_ = kPackedMost;
  open();
  auto writer = store_->create(blob(0).size());
  ASSERT_TRUE(writer && (*writer)->append(blob(0)) && (*writer)->commit(digest_of(blob(0))));
  EXPECT_EQ(content(digest_of(blob(0))), blob(0));
  EXPECT_EQ(files_in(directory() + "/packs"), 2U);
  EXPECT_EQ(files_in(directory() + "/blobs") + files_in(directory() + "/tmp"), 0U);
}

TEST_F(Packed, OrderOfUseSurvivesARestart) {
  for (int i = 0; i < 4; ++i) {
    put(i, i + 1);
    clock_.advance(std::chrono::minutes(1));
  }
  clock_.advance(std::chrono::hours(2));
  EXPECT_TRUE(has(0));
  open();
  (void)store_->free_space(1);
  EXPECT_TRUE(has(0)) << "used two hours after all others";
  EXPECT_FALSE(has(1));
}

TEST_F(Packed, ABlobThatIsAFileTooIsThereOnce) {
  put(0, 2);
  store_.reset();
  const std::string place = file_of(digest_of(blob(0)));
  ASSERT_TRUE(make_directories(place.substr(0, place.rfind('/'))));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, place, blob(0)));
  open();
  EXPECT_EQ(store_->usage().blobs, 2U);
  EXPECT_EQ(content(digest_of(blob(0))), blob(0));
  store_->discard(digest_of(blob(0)));
  open();
  EXPECT_FALSE(has(0));
}

TEST_F(Packed, AStoreOfAReleaseWithoutPacksGoesOn) {
  packed_most_ = 0;
  open();
  put(0, 2);
  packed_most_ = kPackedMost;
  open();
  put(2, 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(content(digest_of(blob(i))), blob(i));
  EXPECT_EQ(files_in(directory() + "/blobs"), 2U);
}

TEST_F(Packed, WhereFilesCannotHaveHolesBlobsAreFiles) {
  ASSERT_TRUE(arm_fail_points("pack.make=EOPNOTSUPP"));
  put(0, 2);
  ASSERT_TRUE(arm_fail_points(""));
  put(2, 3);
  EXPECT_EQ(files_in(directory() + "/blobs"), 3U);
  EXPECT_EQ(files_in(directory() + "/packs"), 0U);
  EXPECT_EQ(content(digest_of(blob(0))), blob(0));
}

TEST_F(Packed, APackOfANewerReleaseIsLeftAlone) {
  put(0, 1);
  store_.reset();
  overwrite(index(), 0, "inductorfs-pack 2\n");
  open();
  EXPECT_FALSE(has(0));
  put(1, 2);
  EXPECT_TRUE(there(pack(1)) && there(pack(2)));
  EXPECT_TRUE(has(1));
}

TEST_F(Packed, HalfAPackIsRemoved) {
  store_.reset();
  ASSERT_TRUE(make_directories(directory() + "/packs"));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, pack(7), ""));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, pack(8), ""));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, index(8), ""));
  open();
  EXPECT_EQ(files_in(directory() + "/packs"), 0U);
}

TEST_F(Packed, CheckFindsADamagedBlobAndRepairsIt) {
  put(0, 3);
  store_.reset();
  EXPECT_TRUE(checked(false).empty());
  overwrite(pack(), 5ULL * kPackBlock, "damage");
  const auto found = checked(false);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.front().path, "packs/1 at 20480");
  EXPECT_NE(found.front().what.find(digest_of(blob(1)).to_hex()), std::string::npos);
  EXPECT_FALSE(found.front().harmless);
  EXPECT_EQ(checked(true).front().repair, "removed");
  EXPECT_TRUE(checked(false).empty());
  open();
  EXPECT_TRUE(has(0) && has(2));
  EXPECT_FALSE(has(1));
}

TEST_F(Packed, CheckFindsWhatIsNoPack) {
  put(0, 1);
  store_.reset();
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, directory() + "/packs/notes.txt", "mine"));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, pack(3), "no index"));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, index(4), "no pack"));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, pack(5), ""));
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, index(5), std::string(200, 'x')));
  const auto found = checked(true);
  ASSERT_EQ(found.size(), 4U);
  for (const Finding& finding : found) {
    EXPECT_EQ(finding.harmless, finding.path == "packs/3") << finding.path;
    EXPECT_NE(finding.repair, "") << finding.path;
  }
  EXPECT_TRUE(there(directory() + "/set-aside/notes.txt"));
  open();
  EXPECT_TRUE(has(0));
}

TEST(PackRecord, IsTheDocumentedOne) {
  const PackRecord record{digest_of("hello"), 3 * kPackBlock, 5, 1'000'000'007, true};
  const std::string bytes = record.encode();
  ASSERT_EQ(bytes.size(), kPackRecordSize);
  EXPECT_EQ(bytes.substr(0, 32), digest_of("hello").raw());
  EXPECT_EQ(bytes.substr(32, 16), std::string("\0\x30\0\0\0\0\0\0\x05\0\0\0\x01\0\0\0", 16));
  const auto read = PackRecord::decode(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->digest, record.digest);
  EXPECT_EQ(read->offset, record.offset);
  EXPECT_EQ(read->size, record.size);
  EXPECT_EQ(read->used, record.used);
  EXPECT_TRUE(read->live);
}

TEST(PackRecord, AnyOtherByteOfItsPlaceIsNoRecord) {
  const std::string bytes = PackRecord{digest_of("hello"), 0, 5, 7, true}.encode();
  for (size_t at = 0; at < bytes.size(); ++at) {
    if (at >= PackRecord::kUsedAt && at < PackRecord::kUsedAt + 8) continue;  // changes with each use
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    EXPECT_FALSE(PackRecord::decode(damaged)) << at;
  }
  EXPECT_FALSE(PackRecord::decode(std::string(kPackRecordSize, '\0')));
}

}  // namespace
}  // namespace inductorfs::store
