// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>

#include "inductorfs/base/handle.h"
#include "vfs/faulty_remote.h"
#include "vfs/host.h"

namespace inductorfs::testing {
namespace {

/// What the disk gives back is not always what was written to it.
class Damage : public ::testing::Test {
 protected:
  static std::string code_path(const std::string& seed) { return in_code_directory(code_name(seed) + ".py"); }
  static std::string on_disk(const Host& host, const std::string& path) {
    return host.directory / "local/view/" + path;
  }
  /// Changes the first byte behind everybody's back: size and times stay.
  static void flip(const std::string& file) {
    struct stat before {};
    ASSERT_EQ(::stat(file.c_str(), &before), 0);
    const Fd fd(::open(file.c_str(), O_RDWR | O_CLOEXEC));
    char byte = 0;
    ASSERT_EQ(::pread(fd.get(), &byte, 1, 0), 1);
    byte = static_cast<char>(byte ^ 1);
    ASSERT_EQ(::pwrite(fd.get(), &byte, 1, 0), 1);
    const struct timespec times[2] = {before.st_atim, before.st_mtim};
    ASSERT_EQ(::futimens(fd.get(), times), 0);
  }
  HostOptions behind_a_fault() {
    HostOptions options;
    options.wrap_remote = [this](auto inner) { return with_faults(std::move(inner), fault); };
    return options;
  }
  static void remove_catalog(const Host& host) {
    for (const char* suffix : {"", "-wal", "-shm"}) {
      std::filesystem::remove(host.directory / "catalog.sqlite" + suffix);
    }
  }
  /// Has the publisher find the damage of what is queued.
  void publish(Host& host) {
    fault->refuse_publishes(false);
    ASSERT_TRUE(host.sync());
  }

