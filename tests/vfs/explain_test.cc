// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "support/lacks.h"
#include "vfs/faulty_remote.h"
#include "vfs/host.h"

namespace inductorfs::testing {
namespace {

class Explain : public ::testing::Test {
 protected:
  std::shared_ptr<remote::MemoryCluster> cluster = remote::make_memory_cluster();
  const std::string path = in_code_directory(code_name("code") + ".py");

  /// `a` compiles a kernel, and `b` knows of it.
  static bool share_kernel(Host& a, Host& b, const std::string& key) {
    return a.triton_compile("triton/0/" + key, "first", own_pid()) && a.sync() &&
           b.wait_for_entry("triton/@/" + key + "/k.ttir");
  }
};

TEST_F(Explain, FollowsAnArtefactFromItsWriterToItsReader) {
  Host a(cluster);
  EXPECT_EQ(a.inspection().explain(path).where, "nowhere");
  EXPECT_FALSE(a.inspection().explain(path).visible);
  ASSERT_TRUE(a.publish_file(path, "print()"));
  ASSERT_TRUE(a.sync());
  const auto written = a.inspection().explain(path);
  EXPECT_EQ(written.where, "sealed local file");
  EXPECT_EQ(written.digest, codec::digest_of("print()").to_hex());
  EXPECT_EQ(written.publish, "published");

  HostOptions options;
  const auto fault = std::make_shared<Fault>();
  options.wrap_remote = [&](auto inner) { return with_faults(std::move(inner), fault); };
  Host b(cluster, options);
  ASSERT_TRUE(b.wait_for_entry(path));
  fault->set(Fault::Mode::kFail);
  const auto remote = b.inspection().explain(path);
  EXPECT_EQ(remote.where, "cluster");
  EXPECT_TRUE(remote.visible);
  EXPECT_EQ(fault->fetched(codec::digest_of("print()")), 0U) << "explaining fetches nothing";
  fault->set(Fault::Mode::kNone);
  ASSERT_TRUE(b.exists(path));
  EXPECT_EQ(b.inspection().explain(path).where, "store");
  EXPECT_EQ(b.inspection().explain(path).origin, written.origin);
  EXPECT_EQ(b.inspection().explain(path.substr(0, 2)).where, "directory");
}

TEST_F(Explain, SaysOfANameInEachDirectoryWhatALookupFinds) {
  const std::string graph = "fxgraph/" + code_name("k", 'f').substr(1, 2) + "/" + code_name("k", 'f') + "/" +
                            codec::torch_hash("\x80\x04graph.");
  Host a(cluster);
  ASSERT_TRUE(a.publish_file(path, "print()"));
  ASSERT_TRUE(a.publish_file(graph, "\x80\x04graph."));
  ASSERT_TRUE(a.sync());
  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry(path));
  ASSERT_TRUE(b.wait_for_entry(graph));
  ASSERT_TRUE(b.make_directory("unused"));
  ASSERT_TRUE(b.make_directories("users/own"));
  for (const std::string root : {"", "unused/", "absent/", "users/own/", "users/absent/", "unused/", "users/own/"}) {
    for (const std::string& name : {path, path.substr(0, 2), graph, std::string("fxgraph"), path}) {
      const auto told = b.inspection().explain(root + name);
      EXPECT_EQ(told.visible, b.exists(root + name)) << root << name << ": " << told.why;
    }
  }
}

TEST_F(Explain, SaysThatAFileWasWrittenInPlace) {
  Host a(cluster);
  ASSERT_TRUE(a.make_directories(path.substr(0, 2)));
  ASSERT_TRUE(a.create(path, "print()"));
  EXPECT_NE(a.inspection().explain(path).why.find("written in place"), std::string::npos);
  ASSERT_TRUE(a.rename(path, path + ".tmp"));
  ASSERT_TRUE(a.rename(path + ".tmp", path));
  ASSERT_TRUE(a.sync());
  EXPECT_EQ(a.inspection().explain(path).why, "written on this host, and sealed");
  ASSERT_TRUE(a.append(path, "# more"));
  EXPECT_NE(a.inspection().explain(path).why.find("changed in place"), std::string::npos);
}

TEST_F(Explain, SaysWhyAPathIsPrivate) {
  Host a(cluster);
  ASSERT_TRUE(a.publish_file("locks/x.lock", "1"));
  const auto lock = a.inspection().explain("locks/x.lock");
  EXPECT_EQ(lock.where, "local file");
  EXPECT_FALSE(lock.why_private.empty());
  EXPECT_TRUE(lock.scope.empty());
}

TEST_F(Explain, NamesTheEntryOfATritonFileOnAnyDevice) {
  Host a(cluster);
  Host b(cluster);
  const std::string key = triton_key_of("kernel");
  ASSERT_TRUE(share_kernel(a, b, key));
  EXPECT_EQ(b.inspection().explain("triton/5/" + key + "/k.ttir").canonical, "triton/@/" + key + "/k.ttir");
  EXPECT_TRUE(b.inspection().explain("triton/5/" + key + "/k.ttir").visible);
}

TEST_F(Explain, AnswersForADirectoryOfAKeyAsForTheKey) {
  Host a(cluster);
  Host b(cluster);
  const std::string key = triton_key_of("kernel");
  const std::string graph = code_name("k", 'f');
  ASSERT_TRUE(share_kernel(a, b, key));
  const std::string model = "torch_compile_cache/torch_aot_compile/" + std::string(64, 'a') + "/rank_0_0";
  for (const auto& [directory, family] :
       {std::pair{"triton/0/" + key, "triton_kernel"},
        std::pair{"triton/0/" + triton_key_of("another"), "triton_kernel"},
        std::pair{"fxgraph/" + graph.substr(1, 2) + "/" + graph, "fxgraph"}, std::pair{model, "vllm_model"}}) {
    const auto told = b.inspection().explain(directory);
    EXPECT_EQ(told.family, family) << directory;
    EXPECT_FALSE(told.scope.empty()) << directory << ": " << told.why_private;
    EXPECT_EQ(told.why.find("never shared"), std::string::npos) << told.why;
  }
  ASSERT_TRUE(b.exists("triton/0/" + key));
  EXPECT_EQ(b.inspection().explain("triton/0/" + key).where, "directory");
}

TEST_F(Explain, FindsNothingUnderTheNameThatOnlyTheClusterHasOfADevice) {
  Host a(cluster);
  Host b(cluster);
  const std::string key = triton_key_of("kernel");
  ASSERT_TRUE(share_kernel(a, b, key));
  for (const std::string& name : {std::string("triton/@"), "triton/@/" + key, "triton/@/" + key + "/k.ttir",
                                  std::string("triton/0"), "triton/0/" + key, "triton/0/" + key + "/k.ttir"}) {
    const auto told = b.inspection().explain(name);
    EXPECT_EQ(told.visible, b.exists(name)) << name << ": " << told.why;
    EXPECT_EQ(told.why.find("a name in the cluster only") != std::string::npos, name.starts_with("triton/@"))
        << told.why;
  }
  ASSERT_TRUE(a.make_directories("triton/@"));
  EXPECT_TRUE(a.inspection().explain("triton/@").visible) << "a job made it";
}

TEST_F(Explain, KnowsADirectoryThatAProgramHasLookedUpAsLongAsALookupFindsIt) {
  Host a(cluster);
  ASSERT_TRUE(a.publish_file(path, "print()"));
  ASSERT_TRUE(a.sync());
  Host b(cluster);
  ASSERT_TRUE(b.wait_for_entry(path));
  const std::string directory = path.substr(0, 2);
  ASSERT_TRUE(b.make_directory("other"));
  ASSERT_TRUE(b.exists(path));
  ASSERT_TRUE(b.unlink(path));
  for (const std::string& name : {path, directory, "other/" + directory, "other/" + path}) {
    const auto told = b.inspection().explain(name);
    EXPECT_EQ(told.visible, b.exists(name)) << name << ": " << told.why;
  }
  EXPECT_EQ(b.inspection().explain(directory).where, "directory");
}

TEST_F(Explain, TellsWhatWasRefused) {
  Host a(cluster);
  const std::string bad =
      "fxgraph/" + code_name("k", 'f').substr(1, 2) + "/" + code_name("k", 'f') + "/" + codec::torch_hash("x");
  ASSERT_TRUE(a.publish_file(bad, "not a pickle"));
  ASSERT_TRUE(a.sync());
  EXPECT_EQ(a.inspection().explain(bad).where, "local file");
  ASSERT_EQ(a.inspection().status().refused.size(), 1U);
  EXPECT_EQ(a.inspection().status().refused.front().substr(0, bad.size()), bad);
  EXPECT_NE(a.inspection().explain(bad).why.find("refused when it was complete"), std::string::npos);
}

TEST_F(Explain, TellsWhatWasRefusedToEachUser) {
  if (::geteuid() != 0) INDUCTORFS_LACKS("root, to have files of several users");
  constexpr uid_t kOther = 65534;
  HostOptions options;
  options.chown_to_caller = true;
  Host a(cluster, options);
  const auto write_bad = [&](const std::string& name) {
    const std::string bad = "fxgraph/" + code_name(name, 'f').substr(1, 2) + "/" + code_name(name, 'f') + "/";
    return a.publish_file(bad + codec::torch_hash(name), "not a pickle");
  };
  ASSERT_TRUE(write_bad("ours"));
  ASSERT_TRUE(a.sync());
  const std::string ours = a.inspection().status().refused.front();
  a.user = kOther;
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(write_bad("theirs" + std::to_string(i)));
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(a.make_directories("own" + std::to_string(i) + "/cache/" + triton_key_of("kernel")));
  }
  ASSERT_TRUE(a.sync());
  const auto told = a.inspection().status().refused;
  EXPECT_EQ(told.size(), 20U);
  EXPECT_EQ(std::ranges::count(told, ours), 1) << "another user's many files and directories";
}

}  // namespace
}  // namespace inductorfs::testing
