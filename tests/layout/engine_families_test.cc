// SPDX-License-Identifier: Apache-2.0
// The paths are those of real caches (vLLM 0.32) and of the engines' own code: src/layout/engines has both.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "inductorfs/layout/layout.h"
#include "sample_names.h"

namespace inductorfs::layout {
namespace {

using namespace samples;

const std::string kShort = "5ec63b0231";
const std::string kHex16 = "0123456789abcdef";
const std::string kHex40 = "2d6a5a029eefcc388ec0ceb87efb55d8bcce5c3c";
const std::string kAot = "torch_compile_cache/torch_aot_compile/" + kHex;
const std::string kOldAot = "torch_aot_compile/" + kHex;
const std::string kRanks = "torch_compile_cache/" + kShort + "/rank_0_0";
const std::string kTagged = kRanks + "/backbone";
const std::string kKernelName = "kernel.sm90_fp8_gemm.00112233445566778899aabbccddeeff";
const std::string kJitBuild = "jit/sm90a/rmsnorm_bf16/build-" + kHex16;

struct Expectation {
  std::string path;  ///< below the root
  Family family;
  std::vector<std::string> roots{"", "vllm", "users/x/cache", "a/b/c/d/e/f/g/h/i/j"};
};

const std::vector<std::string> kSglang{"", "sglang", "users/x/.cache/sglang"};
const std::vector<std::string> kFlashInfer{"", "flashinfer", "sglang/.cache/flashinfer"};
const std::vector<std::string> kVersion{"", "0.1.15", "sglang/tilelang/0.1.15_cu130", ".tilelang/cache/0.1.15"};

const std::vector<Expectation>& engine_paths() {
  static const std::vector<Expectation> paths{
      {kAot + "/rank_0_0/model", Family::kVllmModel},
      {kAot + "/rank_17_3/model", Family::kVllmModel},
      {kAot + "/rank_0_0_dev1/model", Family::kVllmModel},
      {kOldAot + "/rank_0_0/model", Family::kVllmModel},
      {kAot + "/rank_0_0/model.7079.tmp", Family::kTemporary},
      {kAot + "/rank_0_0/tmpt7qme7za", Family::kTemporary},
      {kOldAot + "/rank_0_0/tmpt7qme7za", Family::kTemporary},
      {kAot + "/rank_0_0/model2", Family::kEnginePrivate},
      {kTagged + "/vllm_compile_cache.py", Family::kVllmIndex},
      {kRanks + "/Qwen2_5_VisionBlock/vllm_compile_cache.py", Family::kVllmIndex},
      {"torch_compile_cache/" + kShort + "/rank_0_0_dev3/backbone/vllm_compile_cache.py", Family::kVllmIndex},
      {kTagged + "/artifact_compile_range_1_128_subgraph_0", Family::kParcelMember},
      {kTagged + "/.7805.140668988194880.tmp", Family::kTemporary},
      {kTagged + "/cache_key_factors.json", Family::kVllmFactors},
      {kTagged + "/computation_graph.py", Family::kEnginePrivate},
      {kTagged + "/sglang_compile_cache.py", Family::kEnginePrivate},
      {kTagged + "/artifact_shape_None_subgraph_0", Family::kEnginePrivate},
      {kTagged + "/artifact_compile_range_1_128_subgraph_0/fxgraph/ab/" + kGraphKey + "/" + kHash,
       Family::kEnginePrivate},
      {kTagged + "/artifact_compile_range_1_128_subgraph_0/ab/" + kCode + ".main.so", Family::kEnginePrivate},
      {"modelinfos/vllm-model_executor-models-llama-LlamaForCausalLM.json", Family::kVllmModelInfo},
      {"modelinfos/tmp32t0hdb8", Family::kTemporary},
      {"modelinfos/readme", Family::kEnginePrivate},
      {"flashinfer_autotune_cache/0.7.2/90a/" + kHex + "/autotune_configs.json", Family::kFlashInferAutotune},
      {"flashinfer_autotune_cache/0.7.2/90a/" + kHex + "/.autotune_configs.json.ab12cd_e.tmp", Family::kTemporary},
      {"deep_gemm/cache/" + kKernelName, Family::kDeepGemm},
      {"deep_gemm/cache/" + kKernelName + "/kernel.cubin", Family::kParcelMember},
      {"deep_gemm/tmp/17-00000001-00000002-00000003/kernel.cu", Family::kTemporary},
      {"deep_gemm/locks/GEMM_n1_k2_g3.lock", Family::kLock},
      {"cache/" + kKernelName, Family::kDeepGemm},
      {"cache/" + kKernelName + "/kernel.cu", Family::kParcelMember},
      {"linux-x86_64/kernels/" + kHex, Family::kTileLang, kVersion},
      {"linux-aarch64/kernels/" + kHex + "/manifest.json", Family::kParcelMember, kVersion},
      {"linux-x86_64/.staging/" + kHex + "_17_0a1b2c3d/kernel_lib.so", Family::kTemporary, kVersion},
      {"linux-x86_64/autotuner/" + kHex + "/best_config.json", Family::kEnginePrivate, kVersion},
      {"cuda-binaries/" + kHex, Family::kTileLang, kVersion},
      {"cuda-binaries/" + kHex + "/metadata.json", Family::kParcelMember, kVersion},
      {".staging/cuda-binaries/" + kHex + ".17." + kHex16 + "/metadata.json", Family::kTemporary, kVersion},
      {"autotune/v2/" + kHex16 + "/entries/0123456789abcdef01234567.json", Family::kFlashInferAutotune, kFlashInfer},
      {"autotune/v2/" + kHex16 + "/entries/.autotune_ab12cd_e.tmp", Family::kTemporary, kFlashInfer},
      {"autotune/v2/" + kHex16 + "/manifest.json", Family::kEnginePrivate, kFlashInfer},
      {"autotune/0.7.2/90a/" + kHex16 + "/rank_tp0_pp0_dp0.json", Family::kEnginePrivate, kFlashInfer},
      {"cubins/" + kHex40 + "/fmha/trtllm-gen/fmhaSm100a.cubin", Family::kFlashInferCubin, kFlashInfer},
      {"cubins/" + kHex40 + "/fmha/cute-dsl/x86_64/sm_100a/k.so", Family::kFlashInferCubin, kFlashInfer},
      {"cubins/" + kHex40 + "/gemm-b738138-25754e6/include/flashinferMetaInfo.h", Family::kFlashInferCubin,
       kFlashInfer},
      {"cubins/" + kHex40 + "/deep-gemm/checksums.txt", Family::kFlashInferCubin, kFlashInfer},
      {"cubins/" + kHex40 + "/fmha/k.cubin." + kHex.substr(0, 32) + ".tmp", Family::kTemporary, kFlashInfer},
      {"cubins/" + kHex40 + "/fmha/k.cubin.lock", Family::kLock, kFlashInfer},
      {"cubins/" + kHex40 + "/fmha/trtllmGen_bmm_export", Family::kEnginePrivate, kFlashInfer},
      {kJitBuild + "/deps-" + kHex16, Family::kSglangJit, kSglang},
      {kJitBuild + "/deps-" + kHex16 + "/rmsnorm_bf16.so", Family::kParcelMember, kSglang},
      {kJitBuild + "/.staging-" + kHex.substr(0, 32) + "/cuda_0.o", Family::kTemporary, kSglang},
      {kJitBuild + "/.lock", Family::kLock, kSglang},
      {kJitBuild + "/notes", Family::kEnginePrivate, kSglang},
  };
  return paths;
}

std::string join(const std::string& root, const std::string& path) { return root.empty() ? path : root + "/" + path; }

TEST(EngineFamilies, AreKnownInEachRoot) {
  for (const Expectation& row : engine_paths()) {
    for (const std::string& root : row.roots) {
      const std::string path = join(root, row.path);
      const Classification classified = classify(path);
      EXPECT_EQ(rule_of(classified.family).name, rule_of(row.family).name) << path;
      EXPECT_EQ(classified.root, root) << path;
      EXPECT_EQ(classified.canonical, row.path) << path;
      EXPECT_TRUE(is_in_a_root(path)) << path;
    }
    EXPECT_EQ(classify(row.path).family, row.family) << "the canonical path says it too: " << row.path;
  }
}

/// A directory of this program stands between a root and its names (vfs/tree/branch_paths.h).
TEST(EngineFamilies, AreKnownInTheDirectoryOfAnEnvironment) {
  for (const std::string& path :
       {"flashinfer/.inductorfs-environment-0123456789abcdef/cubins/" + kHex40 + "/fmha/k.cubin",
        "sglang/.inductorfs-environment-0123456789abcdef/" + kJitBuild + "/deps-" + kHex16,
        "0.1.15/.inductorfs-environment-0123456789abcdef/linux-x86_64/kernels/" + kHex,
        ".inductorfs-environment-0123456789abcdef/" + kJitBuild + "/deps-" + kHex16}) {
    EXPECT_TRUE(rule_of(classify(path).family).shared) << path;
    EXPECT_TRUE(classify(path).root.ends_with(".inductorfs-environment-0123456789abcdef")) << path;
  }
}

TEST(EngineFamilies, AreReachedByDirectoriesOfTheSameRoot) {
  for (const Expectation& row : engine_paths()) {
    for (const std::string& root : row.roots) {
      for (size_t slash = row.path.find('/'); slash != std::string::npos; slash = row.path.find('/', slash + 1)) {
        const std::string directory = join(root, row.path.substr(0, slash));
        EXPECT_TRUE(is_in_a_root(directory)) << directory;
        EXPECT_EQ(name_of(directory), (Name{row.path.substr(0, slash), root})) << directory;
        EXPECT_EQ(is_ambiguous(name_of(directory)), row.path.substr(0, slash) == "cache") << directory;
      }
    }
  }
}

TEST(EngineFamilies, LeaveRootsOfTorchAndTritonInsideAlone) {
  for (const std::string& root :
       {"vllm/" + kAot + "/inductor_cache", "vllm/" + kRanks + "/inductor_cache", "vllm/" + kRanks + "/triton_cache",
        "sglang/" + kTagged + "/inductor_cache", "sglang/" + kTagged + "/triton_cache",
        "a/b/c/d/e/f/g/h/" + kRanks + "/inductor_cache"}) {
    EXPECT_FALSE(is_in_a_root(root)) << root;
    EXPECT_EQ(name_of(root + "/ab/" + kCode + ".py"), (Name{"ab/" + kCode + ".py", root}));
    EXPECT_EQ(name_of(root + "/" + kKey + "/k.cubin"), (Name{"triton/@/" + kKey + "/k.cubin", root}));
    EXPECT_EQ(name_of(root + "/fxgraph"), (Name{"fxgraph", root}));
  }
  EXPECT_EQ(name_of("sglang/triton/" + kKey).root, "sglang") << "its own triton is no root beside it";
  EXPECT_EQ(name_of("sglang/inductor/fxgraph").root, "sglang/inductor");
}

TEST(EngineFamilies, ShareNothingOfAnotherShape) {
  for (const std::string& path : {kAot + "/rank_0/model",
                                  kAot + "/rank_0_0_gpu1/model",
                                  kAot + "/rank_x_0/model",
                                  kAot + "/rank_0_0/model/model",
                                  kAot + "/model",
                                  "torch_compile_cache/torch_aot_compile/" + kHex.substr(1) + "/rank_0_0/model",
                                  "torch_compile_cache/" + kShort + "0/rank_0_0/backbone/vllm_compile_cache.py",
                                  "torch_compile_cache/" + kShort + "/rank_0_0/vllm_compile_cache.py",
                                  "torch_compile_cache/" + kShort + "/rank_0_0/two words/vllm_compile_cache.py",
                                  "torch_compile_cache/" + kShort + "/rank_0_0/0tag/vllm_compile_cache.py",
                                  kTagged + "/deeper/vllm_compile_cache.py",
                                  std::string("vllm_compile_cache.py"),
                                  std::string("modelinfos/deeper/a-B.json"),
                                  std::string("modelinfos/.a-B.json"),
                                  "flashinfer_autotune_cache/0.7.2/90a/" + kHex + "/deeper/autotune_configs.json",
                                  std::string("deep_gemm/cache/kernel.sm90_fp8_gemm.00112233445566778899aabbccddee"),
                                  std::string("deep_gemm/cache/kernel..00112233445566778899aabbccddeeff"),
                                  std::string("deep_gemm/cache/kernel.a.b.00112233445566778899aabbccddeeff"),
                                  "deep_gemm/" + kKernelName,
                                  "linux-x86_64/kernels/" + kHex.substr(1),
                                  "darwin-arm64/kernels/" + kHex,
                                  "rocm/linux-x86_64/kernels/" + kHex,
                                  "x/cuda-binaries/" + kHex,
                                  std::string("x/.staging/cuda-binaries/a"),
                                  "ascend-binaries/" + kHex,
                                  "csrc/jit/sm90a/rmsnorm_bf16/build-" + kHex16 + "/deps-" + kHex16,
                                  "jit/gfx942/rmsnorm_bf16/build-" + kHex16 + "/deps-" + kHex16,
                                  "jit/sm90a/.rmsnorm/build-" + kHex16 + "/deps-" + kHex16,
                                  kJitBuild + "/deps-" + kHex16 + "0",
                                  "mine/cubins/" + kHex40 + "/fmha/k.cubin",
                                  "mine/autotune/v2/" + kHex16 + "/entries/0123456789abcdef01234567.json",
                                  std::string("flashinfer/0.7.2/90a/cached_ops/op/op.so"),
                                  std::string("tvm-ffi/name_0123456789abcdef/name.so"),
                                  std::string("py312_cu130/name/name.so"),
                                  std::string("nv/ComputeCache/a/b"),
                                  std::string("sglang/cute_aot/a.o")}) {
    EXPECT_FALSE(rule_of(classify(path).family).shared) << path;
    EXPECT_NE(classify(path).family, Family::kParcelMember) << path;
  }
}

TEST(EngineFamilies, TakeNoOrdinaryNamesFromUsers) {
  for (const std::string& path :
       {std::string("torch/csrc/jit"), std::string("torch/csrc/jit/api"), std::string("src/autotune"),
        std::string("mine/cubins"), std::string("prebuilt/linux-x86_64"), std::string("x/.staging"),
        std::string("x/cuda-binaries"), std::string("mine/deep_gemm/jit"), std::string("mine/kernels"),
        std::string("vllm/dummy_cache"), std::string("vllm/assets"), std::string("tmpab_1xyz9/modelinfos")}) {
    EXPECT_FALSE(is_in_a_root(path)) << path;
    EXPECT_FALSE(rule_of(classify(path).family).shared) << path;
  }
}

TEST(EngineFamilies, SayWhichFilesOfAnEngineStayOnTheHost) {
  for (const char* path : {"vllm/gpu_p2p_access_cache_for_0,1.json", "startup_plan/startup_plan_0123456789abcdef.json",
                           "sglang/gpu_p2p_access_cache_for_0.json"}) {
    EXPECT_EQ(classify(path).family, Family::kEnginePrivate) << path;
    EXPECT_EQ(common_use_of(path), CommonUse::kRead) << path;
  }
  EXPECT_EQ(classify("vllm/startup_plan/startup_plan_0123456789abcdef.json.tmp.17").family, Family::kTemporary);
}

TEST(EngineFamilies, HaveTheDirectoriesOfAllUsers) {
  for (const std::string& path :
       {std::string("vllm/torch_compile_cache"), "vllm/torch_compile_cache/" + kShort, "vllm/" + kRanks,
        "vllm/" + kTagged, "vllm/" + kAot, "vllm/" + kAot + "/rank_0_0", std::string("vllm/modelinfos"),
        "vllm/flashinfer_autotune_cache/0.7.2/90a/" + kHex, std::string("vllm/deep_gemm"),
        std::string("vllm/deep_gemm/cache"), std::string("vllm/deep_gemm/tmp"), std::string("vllm/deep_gemm/locks"),
        std::string("0.1.15/linux-x86_64/kernels"), std::string("0.1.15/linux-x86_64/.staging"),
        std::string("0.1.15/.staging/cuda-binaries"), "flashinfer/cubins/" + kHex40 + "/fmha/trtllm-gen",
        "flashinfer/autotune/v2/" + kHex16 + "/entries", std::string("sglang/jit"), "sglang/" + kJitBuild}) {
    EXPECT_TRUE(is_common_directory(path)) << path;
  }
  for (const std::string& path :
       {"vllm/deep_gemm/cache/" + kKernelName, "vllm/cache/" + kKernelName,
        std::string("vllm/deep_gemm/tmp/17-00000001-00000002-00000003"), "0.1.15/linux-x86_64/kernels/" + kHex,
        "0.1.15/linux-x86_64/.staging/" + kHex + "_17_0a1b2c3d", "sglang/" + kJitBuild + "/deps-" + kHex16,
        "sglang/" + kJitBuild + "/.staging-" + kHex.substr(0, 32),
        "vllm/" + kTagged + "/artifact_compile_range_1_128_subgraph_0", std::string("vllm")}) {
    EXPECT_FALSE(is_common_directory(path)) << path;
  }
  EXPECT_EQ(common_use_of("vllm/deep_gemm/locks/GEMM_n1_k2_g3.lock"), CommonUse::kWrite);
  EXPECT_EQ(common_use_of("sglang/" + kJitBuild + "/.lock"), CommonUse::kWrite);
  EXPECT_EQ(common_use_of("vllm/" + kAot + "/rank_0_0/model"), CommonUse::kRead) << "its mode is 0600";
  EXPECT_EQ(common_use_of("vllm/modelinfos/a-B.json"), CommonUse::kRead) << "its mode is 0600";
  EXPECT_EQ(common_use_of("vllm/modelinfos/tmp32t0hdb8"), CommonUse::kNone);
}

}  // namespace
}  // namespace inductorfs::layout
