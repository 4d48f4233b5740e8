// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

#include "vfs/host.h"

namespace inductorfs::testing {
namespace {

/// A number of the environment, for long runs under a sanitizer (CONTRIBUTING.md).
int64_t from_environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::stoll(text) : otherwise;
}

const int kThreads = static_cast<int>(from_environment("INDUCTORFS_STRESS_THREADS", 8));
constexpr std::chrono::seconds kPatience{120};
constexpr int kSeenAtLeast = 100;
const std::chrono::seconds kSpan(from_environment("INDUCTORFS_STRESS_SECONDS", 3));

/// The bytes of a shared file name their writer and say how long they are.
std::string whole_text(int writer, int count) {
  std::string text = "# " + std::to_string(writer) + " " + std::to_string(count) + "\n";
  text.append(static_cast<size_t>(100 + count % 5000), '#');
  return text + "\nend";
}
bool is_whole(const std::string& text) {
  return text.starts_with("# ") && text.ends_with("\nend") &&
         text == whole_text(std::stoi(text.substr(2)), std::stoi(text.substr(text.find(' ', 2))));
}

/// The kernel's lock of directories (i_rwsem): shared for a lookup, exclusive for whatever changes a name.
using NameLock = SharedGuarded<int>;

class Stress : public ::testing::Test {
 protected:
  /// At least for kSpan, and until it has been of use: a sanitizer on a busy machine needs longer.
  void run(const std::function<bool()>& of_use, const std::function<void(int thread, std::mt19937& random)>& step) {
    const auto end = std::chrono::steady_clock::now() + kSpan;
    const auto deadline = end + kPatience;
    const auto goes_on = [&] {
      const auto now = std::chrono::steady_clock::now();
      return now < end || (now < deadline && !of_use());
    };
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(static_cast<uint32_t>(t));
        while (goes_on() && !HasFailure()) step(t, random);
      });
    }
    for (auto& thread : threads) thread.join();
  }

  std::shared_ptr<remote::MemoryCluster> cluster = remote::make_memory_cluster();
};

TEST_F(Stress, ShowsWholeFilesOrNoneWhileAllIsWrittenReadAndEvicted) {
  HostOptions options;
  options.store_limit = 200'000;  // small: eviction runs all the time
  options.prefetch_bytes = 50'000;
  Host a(cluster, options);
  Host b(cluster, options);
  std::atomic<int> count{0};
  std::atomic<int> seen{0};
  NameLock locks[2];
  const auto enough = [&] { return seen.load() > kSeenAtLeast; };
  run(enough, [&](int thread, std::mt19937& random) {
    const bool first = random() % 2 == 0;
    Host& host = first ? a : b;
    NameLock& names = locks[first ? 0 : 1];
    const int n = static_cast<int>(random() % 12);
    const std::string path = in_code_directory(code_name(std::to_string(n)) + ".py");
    const std::string own = "own" + std::to_string(thread);
    switch (random() % 8) {
      case 0:
      case 1: {
        // As torch: a temporary name of the thread's own, then rename.
        const std::string temporary = path.substr(0, 3) + "." + std::to_string(thread) + ".1.tmp";
        names.write([&](int&) {
          (void)host.make_directories(path.substr(0, 2));
          if (host.create(temporary, whole_text(thread, ++count))) (void)host.rename(temporary, path);
        });
        break;
      }
      case 2:
        names.write([&](int&) { (void)host.unlink(path); });
        break;
      case 3: {
        const auto found = names.read([&](const int&) { return host.look_up(path); });
        if (found) host.names().forget(found->node, 1);
        break;
      }
      case 4: {
        // A thread's own private tree is a local file system to it, whatever the others do.
        // Its directory is nobody else's, so no lock but the root's for the first name.
        locks[0].write([&](int&) { EXPECT_TRUE(a.make_directories(own)); });
        EXPECT_TRUE(a.make_directories(own + "/d"));
        EXPECT_TRUE(a.publish_file(own + "/d/f", "mine"));
        EXPECT_EQ(a.read(own + "/d/f").value_or("absent"), "mine");
        EXPECT_TRUE(a.rename(own + "/d", own + "/e"));
        EXPECT_EQ(a.read(own + "/e/f").value_or("absent"), "mine");
        EXPECT_TRUE(a.unlink(own + "/e/f"));
        EXPECT_TRUE(a.remove_directory(own + "/e"));
        break;
      }
      case 5:
        (void)host.list(path.substr(0, 2));
        (void)host.inspection().explain(path);
        (void)host.inspection().status();
        break;
      default: {
        const auto found = names.read([&](const int&) { return host.look_up(path); });
        if (!found) break;
        // The kernel knows the inode now: the read cannot fail, and its bytes are those of one writer.
        std::string text(found->attributes.size, '\0');
        const auto got = host.data().read(found->node, text.data(), text.size(), 0);
        ASSERT_TRUE(got.has_value()) << got.error().to_string();
        ASSERT_EQ(*got, text.size());
        EXPECT_TRUE(is_whole(text)) << text.substr(0, 30);
        ++seen;
      }
    }
  });
  EXPECT_GT(seen.load(), kSeenAtLeast);
  for (Host* host : {&a, &b}) {
    // The kernel of this test lets nothing go, so what it knows may fill the store.
    const auto synced = host->sync();
    EXPECT_TRUE(synced || synced.error().code() == ErrorCode::kNoSpace) << synced.error().to_string();
  }
  Host reader(cluster);
  for (int n = 0; n < 12; ++n) {
    const auto text = reader.read(in_code_directory(code_name(std::to_string(n)) + ".py"));
    EXPECT_TRUE(!text || is_whole(*text)) << text->substr(0, 30);
  }
}

TEST_F(Stress, NeverMixesTritonSets) {
  Host a(cluster);
  Host b(cluster);
  std::atomic<int> writers{0};
  std::atomic<int> hits{0};
  const auto enough = [&] { return hits.load() > 0; };
  run(enough, [&](int thread, std::mt19937& random) {
    Host& host = thread % 2 == 0 ? a : b;
    const std::string directory = "triton/0/" + triton_key_of(std::to_string(writers.load() / 4));
    if (random() % 3 == 0) {
      // One process compiles at a time on this host, in threads of one process here: sets belong to processes.
      static Guarded<int> compiling[2];
      const std::string name = "w" + std::to_string(++writers);
      compiling[thread % 2].with([&](int&) { (void)host.triton_compile(directory, name, own_pid()); });
      return;
    }
    // A reader that is another process than the writers.
    const pid_t reader = 1;
    const auto group = host.read(directory + "/__grp__k.json", reader);
    if (!group) return;
    const auto json = host.read(directory + "/k.json", reader);
    const auto ttir = host.read(directory + "/k.ttir", reader);
    const auto source = host.read(directory + "/k.source", reader);
    ASSERT_TRUE(json && ttir && source) << "a child of a group that is shown is missing";
    const std::string writer = ttir->substr(0, ttir->find(' '));
    EXPECT_EQ(*json, "{\"writer\": \"" + writer + "\"}");
    EXPECT_EQ(source->substr(0, source->find(' ')), writer);
    ++hits;
  });
  EXPECT_GT(hits.load(), 0);
}

}  // namespace
}  // namespace inductorfs::testing
