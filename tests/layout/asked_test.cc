// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "inductorfs/layout/layout.h"
#include "sample_names.h"

namespace inductorfs::layout {
namespace {

using std::chrono::nanoseconds;

const std::string kTail(51, 'b');
const std::string kGraphKey = "fxgraph/bb/f" + kTail;
const std::string kTritonKey = "triton/0/" + std::string(52, 'A');

std::string asked(const std::string& path) {
  const auto key = key_asked_by(path);
  return key ? std::string(rule_of(key->family).name) + " " + key->key : std::string();
}

TEST(KeyAskedBy, IsADirectoryWhereCandidatesAre) {
  EXPECT_EQ(asked(kGraphKey), "fxgraph " + kGraphKey);
  EXPECT_EQ(asked("team/" + kGraphKey), "fxgraph " + kGraphKey) << "in any root";
  EXPECT_EQ(asked("aotautograd/a" + kTail), "aotautograd aotautograd/a" + kTail);
  EXPECT_EQ(asked(kGraphKey + "/" + std::string(51, 'c')), "") << "its directory was asked for before";
}

TEST(KeyAskedBy, IsTheGroupFileOfATritonKey) {
  const std::string key = "triton/@/" + std::string(52, 'A');
  EXPECT_EQ(asked(kTritonKey + "/__grp__kernel.json"), "triton_kernel " + key);
  EXPECT_EQ(asked(kTritonKey + "/kernel.cubin"), "");
  EXPECT_EQ(asked(kTritonKey), "");
}

TEST(KeyAskedBy, IsAFileOfItsOwnElsewhere) {
  const std::string code = "bb/c" + kTail + ".py";
  EXPECT_EQ(asked(code), "generated_code " + code);
  EXPECT_EQ(asked("locks/x.lock"), "");
  EXPECT_EQ(asked("some/notes.txt"), "");
  EXPECT_EQ(asked("fxgraph"), "");
}

TEST(KeyAskedBy, IsWhatAServingEngineLooksFor) {
  const std::string hash(64, 'a');
  const std::string model = "torch_compile_cache/torch_aot_compile/" + hash + "/rank_0_0/model";
  EXPECT_EQ(asked("vllm/" + model), "vllm_model " + model);
  EXPECT_EQ(asked("vllm/modelinfos/a-B.json"), "vllm_modelinfo modelinfos/a-B.json");
  const std::string kernel = "cache/kernel.gemm.00112233445566778899aabbccddeeff";
  EXPECT_EQ(asked("mine/" + kernel), "deep_gemm " + kernel) << "a directory";
  EXPECT_EQ(asked("mine/" + kernel + "/kernel.cubin"), "") << "its directory was asked for before";
  EXPECT_EQ(asked("0.1.15/linux-x86_64/kernels/" + hash), "tilelang linux-x86_64/kernels/" + hash);
  EXPECT_EQ(asked("0.1.15/linux-x86_64/kernels"), "");
  const std::string tagged = "torch_compile_cache/0123456789/rank_0_0/backbone/";
  EXPECT_EQ(asked(tagged + "vllm_compile_cache.py"), "vllm_index " + tagged + "vllm_compile_cache.py");
  EXPECT_EQ(asked(tagged + "artifact_compile_range_1_128_subgraph_0"), "");
  EXPECT_EQ(asked(tagged + "computation_graph.py"), "");
  const std::string build = "jit/sm90/norm/build-0123456789abcdef";
  EXPECT_EQ(asked("sglang/" + build), "sglang_jit " + build) << "SGLang lists it";
  EXPECT_EQ(asked("sglang/" + build + "/deps-0123456789abcdef"), "");
  EXPECT_EQ(asked("sglang/jit/sm90/norm"), "");
}

std::string graph_with(const std::string& value) {
  return "\x80\x04 torch._inductor.output_code\x8c\x0e_time_taken_ns\x94" + value +
         "\x8c\x03"
         "end.";
}

TEST(CompileTime, IsReadFromEachFormOfANumber) {
  const auto time = [](const std::string& value) { return compile_time_of(Family::kFxGraph, graph_with(value)); };
  EXPECT_EQ(time("K\x07"), nanoseconds(7));
  EXPECT_EQ(time("M\x01\x02"), nanoseconds(0x0201));
  EXPECT_EQ(time("J%\xe7\xd4\x32"), nanoseconds(0x32d4e725));
  EXPECT_EQ(time("\x8a\x05\xd1\x02"
                 "c\xe5\x01"),
            nanoseconds(0x01e56302d1));
}

TEST(CompileTime, IsNotMadeUp) {
  const auto time = [](const std::string& bytes) { return compile_time_of(Family::kFxGraph, bytes); };
  EXPECT_EQ(time(""), std::nullopt);
  EXPECT_EQ(time("\x8c\x15"
                 "forward_time_taken_ns\x94K\x07"),
            std::nullopt)
      << "another member";
  EXPECT_EQ(time(graph_with("J\xff\xff\xff\xff")), std::nullopt) << "negative";
  EXPECT_EQ(time(graph_with("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f")), std::nullopt) << "longer than a day";
  EXPECT_EQ(time(graph_with("\x8a\x20")), std::nullopt) << "too long a number";
  EXPECT_EQ(time(graph_with("N")), std::nullopt) << "None";
  const std::string whole = graph_with(
      "\x8a\x05\xd1\x02"
      "c\xe5\x01");
  const size_t end = whole.find(
      "\x8c\x03"
      "end");
  for (size_t size = 0; size < end; ++size) EXPECT_EQ(time(whole.substr(0, size)), std::nullopt) << size;
  EXPECT_EQ(compile_time_of(Family::kAotAutograd, whole), std::nullopt);
}

/// A graph of a model, with the members that GenericAOTAutogradResult pickles.
std::string bundled(const std::string& forward, const std::string& backward) {
  return "\x8c\x15"
         "forward_time_taken_ns\x94" +
         forward +
         "\x8c\x16"
         "backward_time_taken_ns\x94" +
         backward + "end";
}

TEST(CompileTime, IsThatOfAllGraphsOfAServingEngine) {
  const std::string graphs = bundled("M\x01\x02", "K\x02") + bundled("K\x07", std::string("K\0", 2));
  for (const Family family : {Family::kVllmModel, Family::kVllmIndex}) {
    EXPECT_EQ(compile_time_of(family, graphs), nanoseconds(0x0201 + 2 + 7)) << rule_of(family).name;
    EXPECT_EQ(compile_time_of(family, "no graph"), std::nullopt);
    EXPECT_EQ(compile_time_of(family, graphs + bundled("N", "K\x01")), std::nullopt) << "no number";
    EXPECT_EQ(compile_time_of(family, graph_with("K\x07")), std::nullopt) << "a graph's own time is in it too";
  }
  EXPECT_EQ(compile_time_of(Family::kFxGraph, graphs), std::nullopt);
  EXPECT_EQ(compile_time_of(Family::kDeepGemm, graphs), std::nullopt);
}

}  // namespace
}  // namespace inductorfs::layout
