// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "fake_packages.h"
#include "fingerprint/facts/facts.h"
#include "fingerprint/packages/package_keys.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/fingerprint/fingerprint.h"
#include "support/temporary_directory.h"
#include "without_memory.h"

namespace inductorfs::fingerprint {
namespace {

using inductorfs::testing::TemporaryDirectory;
using testing::write_script;
using testing::write_text;
using testing::write_tree;

constexpr const char* kVersionFile =
    "__version__ = '9.9.9+test'\ncuda: Optional[str] = '13.2'\ngit_version = 'abcdef'\nhip: Optional[str] = None\n";

/// A host made of files: an interpreter, packages, a compiler and a GPU probe.
class Probe : public ::testing::Test {
 protected:
  void SetUp() override {
    write_tree(site_ + "/torch", testing::torch_tree());
    write_text(site_ + "/torch/version.py", kVersionFile);
    write_text(site_ + "/torch-9.9.9.dist-info/RECORD",
               "torch/a.py,sha256=WLsRnDVROkUdJNwg7w6QMeyFs1v8kZ0mPn5dmGiQnLU,2\n");
    write_tree(site_ + "/triton", testing::triton_tree());
    testing::write_python(temporary_ / "python");
    testing::write_gcc(temporary_ / "gcc");
    ASSERT_EQ(setenv("CXX", (temporary_ / "gcc/bin/g++").c_str(), 1), 0);
    ASSERT_EQ(setenv("PYTHONNOUSERSITE", "1", 1), 0);
    gpu(R"({"status": "present", "driver": 12080, "devices": [{"name": "NVIDIA H200", "capability": "9.0",
        "multiprocessors": 132, "memory_bytes": 150000000000, "uuid": "00"}]})");
  }
  void TearDown() override {
    for (const char* name : {"CXX", "PYTHONNOUSERSITE"}) ASSERT_EQ(unsetenv(name), 0);
  }
  void gpu(const std::string& answer) { write_script(temporary_ / "gpu", "echo '" + answer + "'"); }
  [[nodiscard]] ProbeOptions options() const {
    ProbeOptions result;
    result.python = temporary_ / "python/bin/python3.11";
    result.cache_file = temporary_ / "memory.json";
    result.gpu_probe = temporary_ / "gpu";
    return result;
  }

  TemporaryDirectory temporary_;
  std::string site_ = temporary_ / "python/lib/python3.11/site-packages";
};

TEST_F(Probe, LearnsEveryFacet) {
  const Fingerprint host = probe(options());
  for (Facet facet : kAllFacets) {
    EXPECT_TRUE(host.get(facet).known || facet == Facet::kCpuIsa)
        << to_string(facet) << ": " << host.get(facet).problem;
    EXPECT_EQ(host.get(facet).value.find(temporary_.path()), std::string::npos) << "a path would part equal hosts";
  }
  const auto key = torch_key(site_ + "/torch", testing::kSuffixes311);
  KeyMemory nothing("");
  const auto record = record_digest(InRoot::host(), torch_in(site_ + "/torch"), nothing);
  ASSERT_TRUE(key && record);
  EXPECT_EQ(host.get(Facet::kTorch).value, "git=abcdef\nkey=" + *key + "\nrecord=" + *record + "\nversion=9.9.9+test");
  EXPECT_EQ(host.get(Facet::kTriton).value, std::string("key=") + testing::kTritonTreeKeyDigest + "\nversion=8.8.8");
  EXPECT_EQ(host.get(Facet::kCuda).value, "driver=12\ntorch=13.2");
  EXPECT_EQ(host.get(Facet::kGpu).value, "device=NVIDIA H200; cc=9.0; sms=132; memory_gib=140");
  EXPECT_EQ(host.get(Facet::kGpuArch).value, "cc=9.0");
  EXPECT_EQ(host.get(Facet::kPython).value, "implementation=cpython\nsoabi=cpython-311-x86_64-linux-gnu\nversion=3.11");
  for (const auto& [name, value] : {std::pair{"kind", "gcc"}, std::pair{"libstdcxx", "libstdc++.so.6"},
                                    std::pair{"target", "x86_64-linux-gnu"}, std::pair{"version", "12"}}) {
    EXPECT_EQ(value_of(host.get(Facet::kCompiler).value, name), value) << host.get(Facet::kCompiler).value;
  }
}