  std::shared_ptr<remote::MemoryCluster> cluster = remote::make_memory_cluster();
  const std::shared_ptr<Fault> fault = std::make_shared<Fault>();
  const std::string path = code_path("code");
};

TEST_F(Damage, AFileThatThePublisherFoundDamagedIsNotShownAnyMore) {
  Host a(cluster, behind_a_fault());
  fault->refuse_publishes(true);
  const std::string good = code_path("good");
  ASSERT_TRUE(a.publish_file(path, "print()"));
  ASSERT_TRUE(a.publish_file(good, "print(1)"));
  ASSERT_TRUE(eventually([&] { return a.count("seal.sealed") == 2; }));
  flip(on_disk(a, path));

  publish(a);

  EXPECT_FALSE(a.exists(path));
  EXPECT_TRUE(eventually([&] { return a.kernel.told_name(path.substr(path.rfind('/') + 1)); }));
  EXPECT_EQ(a.read(good).value_or("absent"), "print(1)");
  EXPECT_EQ(a.count("view.damaged"), 1U);
  EXPECT_EQ(a.count("publish.refused"), 0U) << "nobody has refused it";
  EXPECT_EQ(a.store->usage().damaged, 1U);
  a.restart();
  EXPECT_FALSE(a.exists(path));
  EXPECT_EQ(a.store->usage().damaged, 1U) << "still known";
  ASSERT_TRUE(a.publish_file(path, "print()")) << "compiled again";
  ASSERT_TRUE(a.sync());
  EXPECT_EQ(a.inspection().explain(path).publish, "published");
}

TEST_F(Damage, AProcessThatHasTheFileOpenKeepsIt) {
  Host a(cluster, behind_a_fault());
  fault->refuse_publishes(true);
  ASSERT_TRUE(a.publish_file(path, "print()"));
  ASSERT_TRUE(eventually([&] { return a.count("seal.sealed") == 1; }));
  const auto open = a.look_up(path);
  ASSERT_TRUE(open);
  flip(on_disk(a, path));

  publish(a);

  ASSERT_FALSE(a.exists(path));
  std::string bytes(7, '\0');
  EXPECT_EQ(a.data().read(open->node, bytes.data(), bytes.size(), 0).value_or(0), 7U);
}

TEST_F(Damage, AllNamesOfTheInodeGo) {
  Host a(cluster, behind_a_fault());
  fault->refuse_publishes(true);
  ASSERT_TRUE(a.publish_file(path, "print()"));
  ASSERT_TRUE(eventually([&] { return a.count("seal.sealed") == 1; }));
  ASSERT_EQ(::link(on_disk(a, path).c_str(), on_disk(a, "my own copy").c_str()), 0);
  ASSERT_TRUE(a.exists("my own copy"));
  flip(on_disk(a, path));

  publish(a);

  EXPECT_FALSE(a.exists(path));
  EXPECT_FALSE(a.exists("my own copy"));
}

TEST_F(Damage, WhatTheClusterHasComesFromThereAgain) {
  Host a(cluster);
  ASSERT_TRUE(a.publish_file(path, "print()"));
  ASSERT_TRUE(a.sync());
  ASSERT_TRUE(a.wait_for_entry(path));
  flip(on_disk(a, path));

  a.store->discard(codec::digest_of("print()"));

  EXPECT_TRUE(eventually([&] { return a.read(path).value_or("absent") == "print()"; }));
  EXPECT_EQ(a.count("view.damaged"), 1U);
}

TEST_F(Damage, WhatCameFromTheClusterComesAgain) {
  const std::string bytes(300'000, 'x');  // a file of its own in the store
  Host a(cluster);
  ASSERT_TRUE(a.publish_file(path, bytes));
  ASSERT_TRUE(a.sync());
  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry(path));
  ASSERT_EQ(b.read(path).value_or("absent"), bytes);
  const std::string hex = codec::digest_of(bytes).to_hex();
  flip(b.directory / "store/blobs/" + hex.substr(0, 2) + "/" + hex);

  b.store->discard(codec::digest_of(bytes));

  EXPECT_TRUE(eventually([&] { return b.read(path).value_or("absent") == bytes; }));
  EXPECT_TRUE(eventually([&] { return b.kernel.told_name(path.substr(path.rfind('/') + 1)); }));
}

TEST_F(Damage, ATritonSetGoesAsAWhole) {
  const std::string directory = "triton/0/" + triton_key_of("kernel");
  Host a(cluster, behind_a_fault());
  fault->refuse_publishes(true);
  ASSERT_TRUE(a.triton_compile(directory, "first", own_pid()));
  ASSERT_TRUE(eventually([&] { return a.count("seal.groups") == 1; }));
  flip(on_disk(a, directory + "/k.ttir"));

  publish(a);

  EXPECT_FALSE(a.exists(directory + "/__grp__k.json"));
  EXPECT_FALSE(a.exists(directory + "/k.ttir"));
  EXPECT_FALSE(a.exists(directory + "/k.json"));
}

class LeftDamage : public Damage, public ::testing::WithParamInterface<bool> {
 protected:
  static void mark(const std::string& file) {
    ASSERT_EQ(::setxattr(file.c_str(), "user.inductorfs.sealed", "damaged", 7, 0), 0);
  }
  static void begin_again(Host& host) {
    host.stop();
    host.start(GetParam());
  }
};

TEST_P(LeftDamage, IsNotShownAfterAKill) {
  const std::string directory = "triton/0/" + triton_key_of("kernel");
  Host a(cluster);
  ASSERT_TRUE(a.publish_file(path, "print()"));
  ASSERT_TRUE(a.triton_compile(directory, "first", own_pid()));
  ASSERT_TRUE(a.sync());
  mark(on_disk(a, path));
  mark(on_disk(a, directory + "/k.ttir"));

  begin_again(a);

  EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(on_disk(a, path)); }));
  EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(on_disk(a, directory + "/__grp__k.json")); }));
  EXPECT_TRUE(eventually([&] { return a.read(path).value_or("absent") == "print()"; })) << "of the cluster";
  EXPECT_TRUE(eventually([&] { return a.read(directory + "/k.ttir").value_or("") == "first wrote k.ttir"; }));
}

INSTANTIATE_TEST_SUITE_P(Of, LeftDamage, ::testing::Bool(),
                         [](const auto& kind) { return kind.param ? "AWorker" : "AMount"; });

TEST_F(Damage, IsNotPublishedByANewCatalog) {
  Host a(cluster, behind_a_fault());
  fault->refuse_publishes(true);
  ASSERT_TRUE(a.publish_file(path, "print()"));
  ASSERT_TRUE(eventually([&] { return a.count("seal.sealed") == 1; }));
  a.stop();
  flip(on_disk(a, path));
  remove_catalog(a);
  fault->refuse_publishes(false);

  a.start();  // queues again what is sealed

  ASSERT_TRUE(a.sync());
  EXPECT_FALSE(a.exists(path));
  Host b(cluster);
  EXPECT_FALSE(b.exists(path));
  EXPECT_EQ(a.count("view.damaged"), 1U);
}

