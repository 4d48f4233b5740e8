// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>
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
  Family family;
};

void expect_all(const std::vector<Expectation>& table) {
  for (const Expectation& row : table) {
    EXPECT_EQ(rule_of(classify(row.path).family).name, rule_of(row.family).name) << row.path;
  }
}

TEST(Classify, KnowsEveryFamilysFinalNames) {
  expect_all({
      {"fxgraph/ab/" + kGraphKey + "/" + kHash, Family::kFxGraph},
      {"aotautograd/" + kAutogradKey + "/" + kHash, Family::kAotAutograd},
      {"aotautograd/" + kAutogradKey + "/entry", Family::kAotAutogradEntry},
      {"ab/" + kCode + ".py", Family::kGeneratedCode},
      {"ab/" + kHex + ".best_config", Family::kBestConfig},
      {"zz/" + kHex + ".best_config", Family::kBestConfig},
      {"ab/" + kCode + ".kernel_perf", Family::kKernelPerf},
      {"ab/" + kCode + ".picked_kernel", Family::kKernelPerf},
      {"ab/" + kCode + ".cpp", Family::kCppSource},
      {"ab/" + kCode + ".main.cpp", Family::kCppSource},
      {"ab/" + kCode + ".optimized.cpp", Family::kCppSource},
      {"ab/" + kCode + ".h", Family::kCppSource},
      {"ab/" + kCode + ".so", Family::kCppBinary},
      {"ab/" + kCode + ".o", Family::kCppBinary},
      {"ab/" + kCode + ".main.so", Family::kCppBinary},
      {"ab/" + kCode + ".main.o", Family::kCppBinary},
      {"ab/" + kCode + ".optimized.o", Family::kCppBinary},
      {"ab/" + kCode + ".so.load_ok", Family::kVecIsaMarker},
      {"precompiled_headers/" + kCode + ".h", Family::kPrecompiledHeader},
      {"precompiled_headers/" + kCode + ".h.gch", Family::kPrecompiledHeader},
      {"cache/" + kHex, Family::kSystemAutotune},
      {"triton/0/" + kKey + "/add.ttir", Family::kTritonKernel},
      {"triton/7/" + kKey + "/add.cubin", Family::kTritonKernel},
      {"triton/15/" + kBase64Key + "/add.json", Family::kTritonKernel},
      {"triton/0/" + kHex + "/add.ptx", Family::kTritonKernel},
      {"triton/0/" + kKey + "/__grp__add.json", Family::kTritonKernel},
      {"triton/@/" + kKey + "/__grp__add.json", Family::kTritonKernel},
      {"triton/None/" + kKey + "/add.source", Family::kTritonKernel},
      {"triton/0/" + kKey + "/cuda_utils.so", Family::kTritonLauncher},
      {"triton/0/" + kKey + "/cuda_utils.cpython-312-x86_64-linux-gnu.so", Family::kTritonLauncher},
      {"triton/0/" + kKey + "/__triton_launcher.cpython-311-x86_64-linux-gnu.so", Family::kTritonLauncher},
      {"triton/0/" + kKey + "/add.autotune.json", Family::kTritonAutotune},
      {"dynamo/code_state_job_0_None.pkl", Family::kPgoState},
      {"dynamo/code_state_job_None_tag.pkl", Family::kPgoState},
      {"cache/should_pad/0123456789abcdef0123456789abcdef", Family::kOnDiskCache},
      {"cache/inductor_on_disk_cache/0123456789abcdef0123456789abcdef", Family::kOnDiskCache},
      {"dynamo/code_state.pkl", Family::kDynamo},
      {"dynamo/4711/code_state_job_0_None.pkl", Family::kDynamo},
      {"dynamo/4711/entry", Family::kDynamo},
      {"cutedsl_compile_cache/" + kHex + ".o", Family::kObjectCache},
      {"quack/" + kHex + "/" + kHex + ".o", Family::kObjectCache},
      {"flydsl_compile_cache/anything/at/all", Family::kObjectCache},
      {"ab/" + kCode + ".cu", Family::kCutlass},
      {"ab/" + kCode + ".so.error", Family::kCutlass},
      {"ab/" + kCode + ".o.error", Family::kCutlass},
      {"configs_0123abcd.json", Family::kCutlass},
      {"torch_cutlass/cutlass_library", Family::kCutlass},
      {"torch_cutlass_library/x", Family::kCutlass},
      {"ab/" + kCode + ".halide/halide_kernel.a", Family::kHalide},
      {"ab/" + kCode + ".halide/done", Family::kHalide},
      {"halide-runtime-host-" + kCode + "/hooks.cpp", Family::kHalide},
      {"ab/" + kCode + ".wrapper.cpp", Family::kAotInductor},
      {"ab/" + kCode + ".wrapper.so", Family::kAotInductor},
      {"ab/" + kCode + ".kernel.o", Family::kAotInductor},
      {"ab/" + kCode + ".wrapper_compile_flags.json", Family::kAotInductor},
      {"ab/" + kCode + ".cubin", Family::kAotInductor},
      {"ab/" + kCode + ".hsaco", Family::kAotInductor},
      {"ab/" + kCode + "/CMakeLists.txt", Family::kAotInductor},
      {"aoti_eager/aten/cpu/add.json", Family::kAotInductor},
      {"cache/somebodys/0123456789abcdef0123456789abcdef", Family::kGenericCache},
      {"cache/0123456789abcdef0123456789abcdef", Family::kGenericCache},
      {"cache/should_pad/deeper/0123456789abcdef0123456789abcdef", Family::kGenericCache},
      {"cache/should_pad/0123456789abcdef0123456789abcdef0", Family::kGenericCache},
      {"cache/should_pad/x", Family::kGenericCache},
      {"memoizer_cache.json", Family::kGenericCache},
  });
}

