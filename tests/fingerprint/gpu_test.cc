// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>

#include "fake_packages.h"
#include "fingerprint/child.h"
#include "fingerprint/facts.h"
#include "support/temporary_directory.h"

namespace inductorfs::fingerprint {
namespace {

using inductorfs::testing::TemporaryDirectory;
using testing::write_script;

/// Environment variables for one test. Needs external synchronisation.
class Variables {
 public:
  explicit Variables(std::map<std::string, std::string> values) : values_(std::move(values)) {
    for (const auto& [name, value] : values_) EXPECT_EQ(setenv(name.c_str(), value.c_str(), 1), 0);
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;
  ~Variables() {
    for (const auto& [name, value] : values_) EXPECT_EQ(unsetenv(name.c_str()), 0);
  }

 private:
  std::map<std::string, std::string> values_;
};

/// A host with the devices that the FAKE_CUDA_* variables describe (tests/support/nogpu/fake_libcuda.c).
GpuAnswer ask_stand_in(std::map<std::string, std::string> variables) {
  variables["LD_LIBRARY_PATH"] = FAKE_CUDA_FOLDER;
  const Variables set(std::move(variables));
  ProbeOptions options;
  options.gpu_probe = GPU_PROBE_PATH;
  return ask_gpu(options);
}

class GpuProbe : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::string(FAKE_CUDA_FOLDER).empty()) GTEST_SKIP() << "built without cuda.h: NO TEST OF THE GPU PROBE RAN";
  }
};

TEST_F(GpuProbe, DescribesTheDevice) {
  const GpuAnswer answer = ask_stand_in({});
  ASSERT_EQ(answer.state, GpuState::kPresent) << answer.detail;
  EXPECT_EQ(answer.driver, 13020);
  ASSERT_EQ(answer.devices.size(), 1U);
  EXPECT_EQ(answer.devices[0].uuid.size(), 32U);
  EXPECT_EQ(gpu_fact(answer).value, "device=NVIDIA H100 80GB HBM3; cc=9.0; sms=132; memory_gib=80");
  EXPECT_EQ(gpu_arch_fact(answer).value, "cc=9.0");
}

TEST_F(GpuProbe, TellsDevicesApartByEachFact) {
  const Fact base = gpu_fact(ask_stand_in({}));
  EXPECT_NE(gpu_fact(ask_stand_in({{"FAKE_CUDA_NAME", "NVIDIA H200"}})).value, base.value);
  EXPECT_NE(gpu_fact(ask_stand_in({{"FAKE_CUDA_CC", "8.0"}})).value, base.value);
  EXPECT_NE(gpu_fact(ask_stand_in({{"FAKE_CUDA_SMS", "114"}})).value, base.value);
  EXPECT_NE(gpu_fact(ask_stand_in({{"FAKE_CUDA_MEM_MB", "40960"}})).value, base.value);
  EXPECT_EQ(gpu_arch_fact(ask_stand_in({{"FAKE_CUDA_CC", "8.0"}})).value, "cc=8.0");
}

TEST_F(GpuProbe, TakesEqualDevicesAndOtherDriversForTheSame) {
  const Fact base = gpu_fact(ask_stand_in({}));
  EXPECT_EQ(gpu_fact(ask_stand_in({{"FAKE_CUDA_COUNT", "8"}})).value, base.value);
  EXPECT_EQ(gpu_fact(ask_stand_in({{"FAKE_CUDA_VERSION", "13010"}})).value, base.value);
  EXPECT_EQ(gpu_fact(ask_stand_in({{"FAKE_CUDA_MEM_MB", "81485"}})).value, base.value);
}

TEST_F(GpuProbe, ADriverWithoutADeviceIsACpuHost) {
  const GpuAnswer answer = ask_stand_in({{"FAKE_CUDA_COUNT", "0"}});
  EXPECT_EQ(answer.state, GpuState::kAbsent);
  EXPECT_EQ(gpu_fact(answer).value, "none");
  EXPECT_EQ(gpu_arch_fact(answer).value, "none");
  EXPECT_NE(answer.detail.find("no device"), std::string::npos);
}

TEST(GpuProbeChild, AHostWithoutADriverIsACpuHost) {
  if (access("/dev/nvidiactl", F_OK) == 0) GTEST_SKIP() << "this host has a driver";
  ProbeOptions options;
  options.gpu_probe = GPU_PROBE_PATH;
  const GpuAnswer answer = ask_gpu(options);
  EXPECT_EQ(answer.state, GpuState::kAbsent) << answer.detail;
  const Fact fact = gpu_fact(answer);
  EXPECT_TRUE(fact.known);
  EXPECT_EQ(fact.value, "none");
  EXPECT_NE(fact.source.find("libcuda.so.1"), std::string::npos);
}

