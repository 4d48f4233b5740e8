// SPDX-License-Identifier: Apache-2.0
// A file that is sealed just while something else looks at it: the store may share its inode by then, and whoever does
// not know that writes into the store.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <functional>
#include <future>
#include <string_view>
#include <utility>

#include "inductorfs/codec/digest.h"
#include "vfs/host.h"

namespace {

/// Run once on this thread, before the next call.
thread_local std::function<void()> before_linkat;
/// After a file of this name was looked at.
thread_local std::pair<std::string, std::function<void()>> after_look;
/// Run once, on whichever thread, before a file of this name is removed.
inductorfs::Guarded<std::pair<std::string, std::function<void()>>> before_unlinkat;

}  // namespace

// In place of the C library's, for every part of this program.
extern "C" int linkat(int from_directory, const char* from, int to_directory, const char* to, int flags) noexcept {
  if (const auto run = std::exchange(before_linkat, nullptr)) run();
  return static_cast<int>(::syscall(SYS_linkat, from_directory, from, to_directory, to, flags));
}

/// Whose the file is, is asked after its names were counted (status_of()).
extern "C" ssize_t getxattr(const char* path, const char* name, void* value, size_t size) noexcept {
  std::array<char, PATH_MAX> place{};
  const bool waits = after_look.second && ::readlink(path, place.data(), place.size() - 1) > 0;
  if (waits && std::string_view(place.data()).ends_with(after_look.first)) std::exchange(after_look.second, nullptr)();
  return static_cast<ssize_t>(::syscall(SYS_getxattr, path, name, value, size));
}

extern "C" int unlinkat(int directory, const char* name, int flags) noexcept {
  const auto run = before_unlinkat.with([&](auto& waiting) -> std::function<void()> {
    if (!waiting.second || !std::string_view(name).ends_with(waiting.first)) return nullptr;
    return std::exchange(waiting.second, nullptr);
  });
  if (run) run();
  return static_cast<int>(::syscall(SYS_unlinkat, directory, name, flags));
}

namespace inductorfs::testing {
namespace {

/// Ample for a seal to begin. In a test that passes it does not, so that all of it is waited for.
constexpr std::chrono::milliseconds kSealBegins{500};
constexpr std::chrono::seconds kPatience{20};

/// The `seal` thread checks what it is about to seal: there a test sees it, and stops it.
class SealRace : public ::testing::Test {
 protected:
  HostOptions options() {
    HostOptions made;
    made.check = [this](const layout::Classification& classified, std::string_view, uint64_t) -> Result<void> {
      checks.notify_with([&](Checks& now) { now.last = classified.canonical; });
      const auto goes_on = [&](const Checks& now) { return now.held != classified.canonical; };
      checks.wait_until(std::chrono::steady_clock::now() + kPatience, goes_on, [](const Checks&) {});
      const bool refused = checks.with([&](const Checks& now) { return now.refused == classified.canonical; });
      return refused ? Result<void>(fail(ErrorCode::kCorrupt, "not what its name says")) : Result<void>{};
    };
    return made;
  }
  void refuse(const std::string& canonical) {
    checks.with([&](Checks& now) { now.refused = canonical; });
  }
  /// It stops where it checks this path, and goes on where it has stopped before.
  void hold(const std::string& canonical) {
    checks.notify_with([&](Checks& now) { now.held = canonical; });
  }
  bool checks_next(const std::string& canonical, std::chrono::milliseconds most = kPatience) {
    const auto is = [&](const Checks& now) { return now.last == canonical; };
    return checks.wait_until(std::chrono::steady_clock::now() + most, is, is);
  }
  /// What is sealed next waits until something else is held.
  void stop_seals() {
    const std::string path = in_code_directory(code_name("earlier") + ".py");
    hold(path);
    ASSERT_TRUE(a.publish_file(path, "earlier"));
    ASSERT_TRUE(checks_next(path));
  }
  void expect_blob(const std::string& bytes) {
    const auto blob = a.store->open_blob(codec::digest_of(bytes));
    ASSERT_TRUE(blob);
    EXPECT_EQ(blob->digest().value_or(codec::Digest{}), codec::digest_of(bytes));
  }

