// SPDX-License-Identifier: Apache-2.0
#include <elf.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "elf_builder.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/layout/layout.h"
#include "parcel_builder.h"
#include "sample_names.h"
#include "shared_object.h"

namespace inductorfs::layout {
namespace {

using namespace samples;

const std::string kAot = "vllm/torch_compile_cache/torch_aot_compile/" + kHex;
const std::string kTagged = "torch_compile_cache/30d3fb613a/rank_0_0/backbone";
const std::string kIndex = "vllm/" + kTagged + "/vllm_compile_cache.py";
const std::string kDeepGemm = "deep_gemm/cache/kernel.sm90_fp8_gemm.00112233445566778899aabbccddeeff";
const std::string kPickle = "\x80\x04]\x94.";

std::string cubin(uint32_t flags = 0x005a0d5a) {
  Sections file;
  file.type = ET_EXEC;
  file.machine = kMachineCuda;
  file.abi_version = 7;
  file.flags = flags;
  file.sections = {{SHT_PROGBITS, "code"}};
  return file.build();
}

std::string library() {
  SharedObject file;
  file.libraries = {"libtvm_ffi.so"};
  return file.build();
}

HostLimits host_with(std::vector<int> architectures) {
  HostLimits host;
  host.cuda_architectures = std::move(architectures);
  host.glibc = "2.36";
  host.resolves = [](std::string_view) { return false; };
  return host;
}

std::string outcome(const std::string& path, const std::string& bytes, const HostLimits& host = {}) {
  const auto checked = check_content(classify(path), bytes, bytes.size(), host);
  if (checked) return "sound";
  EXPECT_FALSE(checked.error().what().empty());
  return checked.error().code() == ErrorCode::kCorrupt        ? "corrupt"
         : checked.error().code() == ErrorCode::kNotSupported ? "foreign"
                                                              : checked.error().to_string();
}

TEST(CheckModel, WantsAWholePickle) {
  const std::string path = kAot + "/rank_0_0/model";
  EXPECT_EQ(outcome(path, kPickle), "sound");
  EXPECT_EQ(outcome(path, ""), "corrupt");
  EXPECT_EQ(outcome(path, kPickle.substr(0, kPickle.size() - 1)), "corrupt");
  EXPECT_EQ(outcome(path, std::string(kPickle.size(), '\0')), "corrupt");
  EXPECT_EQ(outcome(path, kPickle + "."), "corrupt");
  const auto head = check_content(classify(path), kPickle, kPickle.size() + 1);
  ASSERT_FALSE(head);
  EXPECT_EQ(head.error().code(), ErrorCode::kInvalid);
}

/// BINUNICODE, with the code in it as Inductor generates it.
std::string model_for(const std::string& device) {
  const std::string code = "stream = get_raw_stream(" + device + ")\ndef get_raw_stream(_): return 0\n";
  return "\x80\x04X" + std::string(1, static_cast<char>(code.size())) + std::string(3, '\0') + code + ".";
}

TEST(CheckModel, KeepsCodeOfADeviceThatItsRankHasNowhereElse) {
  EXPECT_EQ(outcome(kAot + "/rank_0_0/model", model_for("0")), "sound");
  EXPECT_EQ(outcome(kAot + "/rank_0_0/model", model_for("1")), "foreign") << "invalid argument, wherever it is 0";
  EXPECT_EQ(outcome(kAot + "/rank_3_0/model", model_for("3")), "sound");
  EXPECT_EQ(outcome(kAot + "/rank_3_0/model", model_for("0")), "sound") << "each process sees its own device only";
  EXPECT_EQ(outcome(kAot + "/rank_3_0/model", model_for("4")), "foreign");
  EXPECT_EQ(outcome(kAot + "/rank_0_1/model", model_for("4")), "sound") << "how many ranks an engine has is unknown";
  EXPECT_EQ(outcome(kAot + "/rank_0_0_dev4/model", model_for("4")), "sound") << "the path says it";
  EXPECT_EQ(outcome(kAot + "/rank_0_0/model", model_for("device")), "sound");
  EXPECT_EQ(outcome(kAot + "/rank_0_0/model", model_for("99999999999999999999")), "sound") << "no index";
}

Contents index_parcel(int graphs = 2) {
  Contents files{{"vllm_compile_cache.py", index_of("/cache/vllm/" + kTagged, graphs)}};
  for (int i = 0; i < graphs; ++i) files[kArtifact + std::to_string(i)] = compiled_artifact();
  return files;
}

TEST(CheckIndex, WantsAllThatItNamesAndNothingElse) {
  const Contents whole = index_parcel();
  EXPECT_EQ(outcome(kIndex, parcel_of(whole)), "sound");
  for (const auto& [name, body] : whole) {
    Contents files = whole;
    files.erase(name);
    EXPECT_EQ(outcome(kIndex, parcel_of(files)), "corrupt") << "without " << name;
    files[name] = "";
    EXPECT_EQ(outcome(kIndex, parcel_of(files)), "corrupt") << name << " of 0 bytes";
    files[name] = std::string(body.size(), '\0');
    EXPECT_EQ(outcome(kIndex, parcel_of(files)), "corrupt") << name << " of zeros";
  }
  for (const std::string& extra : {kArtifact + "7", std::string("computation_graph.py"), std::string("deeper/")}) {
    Contents files = whole;
    files[extra] = extra.ends_with('/') ? "" : compiled_artifact();
    EXPECT_EQ(outcome(kIndex, parcel_of(files)), "corrupt") << extra;
  }
}

TEST(CheckIndex, IsOfItsOwnDirectory) {
  Contents files = index_parcel();
  files["vllm_compile_cache.py"] = index_of("/other/mount/vllm/" + kTagged, 2);
  EXPECT_EQ(outcome(kIndex, parcel_of(files)), "sound") << "where the mount lies is its reader's to compare";
  for (const std::string directory : {"/cache/vllm/torch_compile_cache/ffffffffff/rank_0_0/backbone",
                                      "/cache/vllm/torch_compile_cache/30d3fb613a/rank_1_0/backbone", "/backbone"}) {
    files["vllm_compile_cache.py"] = index_of(directory, 2);
    EXPECT_EQ(outcome(kIndex, parcel_of(files)), "foreign") << directory;
  }
}

TEST(CheckIndex, WantsArtefactsThatTorchLoads) {
  const std::string key(32, 'k');
  const std::vector<std::pair<std::string, std::string>> artefacts{
      {compiled_artifact(), "sound"},
      {pieces({"AOTCompiledArtifact", key, "graph"}), "sound"},
      {pieces({key, "YWJj", "graph"}), "sound"},  // torch 2.8, 2.9
      {pieces({"CacheCompiledArtifact", key, "YWJj"}), "corrupt"},
      {pieces({"CacheCompiledArtifact", key, "YWJj", ""}), "corrupt"},
      {pieces({"CacheCompiledArtifact", key, "not base64", "graph"}), "corrupt"},
      {pieces({"CacheCompiledArtifact", key.substr(1), "YWJj", "graph"}), "corrupt"},
      {pieces({"CacheCompiledArtifact", key, "YWJj", "graph", "more"}), "corrupt"},
      {pieces({"AOTCompiledArtifact", key, "graph", "more"}), "corrupt"},
      {pieces({"OtherArtifact", key, "YWJj", "graph"}), "corrupt"},
      {pieces({}), "corrupt"},
      {compiled_artifact("stream = get_raw_stream(0)"), "sound"},
      {compiled_artifact("stream = get_raw_stream(1)"), "foreign"},
  };
  for (const auto& [artefact, expected] : artefacts) {
    Contents files = index_parcel();
    files[kArtifact + "1"] = artefact;
    EXPECT_EQ(outcome(kIndex, parcel_of(files)), expected) << artefact;
  }
  for (size_t size = 0; size < compiled_artifact().size(); ++size) {
    Contents files = index_parcel();
    files[kArtifact + "1"].resize(size);
    EXPECT_EQ(outcome(kIndex, parcel_of(files)), "corrupt") << size;
    files[kArtifact + "1"] = compiled_artifact();
    files[kArtifact + "1"][size] ^= 1;
    EXPECT_EQ(outcome(kIndex, parcel_of(files)), "corrupt") << "a flipped bit in byte " << size;
  }
}

TEST(CheckParcel, TakesNoPartOfOne) {
  const std::string whole = parcel_of(index_parcel());
  for (size_t size = 1; size < whole.size(); ++size) EXPECT_EQ(outcome(kIndex, whole.substr(0, size)), "corrupt");
  EXPECT_EQ(outcome(kIndex, whole + "x"), "corrupt");
  std::string newer = whole;
  newer[4] = 2;
  EXPECT_EQ(outcome(kIndex, newer), "foreign") << "of a newer release";
}

TEST(CheckModelInfo, WantsWhatVllmReads) {
  const std::string path = "vllm/modelinfos/a-B.json";
  EXPECT_EQ(outcome(path, R"({"hash": "0a1b", "modelinfo": {"architecture": "B"}})"), "sound");
  for (const char* text : {"", "{}", "[]", R"({"hash": "0a1b"})", R"({"hash": "", "modelinfo": {"a": 1}})",
                           R"({"hash": 1, "modelinfo": {"a": 1}})", R"({"hash": "0a1b", "modelinfo": {}})",
                           R"({"hash": "0a1b", "modelinfo": []})", R"({"hash": "0a1b", "modelinfo": {"a": 1})"}) {
    EXPECT_EQ(outcome(path, text), "corrupt") << text;
  }
}

TEST(CheckFactors, WantsThoseOfAHashOfVllm) {
  const std::string path = kTagged + "/cache_key_factors.json";
  const std::string whole = R"({"code_hash": "6", "env": {"VLLM_DP_RANK": 0, "VLLM_PLUGINS": null}})";
  EXPECT_EQ(outcome(path, whole), "sound");
  for (const std::string& bad : {std::string(), whole.substr(0, 40), std::string("[]"), std::string(R"({"env": 1})")}) {
    EXPECT_EQ(outcome(path, bad), "corrupt") << bad;
  }
  EXPECT_EQ(outcome(path, R"({"env": {"x": ")" + std::string(kVllmFactorsLimit, 'x') + "\"}}"), "corrupt");
}

TEST(CheckFlashInfer, WantsTuningsOfItsForm) {
  const std::string path = "vllm/flashinfer_autotune_cache/0.7.2/90a/" + kHex + "/autotune_configs.json";
  EXPECT_EQ(outcome(path, "{}"), "sound");
  EXPECT_EQ(outcome(path, R"({"_metadata": {"gpu": "H100"}, "_generation": "x", "_records": {}, "op": ["R", [1, 2]],
                              "other": ["R", -1, ["eager", null]]})"),
            "sound");
  for (const char* text : {"", "[]", R"({"op": ["R"]})", R"({"op": "R"})", R"({"op": [1, 2]})", R"({"op": null})",
                           R"({"op": ["R", 1, 2]})", R"({"op": ["R", 1, [], 3]})", R"({"_metadata": 1})",
                           R"({"_records": []})", R"({"op": ["R", 1])"}) {
    EXPECT_EQ(outcome(path, text), "corrupt") << text;
  }
}