TEST(Classify, KnowsEveryTemporaryNameAndLock) {
  const std::string key = "triton/0/" + kKey;
  expect_all({
      {".123.456.tmp", Family::kTemporary},
      {"ab/.123.140012.tmp", Family::kTemporary},
      {"fxgraph/ab/" + kGraphKey + "/.1.2.tmp", Family::kTemporary},
      {"cache/.1.2.tmp", Family::kTemporary},
      {"precompiled_headers/.1.2.tmp", Family::kTemporary},
      {key + "/tmp.pid_12_" + kUuid, Family::kTemporary},
      {key + "/tmp.pid_12_" + kUuid + "/add.cubin", Family::kTemporary},
      {key + "/tmp.pid_12_not-a-uuid/add.cubin", Family::kTemporary},
      {key + "/add.cubin.tmp.pid_12_" + kUuid, Family::kTemporary},
      {key + "/add.cubin.tmp.pid_12_123456", Family::kTemporary},
      {key + "/a.tmpx.tmp.pid_12_123456", Family::kTemporary},
      {"triton/0/tmp." + kUuid, Family::kTemporary},
      {"triton/0/tmp." + kUuid + "/add.cubin", Family::kTemporary},
      {"triton/@/tmp." + kUuid + "/add.so", Family::kTemporary},
      {"ab/" + kCode + ".main_CxxBuild", Family::kTemporary},
      {"ab/" + kCode + ".main_CxxBuild/x.o", Family::kTemporary},
      {"precompiled_headers/" + kCode + ".h_CxxBuild", Family::kTemporary},
      {"dynamo/code_state_job_0_None.pkl.tmp", Family::kTemporary},
      {"tmpab_1xyz9", Family::kTemporary},
      {"tmpab_1xyz9/fxgraph/ab/" + kGraphKey + "/" + kHash, Family::kTemporary},
      {"tmpab_1xyz9.py", Family::kTemporary},
      {"inductor_const_spill_12_34", Family::kTemporary},
      {"cutedsl_compile_cache/tmpabcdefgh.o.tmp", Family::kTemporary},
      {"quack/" + kHex + "/" + kHex + ".o.tmp.4711", Family::kTemporary},
      {"ab/.nfs000000000012ab", Family::kTemporary},
      {key + "/.fuse_hidden0000001a00000002", Family::kTemporary},
      {"locks/" + kCode + ".lock", Family::kLock},
      {"locks/g++.lock", Family::kLock},
      {"locks/anything", Family::kLock},
      {"precompiled_headers/locks/" + kCode + ".lock", Family::kLock},
      {"precompiled_headers/locks/x", Family::kLock},
      {key + "/lock", Family::kLock},
      {"cache/should_pad/dir.lock", Family::kLock},
      {"dynamo/code_state_job_0_None.pkl.lock", Family::kLock},
      {"quack/" + kHex + "/" + kHex + ".lock", Family::kLock},
      {"memoizer_cache.lock", Family::kLock},
      {"ab/" + kCode + ".halide/lock", Family::kLock},
      {"gcc/bin/g++", Family::kTool},
      {"bisect/bisect_status.txt", Family::kTool},
      {"autoheuristic/NVIDIA_H200/mm.txt", Family::kTool},
      {"unhashed_kernel_inputs/x/tensor_0.pt", Family::kTool},
      {"ab/triton_run_3/tensor_0.pt", Family::kTool},
      {"ab/" + kCode + ".debug", Family::kTool},
      {"ab/" + kCode + ".debug/fx_graph_runnable.py", Family::kTool},
  });
}

