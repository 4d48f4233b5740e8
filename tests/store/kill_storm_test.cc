// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <random>

#include "inductorfs/store/store_check.h"
#include "store_fixture.h"

namespace inductorfs::store {
namespace {

using codec::digest_of;

constexpr uint64_t kLimit = 400'000;
constexpr int kKills = 40;

/// What the victim does until it dies: commits, adoptions, abandoned writers, discards, evictions.
[[noreturn]] void write_for_ever(const std::string& directory, const std::string& scratch, uint32_t seed, int ready) {
  Counters counters;
  auto store = BlobStore::open({directory, kLimit}, counters);
  if (!store) ::_exit(1);
  (void)!::write(ready, "r", 1);  // the parent may be gone; then so are we
  std::mt19937 random(seed);
  for (int i = 0;; ++i) {
    std::string bytes = std::to_string(seed) + "/" + std::to_string(i);
    bytes.resize(random() % 30'000 + 20, static_cast<char>('a' + i % 26));
    const codec::Digest digest = digest_of(bytes);
    if (i % 3 == 0) {
      if (!write_file_atomically(AT_FDCWD, scratch, bytes)) ::_exit(2);
      if (!(*store)->adopt(AT_FDCWD, scratch, digest)) ::_exit(3);
    } else {
      auto writer = (*store)->create(i % 2 == 0 ? bytes.size() : 0);  // a pack, or a file
      if (!writer || !(*writer)->append(bytes)) ::_exit(4);
      if (i % 5 != 0 && !(*writer)->commit(digest)) ::_exit(5);
    }
    if (i % 7 == 0) (*store)->discard(digest);
  }
}

class KillStorm : public StoreTest {
 protected:
  void kill_one_writer(uint32_t seed) {
    int pipe_ends[2] = {-1, -1};
    ASSERT_EQ(::pipe2(pipe_ends, O_CLOEXEC), 0);
    const Fd read_end(pipe_ends[0]);
    Fd write_end(pipe_ends[1]);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) write_for_ever(directory(), root_ / "scratch", seed, write_end.get());
    write_end.reset();
    char ready = 0;
    ASSERT_EQ(::read(read_end.get(), &ready, 1), 1) << "the writer could not open the store";
    // Not a wait for a condition: the moment of the kill is the random input of this test.
    std::mt19937 random(seed);
    (void)::poll(nullptr, 0, static_cast<int>(random() % 25));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "it ended by itself with " << WEXITSTATUS(status);
  }
  /// The blobs of a store that nobody has open: each has the bytes that its name says.
  [[nodiscard]] CheckedStore sound_store() {
    Findings findings;
    auto store = check(directory(), false, findings);
    EXPECT_TRUE(findings.sound());
    return store ? std::move(*store) : CheckedStore{};
  }
  [[nodiscard]] uint64_t packed_in(const CheckedStore& store) const { return store.blobs.size() - store.inodes.size(); }
  /// The open store has exactly these blobs.
  void expect_all(const CheckedStore& blobs) {
    EXPECT_EQ(store_->usage().blobs, blobs.blobs.size());
    EXPECT_EQ(store_->usage().bytes, blobs.bytes);
    EXPECT_LE(store_->usage().bytes, kLimit);
    EXPECT_EQ(files_in(directory() + "/tmp"), 0U);
  }
};

TEST_F(KillStorm, KilledAtAnyPointEveryBlobIsWholeAndNothingIsLeftBehind) {
  uint64_t blobs = 0;
  uint64_t packed = 0;
  for (uint32_t kill = 1; kill <= kKills; ++kill) {
    kill_one_writer(kill);
    if (HasFatalFailure()) return;
    CheckedStore sound = sound_store();
    packed += packed_in(sound);
    sound.lock.reset();
    auto opened = BlobStore::open({directory(), kLimit}, counters_);
    ASSERT_TRUE(opened) << opened.error().to_string();
    store_ = std::move(*opened);
    expect_all(sound);
    blobs += store_->usage().blobs;
    if (kill % 4 != 0) {
      // Most of the time the next writer finds what a killed one left, not what a clean close did.
      store_->close();
      ASSERT_TRUE(write_file_atomically(AT_FDCWD, directory() + "/state", "open " + running_boot_id() + " sound\n"));
    }
    store_.reset();
  }
  EXPECT_GT(packed, kKills);
  EXPECT_GT(blobs - packed, kKills) << "the writers must have come to write something";
}

}  // namespace
}  // namespace inductorfs::store
