// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <ostream>
#include <utility>
#include <vector>

#include "inductorfs/store/store_check.h"
#include "store_fixture.h"
#include "support/directory_image.h"

namespace inductorfs::store {
namespace {

using codec::digest_of;
namespace fs = std::filesystem;

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::string bytes_of(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// But for who has had the lock.
std::map<std::string, std::string> image_of(const std::string& store) {
  auto image = inductorfs::testing::image_of(store);
  image.erase("lock");
  return image;
}

/// A closed store with three blobs.
class StoreCheck : public StoreTest {
 protected:
  void SetUp() override {
    open();
    for (const std::string& bytes : blobs_) ASSERT_TRUE(store_->put(bytes));
    store_.reset();
  }
  CheckedStore checked(bool repair, Findings& findings) {
    auto store = check(directory(), repair, findings);
    if (!store) throw std::runtime_error(store.error().to_string());
    return std::move(*store);
  }
  /// The only finding.
  Finding only_finding(bool repair) {
    Findings findings;
    (void)checked(repair, findings);  // the blobs are for who asks for them
    if (findings.all().size() != 1) throw std::runtime_error(std::to_string(findings.all().size()) + " findings");
    return findings.all().front();
  }
  [[nodiscard]] std::string blob(size_t index) const { return file_of(digest_of(blobs_[index])); }
  [[nodiscard]] std::string relative(size_t index) const { return blob_path(digest_of(blobs_[index])); }

  const std::vector<std::string> blobs_{"hello", "", std::string(300'000, 'x')};
};

TEST_F(StoreCheck, LeavesASoundStoreAsItIs) {
  const auto before = image_of(directory());
  for (const bool repair : {false, true}) {
    Findings findings;
    const CheckedStore store = checked(repair, findings);
    EXPECT_TRUE(findings.all().empty());
    EXPECT_TRUE(findings.sound());
    EXPECT_EQ(store.bytes, 300'005U);
    EXPECT_EQ(store.blobs.size(), blobs_.size());
    for (size_t i = 0; i < blobs_.size(); ++i) {
      struct stat info {};
      ASSERT_EQ(::stat(blob(i).c_str(), &info), 0);
      EXPECT_TRUE(store.has(digest_of(blobs_[i])));
      EXPECT_EQ(store.blobs.at(digest_of(blobs_[i])), blobs_[i].size());
      EXPECT_EQ(store.inodes.at(info.st_ino), digest_of(blobs_[i]));
    }
    EXPECT_FALSE(store.has(digest_of("absent")));
  }
  EXPECT_EQ(image_of(directory()), before);
}

// ---- each kind of damage

struct Damage {
  const char* name;
  /// Does it; answers the path that the finding is to have.
  std::function<std::string(const std::string& store, const std::string& blob)> make;
  std::string what;  ///< in the finding's text
  bool harmless;
  std::string repair;  ///< "FILE" stands for the name of what was found
  size_t lost = 0;     ///< blobs that are none any more
};
void PrintTo(const Damage& damage, std::ostream* stream) { *stream << damage.name; }

std::vector<Damage> damages() {
  const std::string zeros(64, '0');
  return {
      {"AFlippedBit",
       [](const std::string& store, const std::string& blob) {
         std::string bytes = bytes_of(store + "/" + blob);
         bytes.back() = static_cast<char>(bytes.back() ^ 1);
         write(store + "/" + blob, bytes);
         return blob;
       },
       "its bytes have the digest ", false, "removed", 1},
      {"ACutBlob",
       [](const std::string& store, const std::string& blob) {
         fs::resize_file(store + "/" + blob, 1);
         return blob;
       },
       "its bytes have the digest " + digest_of("h").to_hex(), false, "removed", 1},
      {"AGrownBlob",
       [](const std::string& store, const std::string& blob) {
         write(store + "/" + blob, "hello and more");
         return blob;
       },
       "its bytes have the digest ", false, "removed", 1},
      {"ABlobUnderAnothersDigest",
       [zeros](const std::string& store, const std::string& blob) {
         fs::create_directories(store + "/blobs/00");
         fs::rename(store + "/" + blob, store + "/blobs/00/" + zeros);
         return "blobs/00/" + zeros;
       },
       "its bytes have the digest " + digest_of("hello").to_hex(), false, "removed", 1},
      {"ABlobInAnotherFolder",
       [](const std::string& store, const std::string& blob) {
         const std::string place = "blobs/00/" + fs::path(blob).filename().string();
         fs::create_directories(store + "/blobs/00");
         fs::rename(store + "/" + blob, store + "/" + place);
         return place;
       },
       "its name is not a blob's in this folder", false, "moved to set-aside/FILE", 1},
      {"ANameOfCapitals",
       [](const std::string& store, const std::string& blob) {
         const std::string place = fs::path(blob).parent_path().string() + "/" + std::string(64, 'A');
         write(store + "/" + place, "mine");
         return place;
       },
       "its name is not a blob's in this folder", false, "moved to set-aside/FILE"},
      {"AFileAmongBlobs",
       [](const std::string& store, const std::string& blob) {
         const std::string place = fs::path(blob).parent_path().string() + "/notes.txt";
         write(store + "/" + place, "mine");
         return place;
       },
       "its name is not a blob's in this folder", false, "moved to set-aside/FILE"},
      {"ADirectoryInABlobsPlace",
       [](const std::string& store, const std::string& blob) {
         fs::remove(store + "/" + blob);
         fs::create_directories(store + "/" + blob + "/below");
         return blob;
       },
       "not a regular file", false, "moved to set-aside/FILE", 1},
      {"ALinkInABlobsPlace",
       [](const std::string& store, const std::string& blob) {
         fs::rename(store + "/" + blob, store + "/elsewhere");
         fs::create_symlink(store + "/elsewhere", store + "/" + blob);
         return blob;
       },
       "", false, "moved to set-aside/FILE", 1},
      {"AFifoInABlobsPlace",
       [](const std::string& store, const std::string& blob) {
         fs::remove(store + "/" + blob);
         EXPECT_EQ(::mkfifo((store + "/" + blob).c_str(), 0600), 0);
         return blob;
       },
       "not a regular file", false, "moved to set-aside/FILE", 1},
      {"AFolderOfNoBlobs",
       [](const std::string& store, const std::string&) {
         fs::create_directories(store + "/blobs/other/below");
         return std::string("blobs/other");
       },
       "not a folder of blobs", false, "moved to set-aside/FILE"},
      {"AFileInAFoldersPlace",
       [](const std::string& store, const std::string&) {
         write(store + "/blobs/zz", "mine");
         return std::string("blobs/zz");
       },
       "not a folder of blobs", false, "moved to set-aside/FILE"},
      {"AWritersLeftover",
       [](const std::string& store, const std::string&) {
         write(store + "/tmp/17", "half a blob");
         return std::string("tmp/17");
       },
       "a file of a writer that was killed", true, "removed"},
      {"AReplacementsLeftover",
       [](const std::string& store, const std::string&) {
         write(store + "/state.123.tmp", "half a state");
         return std::string("state.123.tmp");
       },
       "a file that was being replaced", true, "removed"},
  };
}

class StoreCheckDamage : public StoreCheck, public ::testing::WithParamInterface<Damage> {};

TEST_P(StoreCheckDamage, IsFoundAndRepairedAndNothingElseIsTouched) {
  const Damage& damage = GetParam();
  const std::string path = damage.make(directory(), relative(0));
  const std::string name = fs::path(path).filename();
  const auto damaged = image_of(directory());

  Findings findings;
  EXPECT_EQ(checked(false, findings).blobs.size(), blobs_.size() - damage.lost);
  ASSERT_EQ(findings.all().size(), 1U);
  const Finding& found = findings.all().front();
  EXPECT_EQ(found.path, path);
  EXPECT_NE(found.what.find(damage.what), std::string::npos) << found.what;
  EXPECT_FALSE(found.what.empty());
  EXPECT_EQ(found.harmless, damage.harmless);
  EXPECT_EQ(found.repair, "");
  EXPECT_EQ(findings.sound(), damage.harmless);
  EXPECT_EQ(image_of(directory()), damaged) << "a look changes nothing";

  const Finding repaired = only_finding(true);
  std::string repair = damage.repair;
  const size_t at = repair.find("FILE");
  if (at != std::string::npos) repair.replace(at, 4, name);
  EXPECT_EQ(repaired.path, path);
  EXPECT_EQ(repaired.repair, repair);
  // All that was there but the finding still is, and what was moved is there whole.
  auto expected = damaged;
  for (auto& [place, content] : damaged) {
    if (place != path && !place.starts_with(path + "/")) continue;
    if (at != std::string::npos) expected["set-aside/" + name + place.substr(path.size())] = content;
    expected.erase(place);
  }
  auto after = image_of(directory());
  after.erase("set-aside");
  EXPECT_EQ(after, expected);

  Findings none;
  EXPECT_EQ(checked(true, none).blobs.size(), blobs_.size() - damage.lost);
  EXPECT_TRUE(none.all().empty()) << none.all().front().path;
  open();
  EXPECT_EQ(store_->usage().blobs, blobs_.size() - damage.lost);
}

INSTANTIATE_TEST_SUITE_P(Kinds, StoreCheckDamage, ::testing::ValuesIn(damages()),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_F(StoreCheck, SetsAsideBesideWhatLiesThereAlready) {
  for (const std::string folder : {"one", "two", "three"}) {
    fs::create_directories(directory() + "/blobs/" + folder);
    write(directory() + "/blobs/" + folder + "/notes.txt", folder);
    write(fs::path(blob(0)).parent_path() / "notes.txt", "of " + folder);
    Findings findings;
    (void)checked(true, findings);  // the blobs are sound
    EXPECT_EQ(findings.harmful(), 2U);
    EXPECT_TRUE(findings.sound());
  }
  std::vector<std::string> notes;
  for (const auto& item : fs::directory_iterator(directory() + "/set-aside")) {
    if (item.is_regular_file()) notes.push_back(bytes_of(item.path()));
  }
  std::ranges::sort(notes);
  EXPECT_EQ(notes, (std::vector<std::string>{"of one", "of three", "of two"})) << "nothing of anybody's is lost";
}

TEST_F(StoreCheck, SaysWhatCouldNotBeRepaired) {
  fs::create_directories(directory() + "/tmp/folder");
  const Finding finding = only_finding(true);
  EXPECT_EQ(finding.path, "tmp/folder");
  EXPECT_EQ(finding.repair, "") << "a directory is no file of a writer: it stays";
  EXPECT_TRUE(fs::is_directory(directory() + "/tmp/folder"));
}

TEST_F(StoreCheck, FindsEveryDamageOfOneStore) {
  write(blob(0), "hallo");
  write(blob(2), "short");
  write(directory() + "/tmp/1", "");
  Findings findings;
  EXPECT_EQ(checked(true, findings).blobs.size(), 1U);
  EXPECT_EQ(findings.harmful(), 2U);
  EXPECT_EQ(findings.harmless(), 1U);
  EXPECT_EQ(findings.repaired(), 2U);
  EXPECT_TRUE(findings.sound());
}

TEST_F(StoreCheck, NobodyOpensAStoreThatIsBeingChecked) {
  Findings findings;
  const CheckedStore store = checked(false, findings);
  EXPECT_EQ(try_open(directory()).error().code(), ErrorCode::kBusy);
  EXPECT_EQ(check(directory(), false, findings).error().code(), ErrorCode::kBusy);
}

TEST_F(StoreCheck, RefusesWhatIsOpenNoStoreOrNewer) {
  Findings findings;
  open();
  const auto busy = check(directory(), true, findings);
  EXPECT_EQ(busy.error().code(), ErrorCode::kBusy);
  EXPECT_NE(busy.error().what().find(std::to_string(::getpid())), std::string::npos) << busy.error().what();
  store_.reset();
  EXPECT_EQ(check(root_ / "absent", true, findings).error().code(), ErrorCode::kInvalid);
  fs::create_directories(root_ / "empty");
  EXPECT_EQ(check(root_ / "empty", true, findings).error().code(), ErrorCode::kInvalid);
  EXPECT_TRUE(fs::is_empty(root_ / "empty"));
  write(directory() + "/format", "inductorfs-store 2\n");
  write(blob(0), "damaged");
  const auto before = image_of(directory());
  EXPECT_EQ(check(directory(), true, findings).error().code(), ErrorCode::kNotSupported);
  EXPECT_EQ(image_of(directory()), before);
  EXPECT_TRUE(findings.all().empty());
}

TEST(Findings, CountAlsoWhatTheyDoNotKeep) {
  Findings findings;
  for (size_t i = 0; i < Findings::kLimit + 5; ++i) findings.add({"blob", "bad", false, i == 0 ? "removed" : ""});
  findings.add({"left", "over", true, "removed"});
  EXPECT_EQ(findings.harmful(), Findings::kLimit + 5);
  EXPECT_EQ(findings.harmless(), 1U);
  EXPECT_EQ(findings.repaired(), 1U) << "of the harmful ones";
  EXPECT_EQ(findings.all().size(), Findings::kLimit + 1);
  EXPECT_EQ(findings.all().back().path, "left") << "each kind has its own limit";
  EXPECT_FALSE(findings.sound());
}

}  // namespace
}  // namespace inductorfs::store