TEST(CheckFlashInfer, HoldsAnEntryToItsKey) {
  const std::string key = "('op', 'Runner', ((1, 2),), ())";
  const std::string entries = "flashinfer/autotune/v2/0123456789abcdef/entries/";
  const std::string path = entries + codec::digest_of(key).to_hex().substr(0, 24) + ".json";
  const std::string text = R"({"key": ")" + key + R"(", "runner": "R", "tactic": 3})";
  EXPECT_EQ(outcome(path, text), "sound");
  EXPECT_EQ(outcome(entries + std::string(24, 'a') + ".json", text), "corrupt") << "of another key";
  EXPECT_EQ(outcome(path, R"({"key": ")" + key + R"(", "runner": "R"})"), "corrupt");
  EXPECT_EQ(outcome(path, R"({"key": ")" + key + R"(", "tactic": 3})"), "corrupt");
}

TEST(CheckFlashInfer, WantsCodeOfItsKind) {
  const std::string directory = "flashinfer/cubins/2d6a5a029eefcc388ec0ceb87efb55d8bcce5c3c/";
  EXPECT_EQ(outcome(directory + "fmha/k.cubin", cubin(), host_with({90})), "sound");
  EXPECT_EQ(outcome(directory + "fmha/k.cubin", cubin(), host_with({80})), "foreign");
  EXPECT_EQ(outcome(directory + "fmha/k.cubin", "<html>not found</html>"), "corrupt");
  EXPECT_EQ(outcome(directory + "fmha/k.so", library(), host_with({90})), "sound") << "tvm-ffi is loaded already";
  EXPECT_EQ(outcome(directory + "fmha/k.so", cubin()), "foreign");
  EXPECT_EQ(outcome(directory + "include/m.h", "#pragma once\n"), "sound");
  EXPECT_EQ(outcome(directory + "checksums.txt", std::string("a\0b", 3)), "corrupt");
}