  struct Checks {
    std::string held;
    std::string last;
    std::string refused;
  };
  Guarded<Checks> checks;
  Host a{remote::make_memory_cluster(), options()};
};

TEST_F(SealRace, NeverGivesTheStoreAFileThatGetsASecondName) {
  const std::string path = in_code_directory(code_name("linked") + ".py");
  stop_seals();
  ASSERT_TRUE(a.publish_file(path, "print(1)"));
  const auto node = a.look_up(path);
  ASSERT_TRUE(node);
  before_linkat = [&] {
    hold("");
    EXPECT_FALSE(checks_next(path, kSealBegins)) << "sealed as a file of one name, which is about to have two";
  };
  ASSERT_TRUE(a.names().link(node->node, vfs::kRootNode, "two", {::getuid(), ::getgid(), own_pid()}));
  ASSERT_FALSE(before_linkat);
  ASSERT_TRUE(a.sync());
  EXPECT_EQ(a.count("seal.sealed"), 2U);

  ASSERT_TRUE(a.truncate(path, 5));

  EXPECT_EQ(a.look_up("two")->attributes.size, 5U);
  EXPECT_EQ(a.read("two").value_or("absent"), "print");
  ASSERT_TRUE(a.unlink(path));  // the other name is where the file is, from here on
  EXPECT_EQ(a.look_up("two")->attributes.size, 5U);
  for (size_t i = 0; i <= vfs::FileSystemOptions{}.descriptor_limit; ++i) {
    ASSERT_TRUE(a.create("other" + std::to_string(i), "x"));  // of the file no descriptor is kept
  }
  ASSERT_TRUE(a.append("two", "!"));
  expect_blob("print(1)");
  a.restart();
  EXPECT_EQ(a.read("two").value_or("absent"), "print!");
}

TEST_F(SealRace, AFirstLookKnowsOfASealThatCameInBetween) {
  const std::string directory = "triton/0/" + triton_key_of("raced");
  const std::string path = directory + "/k.source";
  const std::string bytes = "w wrote k.source";
  stop_seals();
  ASSERT_TRUE(a.triton_compile(directory, "w", 4711));
  const auto known = a.look_up(path);
  ASSERT_TRUE(known);
  ASSERT_EQ(a.read(path).value_or("absent"), bytes);
  a.names().forget(known->node, 1'000'000);
  after_look.first = "k.source";
  after_look.second = [&] {
    // The look has counted one name. The set is marked when all its files are in the store.
    const std::string last = layout::classify(directory + "/k.ttir").canonical;
    hold(last);
    EXPECT_TRUE(checks_next(last));
    EXPECT_TRUE(a.store->find(codec::digest_of(bytes)));
  };
  ASSERT_TRUE(a.look_up(path));
  ASSERT_FALSE(after_look.second);

  ASSERT_TRUE(a.append(path, ", and more"));

  expect_blob(bytes);
  hold("");
  ASSERT_TRUE(a.sync());
  EXPECT_EQ(a.read(path).value_or("absent"), bytes + ", and more");
  expect_blob(bytes);
}

/// A file of the view whose inode the store has, under whatever names and by whatever way.
class SharedInode : public SealRace {
 protected:
  std::string publish() {
    std::string path = in_code_directory(code_name("shared") + ".py");
    EXPECT_TRUE(a.publish_file(path, bytes));
    EXPECT_TRUE(a.sync());
    EXPECT_EQ(inode_of_blob(), inode_of("local/view/" + path));
    return path;
  }
  [[nodiscard]] uint64_t inode_of(const std::string& path) const {
    struct stat status {};
    return ::stat((a.directory / path).c_str(), &status) == 0 ? status.st_ino : 0;
  }
  [[nodiscard]] uint64_t inode_of_blob() const {
    const auto blob = a.store->open_blob(codec::digest_of(bytes));
    struct stat status {};
    return blob && ::fstat(blob->file(), &status) == 0 ? status.st_ino : 0;
  }
  void expect_untouched() {
    expect_blob(bytes);
    EXPECT_EQ(a.count("store.corrupt"), 0U) << "changed, and found out later";
  }
  const std::string bytes = "what other names have, too";
};

TEST_F(SharedInode, IsNotWrittenToUnderANameForWhichTheFileIsRefused) {
  const std::string path = publish();
  const std::string other = in_code_directory(code_name("other") + ".py");
  refuse(other);
  ASSERT_TRUE(a.make_directories(other.substr(0, 2)));
  ASSERT_TRUE(a.rename(path, other));
  ASSERT_TRUE(a.sync());

  ASSERT_TRUE(a.append(other, "!"));

  EXPECT_EQ(a.read(other).value_or("absent"), bytes + "!");
  expect_untouched();
}

TEST_F(SharedInode, IsNotWrittenToUnderAPrivateName) {
  const std::string path = publish();
  ASSERT_TRUE(a.rename(path, "mine"));

  ASSERT_TRUE(a.truncate("mine", 4));

  EXPECT_EQ(a.read("mine").value_or("absent"), "what");
  expect_untouched();
}

TEST_F(SharedInode, IsNotWrittenToInAPendingSet) {
  const std::string path = publish();
  const std::string directory = "triton/0/" + triton_key_of("pending");
  const std::string temporary = directory + "/tmp.pid_4711_01234567-89ab-cdef-0123-456789abcdef";
  ASSERT_TRUE(a.make_directories(temporary));
  ASSERT_TRUE(a.rename(path, temporary + "/k.source", own_pid()));
  ASSERT_TRUE(a.rename(temporary + "/k.source", directory + "/k.source", own_pid()));
  const auto known = a.look_up(directory + "/k.source", own_pid());
  ASSERT_TRUE(known);
  a.names().forget(known->node, 1'000'000);
  const auto again = a.look_up(directory + "/k.source", own_pid());
  ASSERT_TRUE(again);

  ASSERT_TRUE(a.data().write(again->node, "!", 0, {::getuid(), ::getgid(), own_pid()}));

  expect_untouched();
}

TEST_F(SharedInode, IsNotWrittenToByTheNextWorker) {
  const std::string path = publish();
  ASSERT_TRUE(a.rename(path, "mine"));
  ASSERT_TRUE(a.look_up("mine"));
  a.take_over();

  ASSERT_TRUE(a.append("mine", "!"));

  EXPECT_EQ(a.read("mine").value_or("absent"), bytes + "!");
  expect_untouched();
}

TEST_F(SharedInode, StaysReadableForOthersWhenItsFileIsHidden) {
  const std::string path = publish();
  vfs::AttributeChange change;
  change.mode = 0;
  const auto done = a.attributes().set_attributes(a.look_up(path)->node, change, {::getuid(), ::getgid(), own_pid()});
  ASSERT_TRUE(done);
  EXPECT_EQ(done->mode & 07777, 0U);
  struct stat blob {};
  ASSERT_EQ(::fstat(a.store->open_blob(codec::digest_of(bytes))->file(), &blob), 0);
  EXPECT_NE(blob.st_mode & S_IRUSR, 0U);
  expect_untouched();
}

TEST_F(SharedInode, IsNotTakenOfAFileThatWasRefused) {
  const std::string path = in_code_directory(code_name("refused") + ".py");
  refuse(path);
  ASSERT_TRUE(a.publish_file(path, bytes));
  ASSERT_TRUE(a.sync());
  const uint64_t inode = inode_of("local/view/" + path);

  ASSERT_TRUE(a.append(path, "!"));

  EXPECT_EQ(inode_of("local/view/" + path), inode) << "it is this file's alone, and need not be copied";
  EXPECT_EQ(a.count("view.unsealed"), 0U);
}

class EvictionRace : public ::testing::Test {
 protected:
  static HostOptions small() {
    HostOptions options;
    options.store_limit = 1'000'000;
    return options;
  }
  void forget(const std::string& path) { a.names().forget(a.look_up(path)->node, 1'000'000); }
  /// Publishes until nothing of what was there before can still be in the store.
  void fill() {
    for (int i = 0; i < 12; ++i) {
      const std::string path = in_code_directory(code_name("fill" + std::to_string(i)) + ".py");
      ASSERT_TRUE(a.publish_file(path, std::string(200'000, static_cast<char>('a' + i))));
      ASSERT_TRUE(a.sync());
      forget(path);
    }
  }
  /// Looks a file up while it is evicted; what the lookup finds can be read.
  void evict_while_it_is_looked_up(const std::string& path, const std::string& bytes) {
    std::future<Result<vfs::Found>> found;
    before_unlinkat.with([&](auto& waiting) {
      waiting.first = path.substr(path.rfind('/') + 1);
      waiting.second = [&] {
        found = std::async(std::launch::async, [&] { return a.look_up(path); });
        (void)found.wait_for(kSealBegins);  // it waits for the eviction, or comes before it
      };
    });
    fill();
    ASSERT_TRUE(found.valid()) << "it was never evicted";
    const auto got = found.get();
    if (!got) return;
    std::string out(bytes.size(), '\0');
    const auto read = a.data().read(got->node, out.data(), out.size(), 0);
    EXPECT_EQ(read ? out.substr(0, *read) : read.error().to_string(), bytes);
  }
  Host a{remote::make_memory_cluster(), small()};
};

TEST_F(EvictionRace, NeverTakesAFileFromALookup) {
  const std::string path = in_code_directory(code_name("raced") + ".py");
  ASSERT_TRUE(a.publish_file(path, "print(1)"));
  ASSERT_TRUE(a.sync());
  forget(path);
  evict_while_it_is_looked_up(path, "print(1)");
}

TEST_F(EvictionRace, NeverTakesASetFromALookup) {
  const std::string directory = "triton/0/" + triton_key_of("raced");
  ASSERT_TRUE(a.triton_compile(directory, "w", own_pid()));
  ASSERT_TRUE(a.sync());
  const auto names = a.list(directory);
  ASSERT_TRUE(names);
  for (const auto& name : *names) forget(directory + "/" + name);
  evict_while_it_is_looked_up(directory + "/k.source", "w wrote k.source");
}

}  // namespace
}  // namespace inductorfs::testing