TEST(Classify, SharesNothingThatIsTransient) {
  for (const Family family : {Family::kTemporary, Family::kLock, Family::kTool, Family::kOther}) {
    EXPECT_FALSE(rule_of(family).shared);
  }
}

TEST(Classify, TakesAlmostRightNamesForUnknown) {
  const std::string upper_key = "F" + kGraphKey.substr(1);
  expect_all({
      {"fxgraph/xy/" + kGraphKey + "/" + kHash, Family::kOther},  // not the key's directory
      {"fxgraph/ab/" + kGraphKey, Family::kOther},
      {"fxgraph/ab/" + kGraphKey + "/" + kHash + "a", Family::kOther},
      {"fxgraph/ab/" + kGraphKey + "/" + kHash + "/x", Family::kOther},
      {"fxgraph/ab/" + upper_key + "/" + kHash, Family::kOther},
      {"fxgraph/ab/" + kCode + "/" + kHash, Family::kOther},
      {"aotautograd/" + kGraphKey + "/" + kHash, Family::kOther},
      {"aotautograd/" + kAutogradKey + "/entry2", Family::kOther},
      {"aotautograd/ab/" + kAutogradKey + "/entry", Family::kOther},
      {"xy/" + kCode + ".py", Family::kOther},
      {"ab/" + kCode + ".pyc", Family::kOther},
      {"ab/" + kCode, Family::kOther},
      {"ab/" + kCode + "x.py", Family::kOther},
      {"ab/" + kHex + ".best_confi", Family::kOther},
      {"ab/x" + kHex + ".best_config", Family::kOther},
      {"ab", Family::kOther},
      {"a8/c" + std::string("a8") + kCode.substr(3) + ".py", Family::kOther},  // 8 is not in base32
      {"precompiled_headers/" + kCode + ".h.pch", Family::kOther},
      {"precompiled_headers/" + kCode + ".gch", Family::kOther},
      {"cache", Family::kOther},
      {"triton/0/" + kKey, Family::kOther},
      {"triton/0/" + kKey + "A/x", Family::kOther},
      {"triton/00/" + kHex + "/x", Family::kOther},
      {"triton/cuda:0/" + kHex + "/x", Family::kOther},
      {"triton/12345/" + kHex + "/x", Family::kOther},
      {"triton/0/" + kKey + "/.hidden", Family::kOther},
      {"triton/0/" + kKey + "/sub/x", Family::kOther},
      {"triton/" + kHex + "/x", Family::kOther},
      {"triton/0/tmp.x/x", Family::kOther},
      {"configs_0123abcd.jsonx", Family::kOther},
      {"tmpABCDEFGH", Family::kOther},
      {"tmpabcdefgh_", Family::kOther},
      {"inductor-cache-v1.sqlite3", Family::kOther},
      {"README", Family::kOther},
      {"locks", Family::kOther},
  });
}

TEST(Classify, TakesHostilePathsForUnknown) {
  const std::string tail = "fxgraph/ab/" + kGraphKey + "/" + kHash;
  std::string with_nul = tail;
  with_nul[10] = '\0';
  const std::string long_name(4000, 'a');
  expect_all({
      {"", Family::kOther},
      {"/", Family::kOther},
      {"/" + tail, Family::kOther},
      {tail + "/", Family::kOther},
      {"fxgraph//ab/" + kGraphKey + "/" + kHash, Family::kOther},
      {"./" + tail, Family::kOther},
      {"../" + tail, Family::kOther},
      {"triton/0/../" + kKey + "/x", Family::kOther},
      {"triton/0/" + kKey + "/..", Family::kOther},
      {"triton/0/" + kKey + "/.", Family::kOther},
      {with_nul, Family::kOther},
      {"ab/" + long_name + ".best_config", Family::kOther},
      {"triton/0/" + kKey + "/" + std::string(codec::kPathLimit, 'x'), Family::kOther},
      {"ab/\xff\xfe" + kCode + ".py", Family::kOther},
  });
}

