// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/fingerprint/variables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "fake_packages.h"

namespace inductorfs::fingerprint {
namespace {

using Environment = std::map<std::string, std::string>;

TEST(Variables, EachHasAnEffectASourceAndAPlace) {
  std::set<std::string_view> names;
  for (const Variable& variable : variables()) {
    EXPECT_TRUE(names.insert(variable.name).second) << variable.name;
    EXPECT_FALSE(variable.effect.empty()) << variable.name;
    EXPECT_FALSE(variable.source.empty()) << variable.name;
    EXPECT_FALSE(variable.with.empty()) << variable.name;
  }
  EXPECT_GT(names.size(), 30U);
}

TEST(Variables, AreInOrderOfTheirNames) {
  std::vector<std::string_view> names;
  for (const Variable& variable : variables()) names.push_back(variable.name);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
}

TEST(Variables, AreAllInTheDecision) {
  const std::string text = testing::read_text(DECISION_PATH);
  ASSERT_FALSE(text.empty());
  for (const Variable& variable : variables()) {
    EXPECT_NE(text.find("| `" + std::string(variable.name) + "` | " + std::string(variable.effect) + " |"),
              std::string::npos)
        << variable.name;
  }
}

TEST(Variables, AreFoundByWholeNameOrByPrefix) {
  ASSERT_NE(find_variable("TRITON_DEFAULT_FP_FUSION"), nullptr);
  EXPECT_EQ(find_variable("TRITON_DEFAULT_FP_FUSION")->reading, Reading::kOn);
  EXPECT_EQ(find_variable("TRITON_DEFAULT_FP_FUSIO"), nullptr);
  EXPECT_EQ(find_variable("TRITON_DEFAULT_FP_FUSION2"), nullptr);
  ASSERT_NE(find_variable("TRITON_HIP_USE_ASYNC_COPY"), nullptr);
  EXPECT_EQ(find_variable("TRITON_HIP_USE_ASYNC_COPY")->name, "TRITON_HIP_*");
  EXPECT_EQ(find_variable("TRITON_HIP"), nullptr);
  ASSERT_NE(find_variable("TRITON_HIP_LOCAL_PREFETCH"), nullptr);
  EXPECT_EQ(find_variable("TRITON_HIP_LOCAL_PREFETCH")->name, "TRITON_HIP_LOCAL_PREFETCH") << "a whole name goes first";
  EXPECT_EQ(find_variable("TRITON_HIP_A\nTRITON_F32_DEFAULT"), nullptr) << "a name is one line";
  EXPECT_EQ(find_variable(""), nullptr);
}

/// Paths of caches, verbosity, and what a key holds: a value of these must not cost a hit.
TEST(Variables, LeaveOutWhatChangesNoArtefactOrIsInAKey) {
  for (const char* name : {"TORCHINDUCTOR_CACHE_DIR",
                           "TRITON_CACHE_DIR",
                           "TRITON_HOME",
                           "TRITON_DUMP_DIR",
                           "TORCH_LOGS",
                           "TRITON_KERNEL_DUMP",
                           "TRITON_PRINT_AUTOTUNING",
                           "TRITON_ALWAYS_COMPILE",
                           "NVPTX_ENABLE_DUMP",
                           "MLIR_ENABLE_DUMP",
                           "CXX",
                           "TORCHINDUCTOR_MAX_AUTOTUNE",
                           "TORCHINDUCTOR_COMPILE_THREADS",
                           "TORCHINDUCTOR_CPP_MARCH",
                           "CUDA_VISIBLE_DEVICES",
                           "OMP_NUM_THREADS",
                           "LD_LIBRARY_PATH",
                           "CI",
                           "TRITON_CUOBJDUMP_PATH",
                           "TRITON_NVDISASM_PATH",
                           "TRITON_CUDACRT_PATH",
                           "TRITON_CUDART_PATH",
                           "TRITON_LIBCUDA_PATH",
                           "TRITON_CUPTI_LIB_PATH",
                           "TORCHINDUCTOR_CUTLASS_DIR",
                           "CUDA_HOME",
                           "TMPDIR",
                           "USER",
                           "VIRTUAL_ENV",
                           "PATH",
                           "HOME"}) {
    EXPECT_EQ(find_variable(name), nullptr) << name;
  }
}

TEST(EnvironmentText, IsNoneWithoutVariables) {
  EXPECT_EQ(environment_text({}), "none");
  EXPECT_EQ(environment_text({{"PATH", "/bin"}, {"TRITON_CACHE_DIR", "/x"}}), "none");
}

TEST(EnvironmentText, ListsVariablesInOrderOfTheirNames) {
  EXPECT_EQ(environment_text({{"TRITON_F32_DEFAULT", "ieee"}, {"HOME", "/root"}, {"PTXAS_OPTIONS", "-O1"}}),
            "PTXAS_OPTIONS=-O1\nTRITON_F32_DEFAULT=ieee");
}

TEST(EnvironmentText, TakesASwitchAsTritonDoes) {
  for (const char* off : {"0", "false", "OFF", "", "no", "2"}) {
    EXPECT_EQ(environment_text({{"DISABLE_PTXAS_OPT", off}}), "none") << off;
    EXPECT_EQ(environment_text({{"TRITON_DEFAULT_FP_FUSION", off}}), "TRITON_DEFAULT_FP_FUSION=0") << off;
  }
  for (const char* on : {"1", "true", "On", "TRUE", "yes"}) {
    EXPECT_EQ(environment_text({{"DISABLE_PTXAS_OPT", on}}), "DISABLE_PTXAS_OPT=1") << on;
    EXPECT_EQ(environment_text({{"TRITON_DEFAULT_FP_FUSION", on}}), "none") << on;
    EXPECT_EQ(environment_text({{"TRITON_HIP_USE_ASYNC_COPY", on}}), "TRITON_HIP_USE_ASYNC_COPY=1") << on;
  }
  EXPECT_EQ(environment_text({{"TRITON_HIP_USE_ASYNC_COPY", "off"}}), "TRITON_HIP_USE_ASYNC_COPY=0");
  EXPECT_EQ(environment_text({{"TRITON_HIP_GLOBAL_PREFETCH", "3"}}), "TRITON_HIP_GLOBAL_PREFETCH=3");
}

TEST(EnvironmentText, TakesPassesAsASwitchOrAList) {
  EXPECT_EQ(environment_text({{"DISABLE_LLVM_OPT", "0"}}), "none");
  EXPECT_EQ(environment_text({{"DISABLE_LLVM_OPT", "True"}}), "DISABLE_LLVM_OPT=1");
  EXPECT_EQ(environment_text({{"DISABLE_LLVM_OPT", "disable-lsr"}}), "DISABLE_LLVM_OPT=disable-lsr");
}

TEST(EnvironmentText, KnowsOnlyTheWordsThatTorchTakesForACapability) {
  EXPECT_EQ(environment_text({{"ATEN_CPU_CAPABILITY", "avx2"}}), "ATEN_CPU_CAPABILITY=avx2");
  EXPECT_EQ(environment_text({{"ATEN_CPU_CAPABILITY", "default"}}), "ATEN_CPU_CAPABILITY=default");
  for (const char* ignored : {"", "AVX2", "sse", "avx2 "}) {
    EXPECT_EQ(environment_text({{"ATEN_CPU_CAPABILITY", ignored}}), "none") << ignored;
  }
}

TEST(EnvironmentText, TakesASwitchOfTorchAsItsCppCodeDoes) {
  for (const char* name : {"TORCH_LINEAR_FLATTEN_3D", "TORCH_CUDNN_SDPA_DEPRIORITIZED"}) {
    EXPECT_EQ(environment_text({{name, "1"}}), std::string(name) + "=1");
    for (const char* off : {"0", "", "true", "on", "01", " 1"})
      EXPECT_EQ(environment_text({{name, off}}), "none") << off;
  }
  EXPECT_EQ(environment_text({{"TORCH_CUDNN_SDPA_PREFERRED", "0"}}), "TORCH_CUDNN_SDPA_PREFERRED=0");
  EXPECT_EQ(environment_text({{"TORCH_CUDNN_SDPA_PREFERRED", "1"}}), "TORCH_CUDNN_SDPA_PREFERRED=1");
  EXPECT_EQ(environment_text({{"TORCH_CUDNN_SDPA_PREFERRED", "false"}}), "none");
}

TEST(EnvironmentText, TakesAnEmptySwitchOfThreeStatesForOff) {
  EXPECT_EQ(environment_text({{"AMDGCN_USE_BUFFER_OPS", ""}}), "AMDGCN_USE_BUFFER_OPS=0");
}

TEST(EnvironmentText, TakesANumberAsANumber) {
  for (const char* three : {"3", "03", " 3", "3 ", "+3", "0003\n"}) {
    EXPECT_EQ(environment_text({{"TRITON_HIP_LOCAL_PREFETCH", three}}), "TRITON_HIP_LOCAL_PREFETCH=3") << three;
  }
  for (const char* zero : {"0", "00", " 0", "-0", ""}) {
    EXPECT_EQ(environment_text({{"TRITON_HIP_LOCAL_PREFETCH", zero}}), "none") << zero;
  }
  EXPECT_EQ(environment_text({{"TRITON_HIP_LOCAL_PREFETCH", "-01"}}), "TRITON_HIP_LOCAL_PREFETCH=-1");
  for (const char* other : {"3x", "0x3", "3.0", "-", "x"}) {
    EXPECT_EQ(environment_text({{"TRITON_HIP_LOCAL_PREFETCH", other}}),
              std::string("TRITON_HIP_LOCAL_PREFETCH=") + other);
  }
}

TEST(EnvironmentText, LeavesAFileToWhoeverMayReadIt) {
  EXPECT_EQ(environment_text({{"TRITON_PTXAS_PATH", "/usr/local/cuda/bin/ptxas"}}),
            "TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas");
  EXPECT_EQ(environment_text({{"TRITON_PTXAS_PATH", ""}}), "none");
}

TEST(Variables, HaveAKindOfFileExactlyIfTheyNameOne) {
  for (const Variable& variable : variables()) {
    EXPECT_EQ(variable.file != nullptr, variable.reading == Reading::kFile) << variable.name;
    if (variable.file == nullptr) continue;
    EXPECT_FALSE(variable.file->magic.empty()) << variable.name;
    EXPECT_FALSE(variable.file->in_triton.empty()) << variable.name;
  }
}

TEST(UnknownFileIn, FindsAVariableWhoseContentIsNotKnown) {
  EXPECT_EQ(unknown_file_in("none"), "");
  EXPECT_EQ(unknown_file_in("TRITON_PTXAS_PATH=" + content_value(codec::digest_of("x"))), "");
  EXPECT_EQ(unknown_file_in("PTXAS_OPTIONS=-O1\nTRITON_PTXAS_PATH=" + not_known_value("/x does not exist")),
            "TRITON_PTXAS_PATH: /x does not exist");
  EXPECT_EQ(unknown_file_in("PTXAS_OPTIONS=not known: x"), "") << "it names no file";
}

TEST(EnvironmentText, KeepsAValueOnOneLine) {
  EXPECT_EQ(environment_text({{"PTXAS_OPTIONS", "-O1\nTRITON_F32_DEFAULT=ieee"}}),
            "PTXAS_OPTIONS=-O1 TRITON_F32_DEFAULT=ieee");
}

TEST(EnvironmentText, IsReadBackAsItsCanonicalValues) {
  const Environment environment = {{"TRITON_DEFAULT_FP_FUSION", "off"}, {"PTXAS_OPTIONS", "-a=b -c"}, {"X", "y"}};
  const Environment values = {{"TRITON_DEFAULT_FP_FUSION", "0"}, {"PTXAS_OPTIONS", "-a=b -c"}};
  EXPECT_EQ(environment_from_text(environment_text(environment)), values);
  EXPECT_EQ(environment_values(environment), values);
  EXPECT_TRUE(environment_from_text("none").empty());
  EXPECT_TRUE(environment_from_text("").empty());
}

TEST(Matters, FollowsTheKeysThatHoldTheVariable) {
  const std::vector<Facet> graphs = {Facet::kTorch, Facet::kTriton,      Facet::kCuda,
                                     Facet::kGpu,   Facet::kEnvironment, Facet::kCpuIsa};
  const std::vector<Facet> kernels = {Facet::kTriton, Facet::kGpuArch, Facet::kEnvironment};
  const std::vector<Facet> libraries = {Facet::kTorch, Facet::kPython, Facet::kLibc, Facet::kCpu, Facet::kEnvironment};
  const auto matter = [](const char* name, const std::vector<Facet>& facets) {
    return matters(*find_variable(name), facets);
  };
  // Triton's own key holds it, Inductor's do not.
  EXPECT_TRUE(matter("TRITON_DEFAULT_FP_FUSION", graphs));
  EXPECT_FALSE(matter("TRITON_DEFAULT_FP_FUSION", kernels));
  EXPECT_FALSE(matter("TRITON_DEFAULT_FP_FUSION", libraries));
  // No key holds it.
  EXPECT_TRUE(matter("TRITON_KERNEL_OVERRIDE", graphs));
  EXPECT_TRUE(matter("TRITON_KERNEL_OVERRIDE", kernels));
  EXPECT_FALSE(matter("TRITON_KERNEL_OVERRIDE", libraries));
  EXPECT_TRUE(matter("ATEN_CPU_CAPABILITY", graphs));
  EXPECT_FALSE(matter("ATEN_CPU_CAPABILITY", kernels));
  EXPECT_FALSE(matter("CPATH", graphs));
  EXPECT_TRUE(matter("CPATH", libraries));
  // Only an engine's own kernels come from nvcc.
  EXPECT_FALSE(matter("NVCC_APPEND_FLAGS", graphs));
  EXPECT_FALSE(matter("NVCC_APPEND_FLAGS", kernels));
  EXPECT_TRUE(matter("NVCC_APPEND_FLAGS", {Facet::kCuda, Facet::kGpu, Facet::kEnvironment}));
}

}  // namespace
}  // namespace inductorfs::fingerprint