TEST_F(Probe, AnInstallationElsewhereIsTheSame) {
  const Fingerprint before = probe(options());
  std::filesystem::create_directories(temporary_ / "opt");
  for (const char* name : {"python", "gcc"}) {
    std::filesystem::rename(temporary_ / name, temporary_ / "opt" + "/" + name);
  }
  ASSERT_EQ(setenv("CXX", (temporary_ / "opt/gcc/bin/g++").c_str(), 1), 0);
  ProbeOptions elsewhere = options();
  elsewhere.python = temporary_ / "opt/python/bin/python3.11";
  const Fingerprint after = probe(elsewhere);
  for (Facet facet : kAllFacets) EXPECT_EQ(after.get(facet).value, before.get(facet).value) << to_string(facet);
}

TEST_F(Probe, AHostWithoutPackagesAndWithoutAGpuIsKnownToLackThem) {
  for (const char* name : {"/torch", "/triton"}) std::filesystem::remove_all(site_ + name);
  gpu(R"({"status": "absent", "detail": "no driver"})");
  ASSERT_EQ(setenv("CUDA_VISIBLE_DEVICES", "", 1), 0);  // what this machine has does not count
  const Fingerprint host = probe(options());
  ASSERT_EQ(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
  for (Facet facet : {Facet::kTorch, Facet::kTriton, Facet::kGpu, Facet::kGpuArch}) {
    EXPECT_TRUE(host.get(facet).known);
    EXPECT_EQ(host.get(facet).value, "none") << to_string(facet);
  }
  EXPECT_EQ(host.get(Facet::kCuda).value, "driver=none\ntorch=none");
}

TEST_F(Probe, ACpuBuildHasNoCudaAndOfARocmBuildTheDeviceIsNotKnown) {
  gpu(R"({"status": "absent", "detail": "no driver"})");
  ASSERT_EQ(setenv("CUDA_VISIBLE_DEVICES", "", 1), 0);  // as above
  write_text(site_ + "/torch/version.py",
             "__version__ = '9.9.9'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n");
  EXPECT_EQ(probe(options()).get(Facet::kCuda).value, "driver=none\ntorch=none");
  write_text(site_ + "/torch/version.py", "__version__ = '9.9.9'\ncuda = None\nhip = '6.2'\n");
  const Fingerprint rocm = probe(options());
  for (const Facet facet : {Facet::kCuda, Facet::kGpu, Facet::kGpuArch}) {
    EXPECT_FALSE(rocm.get(facet).known) << to_string(facet) << rocm.get(facet).value;
    EXPECT_NE(rocm.get(facet).problem.find("built for ROCm"), std::string::npos) << rocm.get(facet).problem;
  }
  ASSERT_EQ(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
}

TEST_F(Probe, WithoutAnInterpreterWhatDependsOnItIsUnknownAndTheRestIsNot) {
  ProbeOptions broken = options();
  broken.python = temporary_ / "absent";
  const Fingerprint host = probe(broken);
  for (Facet facet : {Facet::kPython, Facet::kTorch, Facet::kTriton, Facet::kCuda}) {
    EXPECT_FALSE(host.get(facet).known) << to_string(facet);
    EXPECT_FALSE(host.get(facet).problem.empty()) << to_string(facet);
  }
  EXPECT_NE(host.get(Facet::kPython).problem.find("--python"), std::string::npos);
  EXPECT_TRUE(host.get(Facet::kGpu).known);
  EXPECT_TRUE(host.get(Facet::kCompiler).known);
}

TEST_F(Probe, TakesAnEnvironmentThatCannotBeReadInTimeForUnknownAndTheRestNot) {
  const std::string fifo = temporary_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  write_script(temporary_ / "reader", "read line < " + fifo);
  ProbeOptions stuck = options();
  stuck.reader.program = temporary_ / "reader";
  stuck.reader.deadline = Milliseconds(300);
  const Fingerprint host = probe(stuck);
  for (const Facet facet : {Facet::kPython, Facet::kTorch, Facet::kTriton, Facet::kCuda, Facet::kCompiler}) {
    EXPECT_FALSE(host.get(facet).known) << to_string(facet);
    EXPECT_NE(host.get(facet).problem.find("could not be read within 300 ms; check the file system"), std::string::npos)
        << host.get(facet).problem;
  }
  for (const Facet facet : {Facet::kGpu, Facet::kGpuArch, Facet::kLibc, Facet::kCpu}) {
    EXPECT_TRUE(host.get(facet).known) << to_string(facet);
  }
}

TEST_F(Probe, StopsReadingWhenItIsCancelled) {
  const std::string fifo = temporary_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  write_script(temporary_ / "reader", "read line < " + fifo);
  ProbeOptions stuck = options();
  stuck.reader.program = temporary_ / "reader";
  stuck.reader.deadline = Milliseconds(3'600'000);
  stuck.reader.cancelled = [] { return true; };
  EXPECT_FALSE(probe(stuck).get(Facet::kTorch).known);
}

TEST_F(Probe, ReadsInAChildWhatItReadsItself) {
  ProbeOptions by_child = options();
  by_child.reader.program = PACKAGE_READER_PATH;
  EXPECT_EQ(probe(by_child).to_json(), probe(options()).to_json());
  by_child.python = temporary_ / "absent";
  EXPECT_EQ(probe(by_child).get(Facet::kPython).problem, python_fact(learn_python(by_child)).problem);
}

TEST_F(Probe, ADamagedPackageIsUnknownWithItsReason) {
  std::filesystem::remove_all(site_ + "/torch-9.9.9.dist-info");
  std::filesystem::remove(site_ + "/triton/_C/libtriton.so");
  const Fingerprint host = probe(options());
  EXPECT_NE(host.get(Facet::kTorch).problem.find("RECORD"), std::string::npos);
  EXPECT_NE(host.get(Facet::kTriton).problem.find("libtriton.so"), std::string::npos);
}

TEST_F(Probe, TellsWhatNoArtefactDependsOnInDetails) {
  write_text(site_ + "/torch/lib/libc10.so", "_ZN3c105ErrorC1ENSt7__cxx1112basic_stringIcE");
  const Fingerprint host = probe(options());
  EXPECT_EQ(host.get(Facet::kTorch).details, "cuda=13.2\ncxx11_abi=yes\ngit_version=abcdef");
  const auto key = triton_key(site_ + "/triton", testing::kSuffixes311, "");
  EXPECT_EQ(host.get(Facet::kTriton).details, "triton_key=" + key.value_or("?"));
  EXPECT_NE(host.get(Facet::kPython).details.find("executable=" + options().python), std::string::npos);
  write_text(site_ + "/torch/lib/libc10.so", "_ZN3c105ErrorC1ESs");
  EXPECT_NE(probe(options()).get(Facet::kTorch).details.find("cxx11_abi=no"), std::string::npos);
}

TEST_F(Probe, TheEnvironmentIsWhatTheMountDeclares) {
  EXPECT_EQ(probe(options()).get(Facet::kEnvironment).value, "none");
  ProbeOptions declared = options();
  declared.environment = {{"TRITON_DEFAULT_FP_FUSION", "0"}, {"HOME", "/root"}};
  EXPECT_EQ(probe(declared).get(Facet::kEnvironment).value, "TRITON_DEFAULT_FP_FUSION=0");
}

}  // namespace
}  // namespace inductorfs::fingerprint