TEST(CheckDeepGemm, WantsBothFilesAndNoOthers) {
  const Contents whole{{"kernel.cu", "__global__"}, {"kernel.cubin", cubin()}};
  EXPECT_EQ(outcome(kDeepGemm, parcel_of(whole), host_with({90})), "sound");
  EXPECT_EQ(outcome("mine/" + kDeepGemm.substr(10), parcel_of(whole), host_with({90})), "sound");
  EXPECT_EQ(outcome(kDeepGemm, parcel_of(whole), host_with({80})), "foreign");
  for (const auto& [name, body] : whole) {
    Contents files = whole;
    files.erase(name);
    EXPECT_EQ(outcome(kDeepGemm, parcel_of(files)), "corrupt") << "without " << name;
    files[name] = "";
    EXPECT_EQ(outcome(kDeepGemm, parcel_of(files)), "corrupt") << name;
    files[name] = std::string(body.size(), '\0');
    EXPECT_EQ(outcome(kDeepGemm, parcel_of(files)), "corrupt") << name;
    files[name] = body;
    files["kernel.sass"] = "dump";
    EXPECT_EQ(outcome(kDeepGemm, parcel_of(files)), "corrupt");
  }
  EXPECT_EQ(outcome(kDeepGemm, parcel_of({})), "corrupt");
  EXPECT_EQ(outcome(kDeepGemm, cubin()), "corrupt") << "no parcel";
}