TEST(Classify, LeavesAnUncleanPathAsItIs) {
  EXPECT_EQ(classify("triton/0/../x").canonical, "triton/0/../x");
  EXPECT_EQ(classify("triton/0/../x").key_directory, "");
}

TEST(Classify, GivesEachDeviceTheSameCanonicalName) {
  const Classification classified = classify("triton/3/" + kKey + "/add.cubin");

  EXPECT_EQ(classified.canonical, "triton/@/" + kKey + "/add.cubin");
  EXPECT_EQ(classified.key_directory, "triton/@/" + kKey);
  EXPECT_EQ(classify(classified.canonical).canonical, classified.canonical);
  EXPECT_EQ(classify(classified.canonical).key_directory, classified.key_directory);
}

TEST(Classify, NamesTheKeyDirectoryOfCandidates) {
  EXPECT_EQ(classify("fxgraph/ab/" + kGraphKey + "/" + kHash).key_directory, "fxgraph/ab/" + kGraphKey);
  EXPECT_EQ(classify("aotautograd/" + kAutogradKey + "/entry").key_directory, "aotautograd/" + kAutogradKey);
  EXPECT_EQ(classify("ab/" + kCode + ".py").key_directory, "");
}

TEST(CanonicalPath, ReplacesOnlyADevicesDirectory) {
  EXPECT_EQ(canonical_path("triton/0"), "triton/@");
  EXPECT_EQ(canonical_path("triton/12/a/b"), "triton/@/a/b");
  EXPECT_EQ(canonical_path("triton/x/a"), "triton/x/a");
  EXPECT_EQ(canonical_path("triton"), "triton");
  EXPECT_EQ(canonical_path("a/triton/0"), "triton/@") << "of the root a";
  EXPECT_EQ(canonical_path(""), "");
  EXPECT_TRUE(is_device_name("0"));
  EXPECT_TRUE(is_device_name("127"));
  EXPECT_FALSE(is_device_name(""));
  EXPECT_FALSE(is_device_name("01"));
  EXPECT_FALSE(is_device_name("@"));
  EXPECT_FALSE(is_device_name("tmp." + kUuid));
}

TEST(KeyDirectory, IsKnownForEachGenerationOfTriton) {
  EXPECT_TRUE(is_triton_key_directory("triton/0/" + kKey));
  EXPECT_TRUE(is_triton_key_directory("triton/@/" + kBase64Key));
  EXPECT_TRUE(is_triton_key_directory("triton/0/" + kHex));
  EXPECT_FALSE(is_triton_key_directory("triton/0/" + kKey + "/x"));
  EXPECT_FALSE(is_triton_key_directory("triton/0"));
  EXPECT_FALSE(is_triton_key_directory("triton/0/tmp." + kUuid));
  EXPECT_TRUE(is_candidate_directory("fxgraph/ab/" + kGraphKey));
  EXPECT_FALSE(is_candidate_directory("fxgraph/xy/" + kGraphKey));
  EXPECT_TRUE(is_candidate_directory("aotautograd/" + kAutogradKey));
  EXPECT_FALSE(is_candidate_directory("aotautograd"));
  EXPECT_FALSE(is_candidate_directory("fxgraph/ab/.."));
}

TEST(SealedByRemovalOf, NamesWhatCppBuilderMade) {
  using Paths = std::vector<std::string>;
  const std::string code = "ab/" + kCode;
  const std::string header = "precompiled_headers/" + kCode;
  EXPECT_EQ(sealed_by_removal_of(code + ".main_CxxBuild"), (Paths{code + ".main.so", code + ".main.o"}));
  EXPECT_EQ(sealed_by_removal_of(code + ".optimized_CxxBuild"), (Paths{code + ".optimized.o"}));
  EXPECT_EQ(sealed_by_removal_of(code + "_CxxBuild"), (Paths{code + ".so", code + ".o"}));
  EXPECT_EQ(sealed_by_removal_of(header + ".h_CxxBuild"), (Paths{header + ".h.gch"}));
  EXPECT_EQ(sealed_by_removal_of(header + "_CxxBuild"), (Paths{header + ".h.gch"}));
  EXPECT_EQ(sealed_by_removal_of(code + ".wrapper_CxxBuild"), Paths{});
  EXPECT_EQ(sealed_by_removal_of(code), Paths{});
  EXPECT_EQ(sealed_by_removal_of("_CxxBuild"), Paths{});
  EXPECT_EQ(sealed_by_removal_of("../" + kCode + "_CxxBuild"), Paths{});
  EXPECT_EQ(sealed_by_removal_of("xy/" + kCode + "_CxxBuild"), Paths{});
}