TEST_F(Damage, AParcelIsNotPublishedByANewCatalogEither) {
  const std::string kernel = "cache/kernel.gemm.0123456789abcdef0123456789abcdef";
  Host a(cluster, behind_a_fault());
  fault->refuse_publishes(true);
  ASSERT_TRUE(a.make_directories("tmp/staging"));
  ASSERT_TRUE(a.make_directories("cache"));
  ASSERT_TRUE(a.create("tmp/staging/kernel.cu", "source"));
  ASSERT_TRUE(a.create("tmp/staging/kernel.cubin", "binary"));
  ASSERT_TRUE(a.rename("tmp/staging", kernel));
  ASSERT_TRUE(eventually([&] { return a.count("seal.sealed") == 1; }));
  a.stop();
  flip(on_disk(a, kernel + "/kernel.cubin"));
  remove_catalog(a);
  fault->refuse_publishes(false);

  a.start();

  ASSERT_TRUE(a.sync());
  EXPECT_FALSE(a.exists(kernel));
  Host b(cluster);
  EXPECT_FALSE(b.exists(kernel));
  EXPECT_EQ(a.store->usage().damaged, 1U);
}

class DamagedRow : public LeftDamage {
 protected:
  static void damage_queue(const Host& host) {
    sqlite3* raw = nullptr;
    ASSERT_EQ(sqlite3_open((host.directory / "catalog.sqlite").c_str(), &raw), SQLITE_OK);
    ASSERT_EQ(sqlite3_busy_timeout(raw, 10'000), SQLITE_OK);  // the publisher may be noting a failure
    Handle<sqlite3, sqlite3_close> handle(raw);
    ASSERT_EQ(sqlite3_exec(raw, "UPDATE queue SET payload = CAST('damaged' AS BLOB)", nullptr, nullptr, nullptr),
              SQLITE_OK)
        << sqlite3_errmsg(raw);
  }
  void expect_published(Host& host) {
    EXPECT_EQ(host.inspection().explain(path).publish, "published");
    EXPECT_EQ(host.count("publish.refused"), 0U);
    EXPECT_EQ(host.count("seal.damaged"), 0U);
    Host b(cluster);
    ASSERT_TRUE(b.wait_for_entry(path));
    EXPECT_EQ(b.read(path).value_or("absent"), "print()");
    ASSERT_TRUE(b.wait_for_entry("triton/@/" + triton_key_of("kernel") + "/k.ttir"));
    EXPECT_EQ(b.read(directory + "/k.ttir").value_or("absent"), "first wrote k.ttir");
  }
  void queue_both(Host& host) {
    fault->refuse_publishes(true);
    ASSERT_TRUE(host.publish_file(path, "print()"));
    ASSERT_TRUE(host.triton_compile(directory, "first", own_pid()));
    ASSERT_TRUE(eventually([&] { return host.count("seal.groups") == 1 && host.count("seal.sealed") >= 5; }));
  }
  const std::string directory = "triton/0/" + triton_key_of("kernel");
};

TEST_P(DamagedRow, IsQueuedAgainByTheNextProcess) {
  Host a(cluster, behind_a_fault());
  queue_both(a);
  a.stop();
  damage_queue(a);
  fault->refuse_publishes(false);

  a.start(GetParam());

  ASSERT_TRUE(a.sync());
  expect_published(a);
}

INSTANTIATE_TEST_SUITE_P(Of, DamagedRow, ::testing::Bool(),
                         [](const auto& kind) { return kind.param ? "AWorker" : "AMount"; });

TEST_P(DamagedRow, IsQueuedAgainByThePublisherThatMeetsIt) {
  Host a(cluster, behind_a_fault());
  queue_both(a);
  damage_queue(a);

  publish(a);

  expect_published(a);
}

TEST_F(Damage, ASoundFileIsPublishedThoughItsBlobHasGone) {
  Host a(cluster, behind_a_fault());
  fault->refuse_publishes(true);
  ASSERT_TRUE(a.publish_file(path, "print()"));
  ASSERT_TRUE(eventually([&] { return a.count("seal.sealed") == 1; }));
  const std::string hex = codec::digest_of("print()").to_hex();
  std::filesystem::remove(a.directory / "store/blobs/" + hex.substr(0, 2) + "/" + hex);

  publish(a);

  EXPECT_EQ(a.read(path).value_or("absent"), "print()");
  EXPECT_EQ(a.inspection().explain(path).publish, "published");
  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry(path));
  EXPECT_EQ(b.read(path).value_or("absent"), "print()");
}

}  // namespace
}  // namespace inductorfs::testing