std::string record_of(const std::string& body) {
  return R"("size": )" + std::to_string(body.size()) + R"(, "sha256": ")" + codec::digest_of(body).to_hex() + "\"";
}

Contents with_manifest(Contents files) {
  std::string records;
  for (const auto& [name, body] : files) {
    records += (records.empty() ? "\"" : ", \"") + name + "\": {" + record_of(body) + "}";
  }
  files["manifest.json"] = R"({"version": 1, "files": {)" + records + "}}";
  return files;
}

TEST(CheckTileLang, HoldsAKernelToItsManifest) {
  const std::string path = "0.1.15/linux-x86_64/kernels/" + kHex;
  const Contents files{
      {"device_kernel.cu", "d"}, {"host_kernel.cu", ""}, {"params.json", "[]"}, {"kernel_lib.so", library()}};
  EXPECT_EQ(outcome(path, parcel_of(with_manifest(files)), host_with({90})), "sound");
  EXPECT_EQ(outcome(path, parcel_of(files)), "corrupt") << "without a manifest";
  for (const std::string name : {"params.json", "kernel_lib.so", "device_kernel.cu"}) {
    Contents part = with_manifest(files);
    part.erase(name);
    EXPECT_EQ(outcome(path, parcel_of(part)), "corrupt") << name;
    part[name] = "other";
    EXPECT_EQ(outcome(path, parcel_of(part)), "corrupt") << name;
  }
  Contents more = with_manifest(files);
  more["extra.py"] = "print()";
  EXPECT_EQ(outcome(path, parcel_of(more)), "corrupt");
  Contents no_code = files;
  no_code.erase("kernel_lib.so");
  EXPECT_EQ(outcome(path, parcel_of(with_manifest(no_code))), "corrupt");
  Contents foreign = no_code;
  foreign["kernel.cubin"] = cubin();
  EXPECT_EQ(outcome(path, parcel_of(with_manifest(foreign)), host_with({90})), "sound") << "made by nvrtc";
  EXPECT_EQ(outcome(path, parcel_of(with_manifest(foreign)), host_with({80})), "foreign");
  no_code["kernel_lib.so"] = "no ELF";
  EXPECT_EQ(outcome(path, parcel_of(with_manifest(no_code))), "corrupt");
}

