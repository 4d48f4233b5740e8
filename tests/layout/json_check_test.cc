// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "content_checks.h"
#include "inductorfs/codec/digest.h"
#include "sample_names.h"

namespace inductorfs::layout {
namespace {

using Check = Result<void> (*)(const Artefact&);

::testing::AssertionResult takes(Check check, const std::string& text, std::string_view name = "x.json") {
  const auto checked = check({name, text, text.size()});
  if (checked) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << checked.error().to_string();
}

::testing::AssertionResult refuses(Check check, const std::string& text, std::string_view name = "x.json") {
  const auto checked = check({name, text, text.size()});
  if (checked) return ::testing::AssertionFailure() << text << " was accepted";
  if (checked.error().code() != ErrorCode::kCorrupt)
    return ::testing::AssertionFailure() << checked.error().to_string();
  return ::testing::AssertionSuccess();
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(JsonCheck, WantsTheWholeFile) {
  const Artefact head{"x", "{", 2};
  for (const Check check : {check_best_config, check_triton_metadata, check_triton_autotune, check_system_autotune}) {
    ASSERT_FALSE(check(head).has_value());
    EXPECT_EQ(check(head).error().code(), ErrorCode::kInvalid);
    EXPECT_TRUE(refuses(check, "{"));
    EXPECT_TRUE(refuses(check, "[]"));
    EXPECT_TRUE(refuses(check, "{}"));
  }
}

// ---- best_config

const std::string kTuning =
    R"({"XBLOCK": 16, "num_warps": 2, "num_stages": 1, "configs_hash": ")"
    R"(94bd6d25181c024bfe66a70b660f19018aa73a2b9c0ab64a2f281a7626b35dac", "found_by_coordesc": true, )"
    R"("time_taken_ms": 1027, "triton_cache_hash": null})";

TEST(BestConfigCheck, TakesWhatTorchWrites) {
  EXPECT_TRUE(takes(check_best_config, kTuning));
  EXPECT_TRUE(takes(check_best_config, replaced(kTuning, "null}", R"("B6KVWE", "num_consumer_groups": 0})")));
  EXPECT_TRUE(takes(check_best_config, replaced(kTuning, "null}", R"(null, "extra_options": {"a": [1]}})")));
  EXPECT_TRUE(takes(check_best_config, replaced(kTuning, "\"XBLOCK\": 16", R"("ALLOW_TF32": true, "ACC_TYPE": "x")")));
  EXPECT_TRUE(takes(check_best_config, replaced(kTuning, "1027", "NaN")));
}

TEST(BestConfigCheck, RefusesWhatWouldRaiseInTheJob) {
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"\"num_warps\": 2, ", ""},
                                                        {"\"num_warps\": 2", "\"num_warps\": 3"},
                                                        {"\"num_warps\": 2", "\"num_warps\": 0"},
                                                        {"\"num_warps\": 2", "\"num_warps\": \"2\""},
                                                        {"\"num_warps\": 2", "\"num_warps\": 2.0"},
                                                        {"\"num_warps\": 2", "\"num_warps\": -2"},
                                                        {"\"num_warps\": 2", "\"num_warps\": 18446744073709551618"},
                                                        {"\"num_stages\": 1, ", ""},
                                                        {"\"num_stages\": 1", "\"num_stages\": null"},
                                                        {"\"configs_hash\": \"94", "\"configs_hash\": \"9"},
                                                        {"\"configs_hash\": \"94", "\"configs_hash\": \"9G"},
                                                        {"\"configs_hash\"", "\"configs\""},
                                                        {"true", "1"},
                                                        {"1027", "\"1027\""},
                                                        {"null}", "7}"},
                                                        {"\"XBLOCK\": 16", "\"XBLOCK\": [16]"},
                                                        {"\"XBLOCK\": 16", "\"XBLOCK\": {}"},
                                                        {"null}", "null, \"num_consumer_groups\": \"0\"}"}}) {
    EXPECT_TRUE(refuses(check_best_config, replaced(kTuning, from, to))) << from << " -> " << to;
  }
}

// ---- Triton's metadata

