// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/packages/package_keys.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <sstream>

#include "fake_packages.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/fingerprint/fingerprint.h"
#include "support/temporary_directory.h"
#include "without_memory.h"

namespace inductorfs::fingerprint {
namespace {

using inductorfs::testing::TemporaryDirectory;
using testing::Files;
using testing::kSuffixes311;
using testing::write_text;
using testing::write_tree;

std::string torch_key_of(const Files& files, const Files& more = {}) {
  const TemporaryDirectory temporary;
  write_tree(temporary / "torch", files);
  write_tree(temporary / "torch", more);
  const auto key = torch_key(temporary / "torch", kSuffixes311);
  return key ? *key : key.error().to_string();
}

std::string triton_key_of(const Files& files, const Files& more = {}) {
  const TemporaryDirectory temporary;
  write_tree(temporary / "triton", files);
  write_tree(temporary / "triton", more);
  const auto key = triton_key(temporary / "triton", kSuffixes311, "");
  return key ? *key : key.error().to_string();
}

std::string hex(std::string_view text) { return codec::digest_of(text).to_hex(); }

Result<std::string> digest_of_record(const std::string& torch) {
  KeyMemory nothing("");
  return record_digest(InRoot::host(), torch_in(torch), nothing);
}

TEST(TorchKey, EqualsTheRecordedKeyOfTheSmallTree) {
  EXPECT_EQ(torch_key_of(testing::torch_tree()), testing::kTorchTreeKey);
}

TEST(TorchKey, ChangesWithAnyModule) {
  EXPECT_NE(torch_key_of(testing::torch_tree(), {{"b/sub/z.py", "S2"}}), testing::kTorchTreeKey);
  EXPECT_NE(torch_key_of(testing::torch_tree(), {{"new.py", ""}}), testing::kTorchTreeKey);
  EXPECT_NE(torch_key_of(testing::torch_tree(), {{"_inductor/script.ld", "other"}}), testing::kTorchTreeKey);
}

TEST(TorchKey, IsBlindToWhatTorchDoesNotHash) {
  EXPECT_EQ(torch_key_of(testing::torch_tree(), {{"lib/l.so", "other"},
                                                 {"__init__.py", "other"},
                                                 {"b/__pycache__/c.cpython-311.pyc", "x"},
                                                 {"include/h.h", "x"}}),
            testing::kTorchTreeKey);
}

TEST(TorchKey, TakesTheListOfExtraFilesFromTheCodeOfThatVersion) {
  const Files tree = {{"version.py", "__version__ = '2.9.1'\n"},
                      {"_inductor/__init__.py", ""},
                      {"_inductor/codegen/aoti_runtime/interface.cpp", "I"},
                      {"_inductor/codegen/aoti_runtime/streams.h", "S"},
                      {"_inductor/script.ld", "L"}};
  const std::string code29 = "extra_files = (\n  \"codegen/aoti_runtime/interface.cpp\",\n  \"script.ld\",\n)\n";
  const std::string version = "__version__ = '2.9.1'\n";
  EXPECT_EQ(torch_key_of(tree, {{"_inductor/codecache.py", code29}}),
            hex("2.9.1_inductor_inductor.codecache" + code29 + "version" + version + "IL"));
  // Without that file: the newest list.
  EXPECT_EQ(torch_key_of(tree), hex("2.9.1_inductorversion" + version + "ISL"));
}

TEST(TorchKey, SaysWhatIsWrongWithATree) {
  const TemporaryDirectory temporary;
  const auto missing = torch_key(temporary / "torch", kSuffixes311);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().what().find("version.py"), std::string::npos);
  EXPECT_NE(torch_key_of({{"version.py", "nothing here\n"}}).find("__version__"), std::string::npos);
}

TEST(TritonKey, EqualsTheRecordedKeyOfTheSmallTree) {
  const std::string key = triton_key_of(testing::triton_tree());
  EXPECT_EQ(key.size(), 589U);
  EXPECT_EQ(hex(key), testing::kTritonTreeKeyDigest);
}

TEST(TritonKey, StartsWithTheFileThatDefinesIt) {
  const std::string definition = "def triton_key():\n";
  const std::string early = triton_key_of(
      testing::triton_tree(), {{"__init__.py", "__version__ = '3.4.0'\n"}, {"compiler/compiler.py", definition}});
  EXPECT_EQ(early.substr(0, 5 + 64), "3.4.0" + hex(definition));
  // By the version where no text says it.
  EXPECT_EQ(triton_key_of(testing::triton_tree(), {{"__init__.py", "__version__ = '3.4.0'\n"}}).substr(5, 64),
            hex("CC"));
  EXPECT_EQ(triton_key_of(testing::triton_tree(), {{"__init__.py", "__version__ = '3.5.0'\n"}}).substr(5, 64),
            hex("RC"));
}

TEST(TritonKey, WalksTheLanguagePackagesFrom32On) {
  const Files deeper = {{"language/extra/deep.py", "DEEP"}};
  const auto with = [&](const char* version) {
    Files more = deeper;
    more.emplace_back("__init__.py", std::string("__version__ = '") + version + "'\n");
    return triton_key_of(testing::triton_tree(), more);
  };
  EXPECT_EQ(with("3.1.0").find(hex("DEEP")), std::string::npos);
  EXPECT_NE(with("3.2.0").find(hex("DEEP")), std::string::npos);
}

TEST(TritonKey, NeedsItsLibrary) {
  Files tree = testing::triton_tree();
  std::erase_if(tree, [](const auto& file) { return file.first == "_C/libtriton.so"; });
  EXPECT_NE(triton_key_of(tree).find("libtriton.so"), std::string::npos);
}

/// A wheel whose files have the names and sizes in this RECORD, and no known content.
void install(const std::string& site, const std::string& record) {
  std::filesystem::create_directories(site + "/torch");
  std::istringstream lines(record);
  for (std::string line; std::getline(lines, line);) {
    std::string name = line.substr(0, line.find(",sha256="));
    std::erase(name, '"');
    if (name.size() == line.size() || !name.starts_with("torch/")) continue;
    write_text(site + "/" + name, std::string(std::stoul(line.substr(line.rfind(',') + 1)), 'x'));
  }
  write_text(site + "/torch-9.9.9.dist-info/RECORD", record);
}

std::string record_of(const std::string& record) {
  const TemporaryDirectory site;
  install(site.path(), record);
  const auto digest = digest_of_record(site / "torch");
  return digest ? *digest : digest.error().to_string();
}

TEST(RecordDigest, IsTheSortedContentLinesOfTorch) {
  const std::string record =
      "torch/lib/libtorch.so,sha256=BBB,10\n"
      "torch/a.py,sha256=AAA,3\n"
      "../../../bin/torchrun,sha256=CCC,262\n"
      "functorch/__init__.py,sha256=DDD,1\n"
      "torch/__pycache__/a.cpython-311.pyc,,\n"
      "torch/__pycache__/b.cpython-311.pyc,sha256=EEE,7\n"
      "torch-9.9.9.dist-info/RECORD,,\n"
      "\"torch/with,comma.h\",sha256=FFF,2\n";
  EXPECT_EQ(record_of(record),
            hex("\"torch/with,comma.h\",sha256=FFF,2\ntorch/a.py,sha256=AAA,3\ntorch/lib/libtorch.so,sha256=BBB,10\n"));
}

TEST(RecordDigest, IsEqualForAReinstallInAnotherOrderAndDiffersForAnotherLibrary) {
  const std::string one = record_of("torch/a.py,sha256=AAA,3\ntorch/lib/l.so,sha256=BBB,10\n");
  EXPECT_EQ(one, record_of("torch/lib/l.so,sha256=BBB,10\r\n../../bin/x,sha256=ZZZ,1\ntorch/a.py,sha256=AAA,3"));
  EXPECT_NE(one, record_of("torch/a.py,sha256=AAA,3\ntorch/lib/l.so,sha256=BBC,10\n"));
}

TEST(RecordDigest, IsRememberedUntilTheFileChanges) {
  const TemporaryDirectory site;
  const std::string record = site / "torch-9.9.9.dist-info/RECORD";
  write_text(record, "torch/a.py,sha256=AAA,3\n");
  std::filesystem::create_directory(site / "torch");
  KeyMemory memory("");
  memory.keep("files and record " + (site / "torch"), manifest_of({record})->digest, "planted");
  EXPECT_EQ(record_digest(InRoot::host(), torch_in(site / "torch"), memory).value_or("?"), "planted");
  install(site.path(), "torch/a.py,sha256=AAB,30\n");
  EXPECT_EQ(record_digest(InRoot::host(), torch_in(site / "torch"), memory).value_or("?"),
            hex("torch/a.py,sha256=AAB,30\n"));
}

void set_time(const std::string& path, time_t seconds) {
  const timespec times[2] = {{seconds, 0}, {seconds, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

/// COPY in a Containerfile, an editor, `sed -i`: RECORD stays as it was.
TEST(RecordDigest, IsAnotherForAWheelThatWasPatchedInPlace) {
  const TemporaryDirectory site;
  const std::string empty = "vllm/a.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n";
  const std::string library = "vllm/l.so,sha256=RL165g9Hj64QYeEadzn0uU0dr5F5gtM7b8igGmP4nCE,1\n";  // "H"
  const auto digest = [&](const char* module) {
    KeyMemory nothing("");
    const Installed package{site / module, module, {module}, {}};
    return record_digest(InRoot::host(), package, nothing).value_or("?");
  };
  const auto reinstall = [&] {
    write_text(site / "vllm/a.py", "");
    write_text(site / "vllm/l.so", "H");
    std::filesystem::remove(site / "vllm/new.py");
    write_text(site / "vllm-1.dist-info/RECORD", empty + library);
    for (const char* name : {"vllm/a.py", "vllm/l.so", "vllm-1.dist-info/RECORD"}) set_time(site / name, 1000);
  };
  reinstall();
  EXPECT_EQ(digest("vllm"), hex(empty + library));
  write_text(site / "vllm/l.so", "G");
  EXPECT_NE(digest("vllm"), hex(empty + library)) << "of equal size, and later";
  reinstall();
  write_text(site / "vllm/l.so", "HH");
  set_time(site / "vllm/l.so", 1000);
  EXPECT_NE(digest("vllm"), hex(empty + library)) << "of another size";
  reinstall();
  write_text(site / "vllm/new.py", "");
  EXPECT_NE(digest("vllm"), hex(empty + library)) << "a file that RECORD does not name";
  reinstall();
  std::filesystem::remove(site / "vllm/l.so");
  EXPECT_NE(digest("vllm"), hex(empty + library)) << "one that is gone";
  reinstall();
  set_time(site / "vllm/l.so", 2000);
  EXPECT_EQ(digest("vllm"), hex(empty + library)) << "touched, and of the content that RECORD says";

  const std::string source = "vllm/a.py,sha256=RL165g9Hj64QYeEadzn0uU0dr5F5gtM7b8igGmP4nCE,1\n";
  write_text(site / "vllm/a.py", "G");
  set_time(site / "vllm/a.py", 500);
  write_text(site / "vllm-1.dist-info/RECORD", source + library);
  EXPECT_NE(digest("vllm"), hex(source + library)) << "source of equal size whose copy has kept an earlier time";
}

TEST(RecordDigest, RefusesWhatProvesNothing) {
  EXPECT_NE(record_of("").find("names no file"), std::string::npos);
  EXPECT_NE(record_of("torch/a.py,,\n").find("names no file"), std::string::npos);
  const TemporaryDirectory site;
  EXPECT_EQ(digest_of_record(site / "torch").error().code(), ErrorCode::kNotFound);
  std::filesystem::create_directory(site / "torch");
  write_text(site / "torch-1.dist-info/RECORD", "torch/a.py,sha256=AAA,3\n");
  write_text(site / "torch-2.dist-info/RECORD", "torch/a.py,sha256=AAB,3\n");
  EXPECT_EQ(digest_of_record(site / "torch").error().code(), ErrorCode::kInvalid);
}

}  // namespace
}  // namespace inductorfs::fingerprint