TEST(CheckTileLang, HoldsABinaryToItsMetadata) {
  const std::string path = "0.1.15/cuda-binaries/" + kHex;
  const auto binary = [](const std::string& name, const std::string& body, const std::string& recorded) {
    return parcel_of(
        {{name, body},
         {"metadata.json", R"({"format": "tilelang.cuda-binary-cache.v1", )" + record_of(recorded) + "}"}});
  };
  EXPECT_EQ(outcome(path, binary("kernel.cubin", cubin(), cubin()), host_with({90})), "sound");
  EXPECT_EQ(outcome(path, binary("kernel.cubin", cubin(), cubin()), host_with({80})), "foreign");
  EXPECT_EQ(outcome(path, binary("kernel.cubin", cubin(), cubin() + "x")), "corrupt");
  EXPECT_EQ(outcome(path, binary("kernel.cubin", "", "")), "corrupt");
  EXPECT_EQ(outcome(path, binary("kernel.fatbin", cubin(), cubin())), "foreign");
  EXPECT_EQ(outcome(path, binary("zzz", cubin(), cubin())), "foreign") << "in any order";
  EXPECT_EQ(outcome(path, parcel_of({{"kernel.cubin", cubin()}})), "corrupt");
  EXPECT_EQ(outcome(path, parcel_of({{"kernel.cubin", cubin()}, {"metadata.json", R"({"format": "v2"})"}})), "foreign");
}

/// What hashlib gives for repr() of the tuples of this list, each with a NUL behind it.
const std::string kDependencies = R"([["kernels","a.cuh","11"],["toolkit","include/cuda.h","22"]])";
const std::string kDepsKey = "f5bff11dad65d374";

TEST(CheckSglangJit, HoldsALibraryToItsDependencies) {
  const std::string build = "sglang/jit/sm90/norm/build-0123456789abcdef/";
  const Contents whole{
      {"norm.so", library()}, {"sgl_deps.json", kDependencies}, {"build.ninja", ""}, {"cuda_0.o", "o"}};
  EXPECT_EQ(outcome(build + "deps-" + kDepsKey, parcel_of(whole), host_with({90})), "sound");
  EXPECT_EQ(outcome(build + "deps-0123456789abcdef", parcel_of(whole)), "corrupt") << "of other dependencies";
  EXPECT_EQ(outcome("sglang/jit/sm90/other/build-0123456789abcdef/deps-" + kDepsKey, parcel_of(whole)), "corrupt");
  for (const std::string name : {"norm.so", "sgl_deps.json"}) {
    Contents files = whole;
    files.erase(name);
    EXPECT_EQ(outcome(build + "deps-" + kDepsKey, parcel_of(files)), "corrupt") << name;
    for (const char* body : {"", "[]", "{}", "[[]]", R"([["a","b"]])", R"([["a","b",1]])", "not JSON"}) {
      files[name] = body;
      EXPECT_NE(outcome(build + "deps-" + kDepsKey, parcel_of(files)), "sound") << name << body;
    }
  }
  Contents quoted = whole;
  quoted["sgl_deps.json"] = R"([["kernels","it's","11"]])";
  EXPECT_EQ(outcome(build + "deps-" + kDepsKey, parcel_of(quoted)), "foreign");
}

}  // namespace
}  // namespace inductorfs::layout