const std::string kMetadata =
    R"({"hash": "570f", "target": {"backend": "cuda", "arch": 90, "warp_size": 32}, "num_warps": 4, "num_ctas": 1, )"
    R"("ptx_version": null, "supported_fp8_dtypes": ["fp8e5"], "shared": 36864, "tmem_size": 0, "name": "triton_mm"})";

TEST(MetadataCheck, TakesWhatTritonWrites) {
  EXPECT_TRUE(takes(check_triton_metadata, kMetadata));
  EXPECT_TRUE(takes(check_triton_metadata, replaced(kMetadata, R"("cuda", "arch": 90)", R"("hip", "arch": "gfx942")")));
}

TEST(MetadataCheck, RefusesWhatWouldRaiseInTheJob) {
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"\"target\"", "\"goal\""},
                                                        {"\"backend\": \"cuda\", ", ""},
                                                        {"\"backend\": \"cuda\"", "\"backend\": 1"},
                                                        {"\"arch\": 90, ", ""},
                                                        {"\"arch\": 90", "\"arch\": null"},
                                                        {", \"warp_size\": 32", ""},
                                                        {"\"warp_size\": 32", "\"warp_size\": \"32\""},
                                                        {", \"name\": \"triton_mm\"", ""},
                                                        {"\"name\": \"triton_mm\"", "\"name\": 1"},
                                                        {"\"num_warps\": 4, ", ""},
                                                        {"\"num_warps\": 4", "\"num_warps\": -4"},
                                                        {"\"shared\": 36864, ", ""},
                                                        {"\"shared\": 36864", "\"shared\": null"},
                                                        {"\"tmem_size\"", "\"class\""},
                                                        {"\"tmem_size\"", "\"_tmem\""},
                                                        {"\"tmem_size\"", "\"2nd\""},
                                                        {"\"tmem_size\"", "\"tmem-size\""},
                                                        {"\"tmem_size\"", "\"\""}}) {
    EXPECT_TRUE(refuses(check_triton_metadata, replaced(kMetadata, from, to))) << from << " -> " << to;
  }
}

TEST(TritonArchitecture, IsWhatTheMetadataNames) {
  EXPECT_EQ(triton_architecture(kMetadata), "9.0");
  EXPECT_EQ(triton_architecture(replaced(kMetadata, "\"arch\": 90", "\"arch\": 120")), "12.0");
  EXPECT_EQ(triton_architecture(replaced(kMetadata, "\"arch\": 90", "\"arch\": 86")), "8.6");
}

TEST(TritonArchitecture, IsEmptyWhereThereIsNone) {
  EXPECT_EQ(triton_architecture(replaced(kMetadata, "\"cuda\"", "\"hip\"")), "");
  EXPECT_EQ(triton_architecture(replaced(kMetadata, "\"arch\": 90", "\"arch\": \"90\"")), "");
  EXPECT_EQ(triton_architecture(replaced(kMetadata, "\"arch\": 90", "\"arch\": 9")), "");
  EXPECT_EQ(triton_architecture(replaced(kMetadata, "\"arch\": 90", "\"arch\": 9000")), "");
  EXPECT_EQ(triton_architecture(replaced(kMetadata, "\"target\"", "\"goal\"")), "");
  for (const char* text : {"", "{", "[]", "{}", R"({"target": 1})", R"({"target": {}})"}) {
    EXPECT_EQ(triton_architecture(text), "") << text;
  }
}

// ---- autotune.json

const std::string kPair =
    R"([{"kwargs": {"B": 128}, "num_warps": 2, "num_ctas": 1, "num_stages": 3, "maxnreg": null, "pre_hook": null, )"
    R"("ir_override": null}, [0.020006999373435974, 0.01957700029015541, Infinity]])";
const std::string kTimings = R"({"key": [5000, "torch.float32"], "configs_timings": [)" + kPair + ", " + kPair + "]}";

TEST(AutotuneCheck, TakesWhatTritonWrites) {
  EXPECT_TRUE(takes(check_triton_autotune, kTimings));
  EXPECT_TRUE(
      takes(check_triton_autotune, R"({"configs_timings": [[{"kwargs": {}, "num_warps": 4, "num_stages": 2}, 0.5]]})"));
}

