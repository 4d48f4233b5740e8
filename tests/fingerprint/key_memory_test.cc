// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/common/key_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "fake_packages.h"
#include "fingerprint/packages/package_keys.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/fingerprint/fingerprint.h"
#include "support/lacks.h"
#include "support/temporary_directory.h"
#include "without_memory.h"

namespace inductorfs::fingerprint {
namespace {

using inductorfs::testing::TemporaryDirectory;
using testing::read_text;
using testing::write_text;

TEST(KeyMemory, KeepsAValueForItsManifestOnly) {
  const TemporaryDirectory temporary;
  KeyMemory first(temporary / "deep/folder/memory.json");
  first.keep("torch_key /a", "m1", "value");
  ASSERT_TRUE(first.save());
  const KeyMemory second(temporary / "deep/folder/memory.json");
  EXPECT_EQ(second.find("torch_key /a", "m1"), "value");
  EXPECT_FALSE(second.find("torch_key /a", "m2"));
  EXPECT_FALSE(second.find("torch_key /b", "m1"));
}

TEST(KeyMemory, WritesOnlyWhatIsNew) {
  const TemporaryDirectory temporary;
  KeyMemory memory(temporary / "memory.json");
  ASSERT_TRUE(memory.save());
  EXPECT_FALSE(std::filesystem::exists(temporary / "memory.json"));
  memory.keep("a", "b", "c");
  ASSERT_TRUE(memory.save());
  ASSERT_TRUE(std::filesystem::remove(temporary / "memory.json"));
  ASSERT_TRUE(memory.save());
  EXPECT_FALSE(std::filesystem::exists(temporary / "memory.json"));
}

TEST(KeyMemory, TreatsGarbageAsEmptyAndReplacesIt) {
  const TemporaryDirectory temporary;
  const std::string path = temporary / "memory.json";
  for (const char* garbage :
       {"", "garbage", "[]", "{\"format\": 1}", "{\"format\": 2, \"kept\": {}}", "{\"format\": \"1\"}",
        "{\"format\": 1, \"kept\": []}", "{\"format\": 1, \"kept\": {\"a\": 1}}",
        "{\"format\": 1, \"kept\": {\"a\": {\"manifest\": \"b\", \"value\": 1}}}"}) {
    write_text(path, garbage);
    KeyMemory memory(path);
    EXPECT_FALSE(memory.find("a", "b")) << garbage;
    memory.keep("a", "b", "c");
    ASSERT_TRUE(memory.save());
    EXPECT_EQ(KeyMemory(path).find("a", "b"), "c") << garbage;
  }
}

/// The directory is the worker's, who is not to say what a package is, or to lead root's children elsewhere.
TEST(KeyMemory, BelievesNothingButAFileOfItsOwn) {
  const TemporaryDirectory temporary;
  const std::string real = temporary / "real.json";
  const std::string file = temporary / "memory.json";
  const auto remember = [](const std::string& path) {
    KeyMemory memory(path);
    memory.keep("a", "b", "c");
    ASSERT_TRUE(memory.save());
  };
  remember(real);
  ASSERT_EQ(::symlink(real.c_str(), file.c_str()), 0);
  EXPECT_FALSE(KeyMemory(file).find("a", "b")) << "a link";
  ASSERT_EQ(::unlink(file.c_str()), 0);
  ASSERT_EQ(::link(real.c_str(), file.c_str()), 0);
  EXPECT_FALSE(KeyMemory(file).find("a", "b")) << "one of two names";
  ASSERT_EQ(::unlink(file.c_str()), 0);
  remember(file);
  EXPECT_TRUE(KeyMemory(file).find("a", "b"));
  if (::geteuid() != 0) INDUCTORFS_LACKS("root");
  ASSERT_EQ(::chown(file.c_str(), 12345, 12345), 0);
  EXPECT_FALSE(KeyMemory(file).find("a", "b")) << "another user's";
}

/// The readers of torch and Triton begin together, with what the file had then.
TEST(KeyMemory, KeepsWhatAnotherReaderHasSavedMeanwhile) {
  const TemporaryDirectory temporary;
  const std::string file = temporary / "memory.json";
  KeyMemory torch(file);
  KeyMemory triton(file);
  torch.keep("torch_key", "m", "torch's");
  triton.keep("triton_key", "m", "triton's");
  ASSERT_TRUE(torch.save());
  ASSERT_TRUE(triton.save());
  const KeyMemory next(file);
  EXPECT_EQ(next.find("torch_key", "m"), "torch's");
  EXPECT_EQ(next.find("triton_key", "m"), "triton's");
}

TEST(KeyMemory, HasALimit) {
  const TemporaryDirectory temporary;
  KeyMemory memory(temporary / "memory.json");
  for (int i = 0; i < 1000; ++i) memory.keep("name" + std::to_string(i), "m", std::string(100, 'v'));
  EXPECT_TRUE(memory.find("name999", "m"));
  ASSERT_TRUE(memory.save());
  EXPECT_LT(std::filesystem::file_size(temporary / "memory.json"), 100000U);
}

TEST(KeyMemory, ReportsAPlaceItCannotWrite) {
  KeyMemory memory("/proc/no/such/memory.json");
  memory.keep("a", "b", "c");
  EXPECT_FALSE(memory.save());
}

TEST(Identity, ChangesWithSizeTimesAndInode) {
  struct stat base {};
  base.st_ino = 1;
  base.st_size = 2;
  base.st_mtim.tv_sec = 3;
  base.st_ctim.tv_nsec = 4;
  const auto changed = [&base](auto change) {
    struct stat other = base;
    change(other);
    return identity_of(other) != identity_of(base);
  };
  EXPECT_EQ(identity_of(base), identity_of(base));
  EXPECT_TRUE(changed([](struct stat& s) { s.st_dev = 9; }));
  EXPECT_TRUE(changed([](struct stat& s) { s.st_ino = 9; }));
  EXPECT_TRUE(changed([](struct stat& s) { s.st_size = 9; }));
  EXPECT_TRUE(changed([](struct stat& s) { s.st_mtim.tv_nsec = 9; }));
  EXPECT_TRUE(changed([](struct stat& s) { s.st_ctim.tv_sec = 9; }));
}

TEST(Identity, IsNotTrustedRightAfterAChange) {
  const TemporaryDirectory temporary;
  write_text(temporary / "file", "x");
  struct stat status {};
  ASSERT_EQ(stat((temporary / "file").c_str(), &status), 0);
  EXPECT_TRUE(is_too_fresh(status));
  status.st_ctim.tv_sec -= 10;
  EXPECT_FALSE(is_too_fresh(status));
  const auto manifest = manifest_of({temporary / "file"});
  ASSERT_TRUE(manifest);
  EXPECT_TRUE(manifest->too_fresh);
  EXPECT_FALSE(manifest_of({temporary / "absent"}));
}

TEST(RememberedDigest, TakesALargeFileFromTheMemoryAndASmallOneFromItsBytes) {
  const TemporaryDirectory temporary;
  const std::string large = temporary / "large";
  write_text(large, std::string(17 << 20, 'l'));
  const std::string small = temporary / "small";
  write_text(small, "s");
  struct stat status {};
  KeyMemory memory("");
  const std::string planted = codec::digest_of("planted").to_hex();
  for (const std::string& path : {large, small}) {
    ASSERT_EQ(stat(path.c_str(), &status), 0);
    memory.keep("sha256 " + path, identity_of(status), planted);
  }
  EXPECT_EQ(remembered_digest(InRoot::host(), large, memory)->to_hex(), planted);
  EXPECT_EQ(remembered_digest(InRoot::host(), small, memory)->to_hex(), codec::digest_of("s").to_hex());
  // Another identity: the bytes decide again.
  write_text(large, std::string(17 << 20, 'm'));
  EXPECT_EQ(remembered_digest(InRoot::host(), large, memory)->to_hex(),
            codec::digest_of(std::string(17 << 20, 'm')).to_hex());
}

/// A key is remembered by the identities of all its files: a planted value proves that it was not computed.
TEST(RememberedKey, IsUsedUntilAnyFileChanges) {
  const TemporaryDirectory temporary;
  const std::string triton = temporary / "triton";
  testing::write_tree(triton, testing::triton_tree());
  const std::string cache = temporary / "memory.json";
  const auto fresh = triton_key(triton, testing::kSuffixes311, cache);
  ASSERT_TRUE(fresh);
  EXPECT_FALSE(std::filesystem::exists(cache)) << "files changed this second must not be remembered";

  std::vector<std::string> files;
  for (const char* name : {"runtime/cache.py", "compiler/code_generator.py", "compiler/compiler.py",
                           "backends/driver.py", "backends/nvidia/__init__.py", "backends/nvidia/driver.py",
                           "_C/libtriton.so", "language/core.py", "language/extra/__init__.py", "__init__.py"}) {
    files.push_back(triton + "/" + name);
  }
  KeyMemory memory(cache);
  memory.keep("triton_key " + triton, manifest_of(files)->digest, "planted");
  ASSERT_TRUE(memory.save());
  EXPECT_EQ(triton_key(triton, testing::kSuffixes311, cache).value_or("?"), "planted");

  write_text(triton + "/language/core.py", "changed");
  const auto changed = triton_key(triton, testing::kSuffixes311, cache);
  ASSERT_TRUE(changed);
  EXPECT_NE(*changed, "planted");
  EXPECT_NE(*changed, *fresh);
  write_text(triton + "/language/core.py", "CO");
  write_text(triton + "/language/added.py", "");
  EXPECT_NE(triton_key(triton, testing::kSuffixes311, cache).value_or("planted"), "planted");
}

TEST(RememberedKey, IsComputedAgainWhenTheMemoryIsGarbage) {
  const TemporaryDirectory temporary;
  testing::write_tree(temporary / "triton", testing::triton_tree());
  write_text(temporary / "memory.json", "\x01garbage");
  const auto key = triton_key(temporary / "triton", testing::kSuffixes311, temporary / "memory.json");
  ASSERT_TRUE(key);
  EXPECT_EQ(codec::digest_of(*key).to_hex(), testing::kTritonTreeKeyDigest);
}

/// 63 made-up environments of one user emptied the memory of all.
TEST(KeyMemory, ForgetsNobodysForTheManyOfAnother) {
  const TemporaryDirectory temporary;
  const std::string cache = temporary / "memory.json";
  KeyMemory mine(cache, 1000);
  mine.keep("triton_key /mine", "m", "mine");
  ASSERT_TRUE(mine.save());
  for (int program = 0; program < 20; ++program) {
    KeyMemory theirs(cache, 2000);
    for (int i = 0; i < 30; ++i) theirs.keep("key " + std::to_string(program * 100 + i), "m", "made up");
    ASSERT_TRUE(theirs.save());
    ASSERT_EQ(KeyMemory(cache, 1000).find("triton_key /mine", "m").value_or("?"), "mine") << program;
  }
}

/// What is kept for a user was told by a process of his.
TEST(KeyMemory, HandsOnWhatItsUserFinds) {
  const TemporaryDirectory temporary;
  const std::string path = temporary / "cache";
  for (const uid_t user : {uid_t{0}, uid_t{7}, uid_t{8}}) {
    KeyMemory memory(path, user);
    memory.keep("of " + std::to_string(user), "m", "v");
    ASSERT_TRUE(memory.save());
  }
  const std::string text = KeyMemory(path, 7).text();
  EXPECT_EQ(text.find("of 8"), std::string::npos) << text;
  const KeyMemory handed = KeyMemory::handed(text, 7, false);
  EXPECT_EQ(handed.find("of 0", "m"), "v");
  EXPECT_EQ(handed.find("of 7", "m"), "v");
  EXPECT_FALSE(KeyMemory::handed("{", 7, false).find("of 7", "m"));
}

TEST(KeyMemory, TellsNobodyWhatItWasToldForAnotherUser) {
  const TemporaryDirectory temporary;
  const std::string cache = temporary / "memory.json";
  const auto keep = [&cache](uid_t user, const std::string& value) {
    KeyMemory memory(cache, user);
    memory.keep("torch_key /torch", "m", value);
    ASSERT_TRUE(memory.save());
  };
  const auto found_by = [&cache](uid_t user) {
    return KeyMemory(cache, user).find("torch_key /torch", "m").value_or("");
  };
  keep(1000, "a lie");
  EXPECT_EQ(found_by(1000), "a lie");
  EXPECT_EQ(found_by(1001), "");
  EXPECT_EQ(found_by(0), "");
  keep(0, "root's");
  EXPECT_EQ(found_by(0), "root's");
  EXPECT_EQ(found_by(1001), "root's");
  EXPECT_EQ(found_by(1000), "a lie") << "his own";
}

/// squashfs, erofs and iso9660 have no time of a change but that of the content, which mksquashfs -all-time and
/// SOURCE_DATE_EPOCH set: two images differ by their bytes alone.
TEST(KeyMemory, RemembersNothingOfAnImageForTheNextContainer) {
  // tmpfs: what others call temporary may be an overlay, which may be one over an image.
  std::string file = "/dev/shm/inductorfs-lib.so-XXXXXX";
  const Fd made(mkstemp(file.data()));
  ASSERT_TRUE(made);
  const std::shared_ptr<void> removed(nullptr, [&file](void*) { (void)::unlink(file.c_str()); });
  const auto is_known_again = [&file](KeyMemory memory) {
    memory.keep("fact", manifest_of(InRoot::host(), {file}, memory)->digest, "of one image");
    const auto next = manifest_of(InRoot::host(), {file}, memory);
    memory.keep("sha256 large", memory.identity_of_file(InRoot::host().status(file).value()),
                codec::digest_of("of one image").to_hex());
    const Fd open(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    const auto large = remembered_digest(open.get(), "large", memory);
    EXPECT_EQ(large.value() == codec::digest_of("of one image"), memory.find("fact", next->digest).has_value());
    return memory.find("fact", next->digest).has_value();
  };
  write_text(file, "");
  ASSERT_EQ(truncate(file.c_str(), off_t{17} << 20), 0);
  const auto status = InRoot::host().status(file).value();
  ASSERT_EQ(status.st_mtim.tv_nsec, status.st_ctim.tv_nsec) << "as in an image";
  EXPECT_FALSE(is_known_again(KeyMemory::of_containers("", 1000)));
  EXPECT_TRUE(is_known_again(KeyMemory(""))) << "the device and the inode tell it apart on one host";
  const timespec times[2] = {{1, 0}, {1, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
  EXPECT_TRUE(is_known_again(KeyMemory::of_containers("", 1000))) << "the time of its change is the kernel's";
}

/// Two containers of one image: equal files at other inodes of another device.
TEST(KeyMemory, KnowsAPackageOfAContainerInTheNextOne) {
  const TemporaryDirectory temporary;
  const std::string cache = temporary / "memory.json";
  KeyMemory memory = KeyMemory::of_containers(cache, 1000);
  struct stat here {};
  ASSERT_EQ(stat(temporary.path().c_str(), &here), 0);
  struct stat there = here;
  there.st_dev += 1;
  there.st_ino += 1;
  EXPECT_EQ(memory.identity_of_file(here), memory.identity_of_file(there));
  EXPECT_NE(KeyMemory("").identity_of_file(here), KeyMemory("").identity_of_file(there));
  there.st_ctim.tv_nsec ^= 1;
  EXPECT_NE(memory.identity_of_file(here), memory.identity_of_file(there)) << "a time that no user can set";

  memory.keep("torch_key /torch", "of one image", "one");
  memory.keep("torch_key /torch", "of another image", "another");
  ASSERT_TRUE(memory.save());
  const KeyMemory same = KeyMemory::of_containers(cache, 1000);
  EXPECT_EQ(same.find("torch_key /torch", "of one image").value_or(""), "one");
  EXPECT_EQ(same.find("torch_key /torch", "of another image").value_or(""), "another");
  EXPECT_FALSE(KeyMemory::of_containers(cache, 1001).find("torch_key /torch", "of one image"));
}

}  // namespace
}  // namespace inductorfs::fingerprint
