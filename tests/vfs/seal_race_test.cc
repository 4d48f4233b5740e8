// SPDX-License-Identifier: Apache-2.0
// A file that is sealed just while something else looks at it: the store may share its inode by then, and whoever does
// not know that writes into the store.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <functional>
#include <string_view>
#include <utility>

#include "inductorfs/codec/digest.h"
#include "vfs/host.h"

namespace {

/// Run once on this thread, before the next call.
thread_local std::function<void()> before_linkat;
thread_local std::function<void()> before_fgetxattr;

}  // namespace

// In place of the C library's, for every part of this program.
extern "C" int linkat(int from_directory, const char* from, int to_directory, const char* to, int flags) noexcept {
  if (const auto run = std::exchange(before_linkat, nullptr)) run();
  return static_cast<int>(::syscall(SYS_linkat, from_directory, from, to_directory, to, flags));
}

extern "C" ssize_t fgetxattr(int file, const char* name, void* value, size_t size) noexcept {
  if (const auto run = std::exchange(before_fgetxattr, nullptr)) run();
  return ::syscall(SYS_fgetxattr, file, name, value, size);
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
      return {};
    };
    return made;
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
  ASSERT_TRUE(a.file_system->link(node->node, vfs::kRootNode, "two", {::getuid(), ::getgid(), own_pid()}));
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
  a.file_system->forget(known->node, 1'000'000);
  before_fgetxattr = [&] {
    // The look has counted one name. The set is marked when all its files are in the store.
    const std::string last = layout::classify(directory + "/k.ttir").canonical;
    hold(last);
    EXPECT_TRUE(checks_next(last));
    EXPECT_TRUE(a.store->find(codec::digest_of(bytes)));
  };
  ASSERT_TRUE(a.look_up(path));
  ASSERT_FALSE(before_fgetxattr);

  ASSERT_TRUE(a.append(path, ", and more"));

  expect_blob(bytes);
  hold("");
  ASSERT_TRUE(a.sync());
  EXPECT_EQ(a.read(path).value_or("absent"), bytes + ", and more");
  expect_blob(bytes);
}

}  // namespace
}  // namespace inductorfs::testing