/// Paths that are near the real ones: pieces of them, put together at random, with random bytes between.
std::string random_path(std::mt19937& random) {
  static const std::vector<std::string> pieces = {"fxgraph",
                                                  "aotautograd",
                                                  "triton",
                                                  "0",
                                                  "@",
                                                  "None",
                                                  "ab",
                                                  "cache",
                                                  "locks",
                                                  "/",
                                                  "/",
                                                  "/",
                                                  "/",
                                                  "..",
                                                  ".",
                                                  "tmp.",
                                                  ".tmp",
                                                  "tmp.pid_1_" + kUuid,
                                                  kUuid,
                                                  "_CxxBuild",
                                                  kCode,
                                                  kGraphKey,
                                                  kAutogradKey,
                                                  kHash,
                                                  kHex,
                                                  kKey,
                                                  ".py",
                                                  ".so",
                                                  ".best_config",
                                                  "entry",
                                                  "__grp__a.json",
                                                  "precompiled_headers",
                                                  ".h.gch",
                                                  ".lock",
                                                  std::string(1, '\0'),
                                                  "\xff"};
  std::string path;
  const size_t count = random() % 12;
  for (size_t i = 0; i < count; ++i) {
    if (random() % 10 == 0) {
      path.push_back(static_cast<char>(random() % 256));
    } else {
      path += pieces[random() % pieces.size()];
    }
  }
  return path;
}

TEST(Classify, LooksAtEveryCharacterOfANameThatIsShared) {
  for (const std::string& path : {"fxgraph/ab/" + kGraphKey + "/" + kHash, "aotautograd/" + kAutogradKey + "/" + kHash,
                                  "ab/" + kCode + ".main.so", "ab/" + kHex + ".best_config", "cache/" + kHex,
                                  "cache/should_pad/" + kHex.substr(32), "precompiled_headers/" + kCode + ".h"}) {
    ASSERT_TRUE(rule_of(classify(path).family).shared) << path;
    for (size_t i = 0; i < path.size(); ++i) {
      for (const char hostile : {'!', '/', '.', '\0', '\xff', 'Z'}) {
        std::string changed = path;
        changed[i] = hostile;
        if (changed == path) continue;
        EXPECT_FALSE(rule_of(classify(changed).family).shared) << changed;
      }
      EXPECT_FALSE(rule_of(classify(path.substr(0, i)).family).shared) << path.substr(0, i);
    }
  }
}

TEST(Classify, IsTotalAndStableOnRandomPaths) {
  std::mt19937 random(20261121);
  for (int i = 0; i < 200000; ++i) {
    const std::string path = random_path(random);
    const Classification classified = classify(path);
    const std::string canonical = canonical_path(path);
    ASSERT_EQ(canonical, classified.canonical) << path;
    ASSERT_EQ(canonical_path(canonical), canonical) << path;
    const Classification again = classify(canonical);
    ASSERT_EQ(again.family, classified.family) << path;
    ASSERT_EQ(again.key_directory, classified.key_directory) << path;
    ASSERT_TRUE(classified.canonical.starts_with(classified.key_directory)) << path;
    if (rule_of(classified.family).shared) {
      ASSERT_TRUE(codec::is_clean_path(canonical)) << path;
      ASSERT_EQ(canonical.find("_CxxBuild/"), std::string::npos) << path;
      ASSERT_EQ(canonical.find("/."), std::string::npos) << path;
    }
    for (const std::string& sealed : sealed_by_removal_of(path)) ASSERT_TRUE(rule_of(classify(sealed).family).shared);
  }
}

}  // namespace
}  // namespace inductorfs::layout