TEST(GpuProbeChild, AHungDriverIsUnknownAfterTheDeadline) {
  const TemporaryDirectory temporary;
  write_script(temporary / "probe", "exec sleep 60");
  ProbeOptions options;
  options.gpu_probe = temporary / "probe";
  options.deadline = Milliseconds(200);
  const GpuAnswer answer = ask_gpu(options);
  EXPECT_EQ(answer.state, GpuState::kUnknown);
  for (const Fact& fact : {gpu_fact(answer), gpu_arch_fact(answer), cuda_fact(PythonFacts{}, answer)}) {
    EXPECT_FALSE(fact.known);
    EXPECT_NE(fact.problem.find("in time"), std::string::npos) << fact.problem;
  }
}

TEST(GpuProbeChild, ACrashIsUnknown) {
  const TemporaryDirectory temporary;
  write_script(temporary / "probe", "echo it broke >&2; kill -SEGV $$");
  ProbeOptions options;
  options.gpu_probe = temporary / "probe";
  const GpuAnswer answer = ask_gpu(options);
  EXPECT_EQ(answer.state, GpuState::kUnknown);
  EXPECT_NE(answer.detail.find("139: it broke"), std::string::npos) << answer.detail;
}

TEST(GpuProbeChild, DoesNotStartItselfAgain) {
  const Variables inside({{std::string(kProbeMarker), "1"}});
  // The program would be this test program itself.
  EXPECT_EQ(ask_gpu(ProbeOptions{}).state, GpuState::kUnknown);
}

std::string answer_text(const std::string& device) {
  return R"({"status": "present", "driver": 13020, "devices": [)" + device + "]}";
}
constexpr const char* kDevice =
    R"({"name": "X", "capability": "9.0", "multiprocessors": 1, "memory_bytes": 1073741824, "uuid": "00"})";

TEST(GpuAnswer, ListsTheDistinctModelsSorted) {
  const GpuAnswer answer = parse_gpu_answer(answer_text(
      std::string(kDevice) + "," +
      R"({"name": "A", "capability": "8.0", "multiprocessors": 2, "memory_bytes": 2147483648, "uuid": "01"},)" +
      kDevice));
  ASSERT_EQ(answer.state, GpuState::kPresent);
  EXPECT_EQ(gpu_fact(answer).value, "device=A; cc=8.0; sms=2; memory_gib=2\ndevice=X; cc=9.0; sms=1; memory_gib=1");
  EXPECT_EQ(gpu_arch_fact(answer).value, "cc=8.0\ncc=9.0");
}

TEST(GpuAnswer, IsUnknownForAnythingElse) {
  EXPECT_EQ(parse_gpu_answer(answer_text(kDevice)).state, GpuState::kPresent);
  std::string many;
  for (int i = 0; i < 300; ++i) many += (i == 0 ? "" : ",") + std::string(kDevice);
  const std::string texts[] = {
      "",
      "text",
      "[]",
      "{}",
      R"({"status": 1})",
      R"({"status": "present"})",
      answer_text(""),
      answer_text("1"),
      answer_text("{}"),
      R"({"status": "present", "driver": "13", "devices": []})",
      answer_text(many),
      answer_text(R"({"name": "", "capability": "9.0", "multiprocessors": 1, "memory_bytes": 1, "uuid": ""})"),
      answer_text(R"({"name": "X", "capability": "9.0", "multiprocessors": 1, "memory_bytes": -1, "uuid": ""})")};
  for (const std::string& text : texts) {
    const GpuAnswer answer = parse_gpu_answer(text);
    EXPECT_EQ(answer.state, GpuState::kUnknown) << text.substr(0, 100);
    EXPECT_FALSE(answer.detail.empty()) << text.substr(0, 100);
    EXPECT_FALSE(gpu_fact(answer).known);
  }
}

TEST(GpuAnswer, KeepsTheReasonOfAFailure) {
  const GpuAnswer answer = parse_gpu_answer(R"({"status": "failed", "detail": "error 999"})");
  EXPECT_EQ(answer.state, GpuState::kUnknown);
  EXPECT_EQ(gpu_fact(answer).problem, "error 999");
}

}  // namespace
}  // namespace inductorfs::fingerprint
