// SPDX-License-Identifier: Apache-2.0
#include <elf.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "elf_builder.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/layout/layout.h"
#include "sample_names.h"
#include "shared_object.h"

namespace inductorfs::layout {
namespace {

using namespace samples;

/// Sections and a body, as a linker or ptxas writes them.
std::string elf(uint16_t type, uint16_t machine) {
  Sections file;
  file.type = type;
  file.machine = machine;
  file.sections = {{SHT_PROGBITS, std::string(300, 'c')}};
  return file.build();
}

std::string kernel(const std::string& name) { return "triton/0/" + kKey + "/" + name; }
std::string code(const std::string& suffix) { return "ab/" + kCode + suffix; }

::testing::AssertionResult accepts(const std::string& path, const std::string& bytes, const HostLimits& host = {}) {
  const auto checked = check_content(classify(path), bytes, bytes.size(), host);
  if (checked) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << checked.error().to_string();
}

::testing::AssertionResult fails_with(ErrorCode code, const std::string& path, const std::string& bytes,
                                      const HostLimits& host) {
  const auto checked = check_content(classify(path), bytes, bytes.size(), host);
  if (checked) return ::testing::AssertionFailure() << path << " was accepted";
  if (checked.error().code() != code || checked.error().what().empty()) {
    return ::testing::AssertionFailure() << checked.error().to_string();
  }
  return ::testing::AssertionSuccess();
}
::testing::AssertionResult refuses(const std::string& path, const std::string& bytes, const HostLimits& host = {}) {
  return fails_with(ErrorCode::kCorrupt, path, bytes, host);
}
::testing::AssertionResult is_foreign(const std::string& path, const std::string& bytes, const HostLimits& host = {}) {
  return fails_with(ErrorCode::kNotSupported, path, bytes, host);
}

std::string python_path(const std::string& hashed) {
  const std::string name = "c" + codec::torch_hash(hashed);
  return name.substr(1, 2) + "/" + name + ".py";
}

TEST(CheckContent, HoldsCandidatesToTheHashInTheirName) {
  const std::string pickle = "\x80\x05]\x94.";
  const std::string name = codec::torch_hash(pickle);
  for (const std::string& directory : {"fxgraph/ab/" + kGraphKey + "/", "aotautograd/" + kAutogradKey + "/"}) {
    EXPECT_TRUE(accepts(directory + name, pickle));
    EXPECT_TRUE(refuses(directory + name, pickle + "x"));
    EXPECT_TRUE(refuses(directory + name, pickle.substr(0, 3)));
    EXPECT_TRUE(refuses(directory + name, ""));
    EXPECT_TRUE(refuses(directory + kHash, pickle));
  }
}

TEST(CheckContent, WantsAWholePickleOfACandidateToo) {
  const std::string torn = "\x80\x05]\x94";
  const std::string name = codec::torch_hash(torn);
  EXPECT_TRUE(refuses("fxgraph/ab/" + kGraphKey + "/" + name, torn));
  EXPECT_TRUE(refuses("aotautograd/" + kAutogradKey + "/" + name, torn));
  const std::string wrapped = "a later torch's own form";
  EXPECT_TRUE(accepts("fxgraph/ab/" + kGraphKey + "/" + codec::torch_hash(wrapped), wrapped));
}

TEST(CheckContent, AsksForEveryByteWhereAHeadProvesNothing) {
  for (const std::string& path :
       {"fxgraph/ab/" + kGraphKey + "/" + kHash, "aotautograd/" + kAutogradKey + "/" + kHash,
        "aotautograd/" + kAutogradKey + "/entry", code(".py"), "ab/" + kHex + ".best_config", "cache/" + kHex,
        kernel("k.json"), kernel("__grp__k.json"), kernel("k.autotune.json"), kernel("k.cubin"), kernel("k.ttir"),
        kernel("k.ptx"), kernel("cuda_utils.so"), code(".so"), code(".cpp")}) {
    const Classification classified = classify(path);
    EXPECT_TRUE(needs_whole(classified.family)) << path;
    EXPECT_EQ(bytes_to_check(classified, 1'000'000), 1'000'000U) << path;
    const auto checked = check_content(classified, "head", 5);
    ASSERT_FALSE(checked.has_value()) << path;
    EXPECT_EQ(checked.error().code(), ErrorCode::kInvalid) << path;
  }
}

TEST(CheckContent, AsksForAHeadWhereThatIsEnough) {
  for (const std::string& path :
       {"precompiled_headers/" + kCode + ".h.gch", code(".so.load_ok"), std::string("other")}) {
    const Classification classified = classify(path);
    EXPECT_FALSE(needs_whole(classified.family)) << path;
    EXPECT_EQ(bytes_to_check(classified, 100), 100U);
    EXPECT_EQ(bytes_to_check(classified, 150'000'000), 65536U);
  }
  EXPECT_TRUE(check_content(classify("precompiled_headers/" + kCode + ".h.gch"), "gpch", 150'000'000).has_value());
}

TEST(CheckContent, RefusesAPickleThatIsCutOff) {
  const std::string path = "aotautograd/" + kAutogradKey + "/entry";
  EXPECT_TRUE(accepts(path, "\x80\x05]\x94."));
  EXPECT_TRUE(refuses(path, "\x80\x05]\x94"));
  EXPECT_TRUE(refuses(path, "{}."));
  EXPECT_TRUE(refuses(path, ""));
}

TEST(CheckContent, HoldsGeneratedCodeToTheHashInItsName) {
  const std::string text = "import torch\nprint(1)";
  EXPECT_TRUE(accepts(python_path(text), text));
  // codecache.py: write() hashes what str.strip() leaves.
  EXPECT_TRUE(accepts(python_path(text), "\n \t" + text + "\n\r\x1c\f\v "));
  EXPECT_TRUE(refuses(python_path(text), text.substr(0, text.size() - 1)));
  EXPECT_TRUE(refuses(python_path(text), text + "#"));
  EXPECT_TRUE(refuses(code(".py"), text));
  EXPECT_TRUE(accepts(python_path(""), "  \n"));
}

/// codecache.py: code_hash("hello").
TEST(CheckContent, KnowsTorchsOwnVector) {
  EXPECT_TRUE(accepts("ft/cftze3os7wcrq4jxihmvmlopctynrmhs4d6tuexttaqzwfe4ltas.py", "hello"));
}

/// select_algorithm.py hashes tuning parameters with the text, so that the name says nothing.
TEST(CheckContent, AcceptsACandidateOfMaxAutotuneUnderAnyName) {
  EXPECT_TRUE(accepts(code(".py"), "@triton_heuristics.template(\n    num_stages=2)\ndef k(): pass\n"));
  EXPECT_TRUE(refuses(code(".py"), std::string("@triton_heuristics.template(\0", 29)));
}

TEST(CheckContent, RefusesSourceThatACrashTore) {
  for (const std::string& path : {code(".main.cpp"), code(".h"), "precompiled_headers/" + kCode + ".h"}) {
    EXPECT_TRUE(accepts(path, "text\n"));
    EXPECT_TRUE(refuses(path, std::string("te\0t", 4)));
    EXPECT_TRUE(refuses(path, ""));
  }
}

TEST(CheckContent, ChecksEachKindOfJson) {
  // What each of them takes and refuses: json_check_test.cc.
  const std::string tuning = R"({"num_warps": 4, "num_stages": 1, "configs_hash": ")" + kHex + R"("})";
  EXPECT_TRUE(accepts("ab/" + kHex + ".best_config", tuning));
  EXPECT_TRUE(refuses("ab/" + kHex + ".best_config", R"({"XBLOCK": 128})"));
  EXPECT_TRUE(accepts(kernel("add.autotune.json"),
                      R"({"configs_timings": [[{"kwargs": {}, "num_warps": 4, "num_stages": 2}, [0.1, 0.2]]]})"));
  EXPECT_TRUE(refuses(kernel("add.autotune.json"), R"({"key": [1, "x"], "configs_timings": []})"));
  EXPECT_TRUE(accepts(
      kernel("add.json"),
      R"({"target": {"backend": "cuda", "arch": 90, "warp_size": 32}, "num_warps": 4, "shared": 0, "name": "k"})"));
  EXPECT_TRUE(refuses(kernel("add.json"), R"({"hash": "x"})"));
  const std::string empty = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
  EXPECT_TRUE(accepts("cache/" + empty, R"({"system": {"hash": ")" + empty + R"("}, "cache": {}})"));
  EXPECT_TRUE(refuses("cache/" + kHex, R"({"system": {"hash": ")" + kHex + R"("}, "cache": {}})"));
}

TEST(CheckContent, TakesAGroupInEitherForm) {
  const std::string written = R"({"child_paths": {"k.ttir": "/somewhere/triton/0/)" + kKey + R"(/k.ttir"}})";
  EXPECT_TRUE(accepts(kernel("__grp__k.json"), written));
  EXPECT_TRUE(accepts(kernel("__grp__k.json"), canonical_group(written, kKey).value()));
  EXPECT_TRUE(refuses(kernel("__grp__k.json"), R"({"child_paths": {"k.ttir": "/somewhere/triton/0/OTHER/k.ttir"}})"));
  EXPECT_TRUE(refuses(kernel("__grp__k.json"), R"({"child_paths": {}})"));
  EXPECT_TRUE(refuses(kernel("__grp__k.json"), "not json"));
}

TEST(CheckContent, WantsAWholeElfOfThisMachineForBinaries) {
  const std::string library = elf(ET_DYN, kHostMachine);
  const std::string object = elf(ET_REL, kHostMachine);
  for (const std::string& path : {code(".main.so"), code(".so"), kernel("cuda_utils.so")}) {
    EXPECT_TRUE(accepts(path, library));
    EXPECT_TRUE(refuses(path, object));
    EXPECT_TRUE(is_foreign(path, elf(ET_DYN, kForeignMachine)));
    EXPECT_TRUE(refuses(path, library.substr(0, library.size() - 1)));
    EXPECT_TRUE(refuses(path, library.substr(0, 63)));
    EXPECT_TRUE(refuses(path, std::string(library.size(), '\0')));
    EXPECT_TRUE(refuses(path, ""));
    std::string narrow = library;
    narrow[4] = 1;  // ELFCLASS32
    EXPECT_TRUE(refuses(path, narrow));
    std::string big_endian = library;
    big_endian[5] = 2;
    EXPECT_TRUE(refuses(path, big_endian));
  }
  EXPECT_TRUE(accepts(code(".main.o"), object));
  EXPECT_TRUE(refuses(code(".main.o"), library));
}

TEST(CheckContent, RefusesAnElfWhoseTablesOverflow) {
  std::string library = elf(ET_DYN, kHostMachine);
  for (const size_t offset_field : {size_t{32}, size_t{40}}) {
    std::string hostile = library;
    hostile.replace(offset_field, 8, std::string(8, '\xff'));
    EXPECT_TRUE(refuses(code(".main.so"), hostile));
  }
}

TEST(CheckContent, AsksABinaryWhatItNeedsOfTheHost) {
  SharedObject file;
  file.libraries = {"libstdc++.so.6"};
  file.versions = {{"libstdc++.so.6", {"GLIBCXX_3.4.32"}}};
  HostLimits host;
  host.glibcxx = "3.4.30";
  for (const std::string& path : {code(".main.so"), code(".so"), kernel("cuda_utils.so")}) {
    EXPECT_TRUE(accepts(path, file.build()));
    EXPECT_TRUE(is_foreign(path, file.build(), host));
  }
  host.glibcxx = "3.4.32";
  EXPECT_TRUE(accepts(code(".main.so"), file.build(), host));

  // A name that is not among its strings.
  std::string torn = file.build();
  const uint64_t needed = DT_NEEDED;
  torn.replace(torn.find(bytes_of(needed) + bytes_of(uint64_t{1})) + 8, 8, bytes_of(uint64_t{1'000'000}));
  EXPECT_TRUE(refuses(code(".main.so"), torn));

  Sections object;
  object.sections = {{SHT_NOTE, property_note(0xc0008002, 8)}};
  host.x86_isa_level = 3;
  EXPECT_TRUE(is_foreign(code(".main.o"), object.build(), host));
}

TEST(CheckContent, RefusesMoreBytesThanThereAre) {
  const std::string library = elf(ET_DYN, kHostMachine);
  const Classification header = classify("precompiled_headers/" + kCode + ".h.gch");
  EXPECT_EQ(check_content(classify(code(".main.so")), library, library.size() - 1).error().code(), ErrorCode::kInvalid);
  EXPECT_EQ(check_content(header, "gpch", 3).error().code(), ErrorCode::kInvalid);
}

TEST(CheckContent, KnowsTritonsFilesByTheirExtension) {
  EXPECT_TRUE(accepts(kernel("add.cubin"), cubin(7, 0x005a0d5a)));
  EXPECT_TRUE(refuses(kernel("add.cubin"), cubin(7, 0)));
  Sections not_for_cuda;
  not_for_cuda.abi_version = 7;
  not_for_cuda.flags = 0x00500550;
  EXPECT_TRUE(refuses(kernel("add.cubin"), not_for_cuda.build()));
  EXPECT_TRUE(refuses(kernel("add.cubin"), cubin(7, 0x005a0d5a).substr(0, 100)));
  EXPECT_TRUE(refuses(kernel("add.cubin"), "text"));
  EXPECT_TRUE(is_foreign(kernel("add.hsaco"), elf(ET_DYN, 224), {})) << "no fact names an architecture of AMD's";
  EXPECT_TRUE(refuses(kernel("add.hsaco"), elf(ET_DYN, kHostMachine)));
  EXPECT_TRUE(accepts(kernel("add.ptx"), "//\n.version 8.7\n.target sm_90a\n"));
  EXPECT_TRUE(refuses(kernel("add.ptx"), "//\n.version 8.7\n"));
  for (const char* name : {"add.ttir", "add.ttgir", "add.llir", "add.source", "add.amdgcn"}) {
    EXPECT_TRUE(accepts(kernel(name), "module {} // \xc3\xa9"));
    EXPECT_TRUE(refuses(kernel(name), std::string("module\0{}", 9)));
    EXPECT_TRUE(refuses(kernel(name), "module \xff"));  // Path.read_text() raises
    EXPECT_TRUE(refuses(kernel(name), ""));
  }
  EXPECT_TRUE(refuses(kernel("add.ptx"), ".version 8.7\n.target sm_90\n\xff"));
  EXPECT_TRUE(accepts(kernel("add.newformat"), "anything"));
}

TEST(CheckContent, TakesGpuCodeThatADeviceOfThisHostRuns) {
  HostLimits host;
  host.cuda_architectures = {80};
  EXPECT_TRUE(accepts(kernel("add.cubin"), cubin(7, 0x00500550), host));
  EXPECT_TRUE(is_foreign(kernel("add.cubin"), cubin(7, 0x005a0d5a), host));
  EXPECT_TRUE(accepts(kernel("add.ptx"), ".version 8.7\n.target sm_80\n", host));
  EXPECT_TRUE(is_foreign(kernel("add.ptx"), ".version 8.7\n.target sm_90a\n", host));
  host.cuda_architectures = {80, 90};
  EXPECT_TRUE(accepts(kernel("add.cubin"), cubin(7, 0x005a0d5a), host));
  EXPECT_TRUE(accepts(kernel("add.ptx"), ".version 8.7\n.target sm_90a\n", host));
  const auto checked =
      check_content(classify(kernel("add.cubin")), cubin(8, 0x06006402), cubin(8, 0x06006402).size(), host);
  ASSERT_FALSE(checked.has_value());
  EXPECT_NE(checked.error().what().find("for sm_100, and this host's devices are 8.0, 9.0"), std::string::npos)
      << checked.error().what();
}

TEST(CheckContent, KnowsPrecompiledHeadersAndMarkers) {
  EXPECT_TRUE(accepts("precompiled_headers/" + kCode + ".h.gch", "gpch.014..."));
  EXPECT_TRUE(refuses("precompiled_headers/" + kCode + ".h.gch", "CPCH"));
  EXPECT_TRUE(accepts(code(".so.load_ok"), ""));
  EXPECT_TRUE(refuses(code(".so.load_ok"), "1"));
}

TEST(CheckContent, HoldsPgoStateToBeAWholePickle) {
  const std::string path = "dynamo/code_state_job_0_None.pkl";
  EXPECT_TRUE(accepts(path, "\x80\x05]\x94."));
  EXPECT_TRUE(refuses(path, "\x80\x05]\x94"));
  EXPECT_TRUE(refuses(path, ""));
  EXPECT_TRUE(refuses(path, "text"));
}

TEST(CheckContent, HoldsAnOnDiskCacheToItsVersionAndOneWholePickle) {
  const std::string version = "\x5f\xec\xeb\x66";
  for (const std::string directory : {"cache/should_pad/", "cache/inductor_on_disk_cache/"}) {
    const std::string path = directory + kHex.substr(32);
    const std::string whole = version + "\x80\x04]\x94.";
    EXPECT_TRUE(accepts(path, whole));
    // Each state that a writer under the final name passes through.
    for (size_t size = version.size(); size < whole.size(); ++size) EXPECT_TRUE(refuses(path, whole.substr(0, size)));
    EXPECT_TRUE(refuses(path, ""));
    EXPECT_TRUE(refuses(path, whole + "x"));
    EXPECT_TRUE(refuses(path, whole + whole));
    EXPECT_TRUE(is_foreign(path, "\x6b\x86\xb2\x73\x80\x04]\x94."));  // version 1
    EXPECT_TRUE(is_foreign(path, version.substr(0, 3)));
    EXPECT_TRUE(is_foreign(path, "\x80\x04]\x94."));
  }
}

/// The sections are those of nvcc 13.0 (-c and -shared), of hipcc, and of SYCL's compiler.
TEST(CheckContent, TakesNoCodeForGpusForACppKernel) {
  for (const std::string section :
       {".nv_fatbin", "__nv_relfatbin", ".hip_fatbin", "__CLANG_OFFLOAD_BUNDLE__sycl-spir64"}) {
    for (const auto& [suffix, type] : {std::pair(".so", ET_DYN), {".o", ET_REL}, {".main.so", ET_DYN}}) {
      Sections file;
      file.type = static_cast<uint16_t>(type);
      file.sections = {{SHT_PROGBITS, "code"}, {SHT_PROGBITS, "fat binary"}};
      file.names = {".text", section};
      EXPECT_TRUE(is_foreign(code(suffix), file.build())) << section;
      file.names = {".text", ".data"};
      EXPECT_TRUE(accepts(code(suffix), file.build()));
    }
  }
}

/// A broken file is broken everywhere: a host whose limits it passes and one whose limits it does not say the same.
TEST(CheckContent, SaysOfABrokenBinaryThatItIsBrokenWhateverTheHost) {
  Sections file;
  file.sections = {{SHT_PROGBITS, "code"}, {SHT_NOTE, samples::property_note(0xc0008002, 8)}};  // x86-64-v4
  file.names = {".text", ".note"};
  HostLimits host;
  host.x86_isa_level = 1;
  const std::string whole = file.build();
  ASSERT_TRUE(accepts(code(".main.o"), whole));
  ASSERT_TRUE(is_foreign(code(".main.o"), whole, host));
  std::string broken = whole;
  const uint64_t table = *reinterpret_cast<const uint64_t*>(&broken[offsetof(Elf64_Ehdr, e_shoff)]);
  broken.replace(table + sizeof(Elf64_Shdr), 4, "\xff\xff\xff\x7f");  // the name of .text
  EXPECT_TRUE(refuses(code(".main.o"), broken));
  EXPECT_TRUE(refuses(code(".main.o"), broken, host));
}

TEST(CheckContent, SaysNothingOfFamiliesThatAreNotShared) {
  for (const std::string path : {"locks/x.lock", "dynamo/x.pkl", "README", ""}) EXPECT_TRUE(accepts(path, ""));
}

}  // namespace
}  // namespace inductorfs::layout