TEST(AutotuneCheck, RefusesWhatWouldRaiseInTheJob) {
  EXPECT_TRUE(refuses(check_triton_autotune, R"({"configs_timings": []})"));
  EXPECT_TRUE(refuses(check_triton_autotune, R"({"configs_timings": {}})"));
  EXPECT_TRUE(refuses(check_triton_autotune, R"({"key": []})"));
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"{\"B\": 128}", "[]"},
           {"{\"B\": 128}", "{\"B\": [128]}"},
           {"\"kwargs\"", "\"arguments\""},
           {"\"num_warps\": 2", "\"num_warps\": 5"},
           {"\"num_stages\": 3, ", ""},
           {"\"maxnreg\": null", "\"maxnreg\": {}"},
           {"[0.020006999373435974, 0.01957700029015541, Infinity]", "[]"},
           {"[0.020006999373435974, 0.01957700029015541, Infinity]", "[\"a\"]"},
           {"[0.020006999373435974, 0.01957700029015541, Infinity]", "\"a\""},
           // min() cannot compare a number with a list.
           {"[0.020006999373435974, 0.01957700029015541, Infinity]", "0.5"}}) {
    EXPECT_TRUE(refuses(check_triton_autotune, replaced(kTimings, from, to))) << from << " -> " << to;
  }
  EXPECT_TRUE(
      refuses(check_triton_autotune, R"({"configs_timings": [[{"kwargs": {}, "num_warps": 4, "num_stages": 2}]]})"));
  const std::string config = R"({"kwargs": {}, "num_warps": 4, "num_stages": 2})";
  EXPECT_TRUE(takes(check_triton_autotune, "{\"configs_timings\": [[" + config + ", 0.5]]}"));
  EXPECT_TRUE(refuses(check_triton_autotune, "{\"configs_timings\": [[" + config + ", 0.5, 1]]}"));
  EXPECT_TRUE(refuses(check_triton_autotune, "{\"configs_timings\": [" + config + "]}"));
}

// ---- cache/<system hash>

TEST(SystemAutotuneCheck, HoldsTheNameToTheSystemThatItDescribes) {
  // shared with key_vectors.json's form: json.dumps({"device": ..., "version": ...}, sort_keys=True).
  const std::string hashed =
      R"({"device": {"name": "NVIDIA H100 80GB HBM3"}, "version": {"cuda": "13.2", "triton": "KEY"}})";
  const std::string name = codec::digest_of(hashed).to_hex();
  const auto file = [&name](const std::string& device,
                            const std::string& cache = R"({"mm": {"in": {"high": {"c": 0.5}}}})") {
    return R"({"system": {"version": {"triton": "KEY", "cuda": "13.2"}, "device": {"name": ")" + device +
           R"("}, "hash": ")" + name + R"("}, "cache": )" + cache + "}";
  };
  EXPECT_TRUE(takes(check_system_autotune, file("NVIDIA H100 80GB HBM3"), name));
  EXPECT_TRUE(refuses(check_system_autotune, file("NVIDIA H200"), name));
  EXPECT_TRUE(refuses(check_system_autotune, file("NVIDIA H100 80GB HBM3"), samples::kHex));
  for (const std::string cache : {R"({"mm": 1})", R"({"mm": {"in": []}})", R"({"mm": {"in": {"high": 0.5}}})", "[]"}) {
    EXPECT_TRUE(refuses(check_system_autotune, file("NVIDIA H100 80GB HBM3", cache), name)) << cache;
  }
}

/// torch up to 2.14 without a device: the hash of an empty system, whatever Triton is there.
TEST(SystemAutotuneCheck, KnowsTheEmptySystem) {
  const std::string name = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
  EXPECT_TRUE(takes(check_system_autotune, R"({"system": {"hash": ")" + name + R"("}, "cache": {}})", name));
}

/// The vector of torch 2.15 without a device, T = "KEY" (docs/formats.md).
TEST(SystemAutotuneCheck, KnowsTheSystemWithoutADevice) {
  const std::string name = "82451e8352a6a68cef96fa07cc97cf52794f80d8ebb5e49b98ab2745f59dd71a";
  EXPECT_TRUE(takes(check_system_autotune,
                    R"({"system": {"version": {"triton": "KEY"}, "hash": ")" + name + R"("}, "cache": {}})", name));
}

}  // namespace
}  // namespace inductorfs::layout
