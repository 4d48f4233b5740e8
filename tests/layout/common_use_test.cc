// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "inductorfs/layout/layout.h"
#include "sample_names.h"

namespace inductorfs::layout {
namespace {

using namespace samples;

TEST(CommonDirectory, IsEachOneWhereTorchAndTritonMakeNames) {
  for (const std::string& path : {std::string("fxgraph"),
                                  std::string("fxgraph/ab"),
                                  "fxgraph/ab/" + kGraphKey,
                                  std::string("aotautograd"),
                                  "aotautograd/" + kAutogradKey,
                                  std::string("ab"),
                                  "ab/" + kCode + "_CxxBuild",
                                  "ab/" + kCode + ".main_CxxBuild",
                                  "ab/" + kCode + ".halide",
                                  std::string("triton"),
                                  std::string("triton/0"),
                                  std::string("triton/None"),
                                  "triton/3/" + kKey,
                                  "triton/0/" + kBase64Key,
                                  std::string("cache"),
                                  std::string("cache/name"),
                                  std::string("dynamo"),
                                  std::string("locks"),
                                  std::string("cutedsl_compile_cache/a"),
                                  std::string("torch_cutlass")}) {
    EXPECT_TRUE(is_common_directory(path)) << path;
  }
}

TEST(CommonDirectory, IsNoneOfOneProcessOrUserAndNoneThatAToolOrAnybodyMakes) {
  for (const std::string& path : {std::string(),
                                  std::string("mine"),
                                  std::string("mine/graphs"),
                                  std::string("abc"),
                                  std::string("tmpabcdefgh"),
                                  std::string("tmpabcdefgh/fxgraph"),
                                  "triton/0/tmp." + kUuid,
                                  "triton/0/" + kKey + "/tmp.pid_7_" + kUuid,
                                  "triton/0/" + kKey + "/deeper",
                                  std::string("triton/mine"),
                                  std::string("triton/x"),
                                  std::string("gcc"),
                                  std::string("bisect/a"),
                                  std::string("aoti_eager"),
                                  "ab/" + kCode,
                                  "ab/" + kCode + "_run_1",
                                  std::string("precompiled_headers"),
                                  std::string("precompiled_headers/locks"),
                                  std::string("locks/../mine"),
                                  std::string("fxgraph//ab")}) {
    EXPECT_FALSE(is_common_directory(path)) << path;
  }
}

TEST(CommonUse, IsToReadWhatAJobLooksUpByItsName) {
  for (const std::string& path :
       {"fxgraph/ab/" + kGraphKey + "/" + kHash, "aotautograd/" + kAutogradKey + "/" + kHash, "ab/" + kCode + ".py",
        "ab/" + kHex + ".best_config", "ab/" + kCode + ".main.so", "ab/" + kCode + ".kernel_perf",
        "precompiled_headers/" + kCode + ".h.gch", "cache/" + kHex, std::string("dynamo/code_state_job_0_tag.pkl"),
        "triton/0/" + kKey + "/__grp__k.json", "triton/0/" + kKey + "/k.cubin", std::string("memoizer_cache.json")}) {
    EXPECT_EQ(common_use_of(path), CommonUse::kRead) << path;
  }
}

TEST(CommonUse, IsToWriteForLocksInDirectoriesOfTorchAlone) {
  EXPECT_EQ(common_use_of("locks/" + kCode + ".lock"), CommonUse::kWrite);
  EXPECT_EQ(common_use_of("dynamo/code_state_job_0_tag.pkl.lock"), CommonUse::kWrite);
  EXPECT_EQ(common_use_of("dynamo/code_state_job_0_tag.pkl.tmp"), CommonUse::kWrite) << "all of a job's name write it";
  EXPECT_EQ(common_use_of("cache/name/dir.lock"), CommonUse::kWrite);
  EXPECT_EQ(common_use_of("triton/0/" + kKey + "/lock"), CommonUse::kWrite);
  for (const char* path : {"mine/poetry.lock", "uv.lock", "gcc/lock", "precompiled_headers/locks/x.lock"}) {
    EXPECT_EQ(common_use_of(path), CommonUse::kNone) << path;
  }
}

TEST(CommonUse, IsNoneOfTemporaryFilesToolsAndUnknownPaths) {
  for (const std::string& path : {std::string("ab/.1234.5678.tmp"), "ab/" + kCode + ".py.tmp",
                                  "triton/0/" + kKey + "/tmp.pid_7_" + kUuid + "/k.cubin",
                                  "ab/" + kCode + ".wrapper.cpp", "ab/" + kCode + ".debug", std::string("gcc/bin/cc"),
                                  std::string("mine/file"), std::string(), std::string("ab/../x.py")}) {
    EXPECT_EQ(common_use_of(path), CommonUse::kNone) << path;
  }
}

}  // namespace
}  // namespace inductorfs::layout
