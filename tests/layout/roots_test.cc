// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "inductorfs/codec/entry.h"
#include "inductorfs/layout/layout.h"
#include "sample_names.h"

namespace inductorfs::layout {
namespace {

using namespace samples;

struct Expectation {
  std::string path;
  std::string root;
  std::string canonical;
  Family family;
};

void expect_all(const std::vector<Expectation>& table) {
  for (const auto& row : table) {
    const Classification classified = classify(row.path);
    EXPECT_EQ(classified.root, row.root) << row.path;
    EXPECT_EQ(classified.canonical, row.canonical) << row.path;
    EXPECT_EQ(rule_of(classified.family).name, rule_of(row.family).name) << row.path;
    EXPECT_EQ(name_of(row.path), (Name{row.canonical, row.root})) << row.path;
  }
}

/// One path of each family that lies in a root's layout, and of what goes before its final name.
const std::vector<std::string>& inner_paths() {
  static const std::vector<std::string> paths{
      "fxgraph/ab/" + kGraphKey + "/" + kHash,
      "fxgraph/ab/" + kGraphKey + "/.1.2.tmp",
      "aotautograd/" + kAutogradKey + "/" + kHash,
      "ab/" + kCode + ".py",
      "ab/.12.34.tmp",
      "ab/" + kHex + ".best_config",
      "ab/" + kCode + ".main_CxxBuild/x.o",
      "precompiled_headers/" + kCode + ".h.gch",
      "cache/" + kHex,
      "cache/should_pad/" + kHex.substr(0, 32),
      "dynamo/code_state_job_0_None.pkl",
      "locks/" + kCode + ".lock",
      "triton/0/" + kKey + "/add.cubin",
      "triton/0/" + kHex + "/add.cubin",
      "triton/3/" + kKey + "/tmp.pid_1_" + kUuid + "/add.cubin",
      "triton/0/tmp." + kUuid + "/add.cubin",
  };
  return paths;
}

TEST(Roots, HaveTheLayoutOfTheMountpointBelowThem) {
  for (const auto& inner : inner_paths()) {
    const Classification whole = classify(inner);
    EXPECT_EQ(whole.root, "") << inner;
    for (const std::string root : {"alice", "team/job7", ".cache/x", "a b/c", "a/b/c/d/e/f/g/h/i/j/k/l",
                                   "vllm/torch_compile_cache/0123456789/rank_0_0/inductor_cache"}) {
      const Classification classified = classify(root + "/" + inner);
      EXPECT_EQ(classified.root, root) << inner;
      EXPECT_EQ(classified.canonical, whole.canonical) << inner;
      EXPECT_EQ(classified.key_directory, whole.key_directory) << inner;
      EXPECT_EQ(classified.family, whole.family) << root << "/" << inner;
      EXPECT_TRUE(is_in_a_root(root + "/" + inner)) << inner;
      EXPECT_FALSE(is_in_a_root(root)) << root;
    }
  }
}

TEST(Roots, AreKnownByTheDirectoriesInThemToo) {
  for (const std::string directory :
       {"fxgraph", "fxgraph/ab", "aotautograd", "triton", "triton/0", "ab", "cache", "locks"}) {
    const std::string canonical = directory == "triton/0" ? "triton/@" : directory;
    EXPECT_EQ(name_of("alice/" + directory), (Name{canonical, "alice"}));
  }
  EXPECT_TRUE(is_candidate_directory("alice/fxgraph/ab/" + kGraphKey));
  EXPECT_TRUE(is_triton_key_directory("alice/triton/0/" + kKey));
  EXPECT_TRUE(may_hold_triton_set("alice/triton/0/tmp." + kUuid));
  const auto sealed = sealed_by_removal_of("alice/ab/" + kCode + "_CxxBuild");
  ASSERT_FALSE(sealed.empty());
  EXPECT_EQ(sealed.front(), "alice/ab/" + kCode + ".so");
}

TEST(Roots, MayBeTritonsOwnDirectory) {
  // Its own `triton` belongs to a root: what stands there has one name in the cluster, and one root that deletes it.
  const std::pair<std::string, std::string> directories[] = {
      {"", ""},
      {"jobs/triton_cache/", "jobs/triton_cache"},
      {"a/b/c/d/e/f/g/h/i/j/k/l/", "a/b/c/d/e/f/g/h/i/j/k/l"},
      {"triton/", ""},
      {"alice/triton/", "alice"},
  };
  for (const auto& [prefix, root] : directories) {
    for (const auto& key : {kKey, kBase64Key}) {
      expect_all({
          {prefix + key + "/add.cubin", root, "triton/@/" + key + "/add.cubin", Family::kTritonKernel},
          {prefix + key + "/__grp__add.json", root, "triton/@/" + key + "/__grp__add.json", Family::kTritonKernel},
          {prefix + key + "/cuda_utils.so", root, "triton/@/" + key + "/cuda_utils.so", Family::kTritonLauncher},
          {prefix + key + "/tmp.pid_1_" + kUuid + "/add.cubin", root,
           "triton/@/" + key + "/tmp.pid_1_" + kUuid + "/add.cubin", Family::kTemporary},
      });
      EXPECT_EQ(name_of(prefix + key), (Name{"triton/@/" + key, root}));
      EXPECT_TRUE(is_triton_key_directory(prefix + key));
      EXPECT_TRUE(may_hold_triton_set(prefix + key));
    }
  }
}

/// vLLM's layout (vllm/compilation: torch_compile_cache/<hash>/rank_<i>_<j>/{inductor_cache,triton_cache}).
TEST(Roots, AreFoundInVllmsCache) {
  const std::string rank = "vllm/torch_compile_cache/0123456789/rank_0_0";
  expect_all({
      {rank + "/inductor_cache/ab/" + kCode + ".py", rank + "/inductor_cache", "ab/" + kCode + ".py",
       Family::kGeneratedCode},
      {rank + "/triton_cache/" + kKey + "/add.json", rank + "/triton_cache", "triton/@/" + kKey + "/add.json",
       Family::kTritonKernel},
      {rank + "/vllm_compile_cache.py", "", rank + "/vllm_compile_cache.py", Family::kOther},  // below no tag
      {"vllm/torch_aot_compile/" + kHex + "/model", "", "vllm/torch_aot_compile/" + kHex + "/model", Family::kOther},
  });
}

TEST(Roots, AreReadInOneWayWhereTwoWouldDo) {
  expect_all({
      // a directory of code, or a root called "ab"
      {"ab", "", "ab", Family::kOther},
      {"ab/" + kCode + ".py", "", "ab/" + kCode + ".py", Family::kGeneratedCode},
      {"ab/ab/" + kCode + ".py", "ab", "ab/" + kCode + ".py", Family::kGeneratedCode},
      {"ab/fxgraph/ab/" + kGraphKey + "/" + kHash, "ab", "fxgraph/ab/" + kGraphKey + "/" + kHash, Family::kFxGraph},
      // PyTorch's directory for a device, or a root called "0"
      {"triton/0/" + kKey + "/a.ptx", "", "triton/@/" + kKey + "/a.ptx", Family::kTritonKernel},
      {"0/" + kKey + "/a.ptx", "0", "triton/@/" + kKey + "/a.ptx", Family::kTritonKernel},
      {"triton/x/" + kKey + "/a.ptx", "triton/x", "triton/@/" + kKey + "/a.ptx", Family::kTritonKernel},
      // names that others use too
      {"cache/alice/fxgraph/ab/" + kGraphKey + "/" + kHash, "cache/alice", "fxgraph/ab/" + kGraphKey + "/" + kHash,
       Family::kFxGraph},
      {"cache/alice", "", "cache/alice", Family::kGenericCache},
      {"locks/alice/ab/" + kCode + ".py", "locks/alice", "ab/" + kCode + ".py", Family::kGeneratedCode},
      {"fxgraph/alice/fxgraph/ab", "", "fxgraph/alice/fxgraph/ab", Family::kOther},
  });
}

TEST(Roots, AreNowhereElse) {
  const std::string deep = "1/2/3/4/5/6/7/8/9/10/11/12/13";
  const std::string graph = "fxgraph/ab/" + kGraphKey + "/" + kHash;
  for (const std::string& path : {
           deep + "/" + graph,                 // deeper than kRootDepth
           "tmpab_1xyz9/" + graph,             // torch's fresh_cache
           "alice/tmpab_1xyz9/" + graph,       //
           "alice/x_CxxBuild/" + graph,        //
           "alice/fxgraphs/ab/" + kGraphKey,   //
           "alice/" + kHex + "/add.json",      // as a directory of vLLM, and a Triton key before 3.2
           "alice/" + kCode + "/add.json",     //
           "alice/" + kKey.substr(1) + "/a",   //
           "alice/" + kKey + "/rank_0/model",  //
           "alice/" + std::string(43, 'a') + "/add.json",
           std::string("alice"),
           std::string(),
       }) {
    EXPECT_FALSE(is_in_a_root(path)) << path;
    EXPECT_EQ(name_of(path), (Name{path, ""}));
    EXPECT_FALSE(rule_of(classify(path).family).shared) << path;
  }
}

TEST(Roots, AreHiddenByNamesOfTempfilesForm) {
  const std::string hidden = "tmp_compile";
  for (const std::string& below : {std::string("fxgraph"), std::string("triton/0"), kKey, kKey + "/add.json"}) {
    EXPECT_EQ(hidden_root(hidden + "/" + below), hidden);
    EXPECT_EQ(hidden_root("alice/tmpab_1xyz9/" + below), "alice/tmpab_1xyz9");
    EXPECT_EQ(hidden_root("alice/" + below), "") << "it is in a root";
    EXPECT_EQ(hidden_root("fxgraph/" + hidden + "/" + below), "");
    EXPECT_EQ(hidden_root("tmp.pid_1_2/" + hidden + "/" + below), "") << "it is Triton's";
  }
  for (const std::string& path :
       {std::string(), hidden, hidden + "/notes", hidden + "//fxgraph", hidden + "/../fxgraph"})
    EXPECT_EQ(hidden_root(path), "") << path;
}

TEST(Roots, AreNoPartOfACanonicalName) {
  for (const auto& inner : inner_paths()) {
    const std::string canonical = canonical_path("alice/" + inner);
    EXPECT_EQ(name_of(canonical), (Name{canonical, ""}));
  }
  const std::string longest(codec::kPathLimit, 'x');
  EXPECT_EQ(name_of(longest + "/fxgraph").root, "") << "no path at all";
}

TEST(Roots, ADeepPathIsInTheClusterWhatItIsBelowItsRoot) {
  // More components than are looked at: which of them are seen must not depend on the root's depth.
  std::string path = "a_root/of/some/depth/flashinfer/cubins/" + std::string(40, 'a');
  for (int i = 0; i < 18; ++i) path += "/deeper";
  for (const char* last : {"/tmp.pid_1_2/k.cubin", "/k.cubin"}) {
    const Classification whole = classify(path + last);
    EXPECT_EQ(whole.root, "a_root/of/some/depth/flashinfer") << last;
    const Classification below = classify(whole.canonical);
    EXPECT_EQ(below.family, whole.family) << last;
    EXPECT_EQ(below.canonical, whole.canonical) << last;
  }
}

}  // namespace
}  // namespace inductorfs::layout
