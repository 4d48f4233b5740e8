// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>

#include "fake_packages.h"
#include "fingerprint/common/child.h"
#include "fingerprint/facts/facts.h"
#include "inductorfs/fingerprint/writers.h"
#include "support/lacks.h"
#include "support/temporary_directory.h"

namespace inductorfs::fingerprint {
namespace {

using inductorfs::testing::TemporaryDirectory;
using testing::write_script;
using testing::write_text;

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

/// A root without /proc and /sys: what this machine has must not count.
constexpr const char* kNoSystem = "/nonexistent";

/// A host with the devices that the FAKE_CUDA_* variables describe (tests/support/nogpu/fake_libcuda.c).
GpuAnswer ask_stand_in(std::map<std::string, std::string> variables, Milliseconds deadline = Milliseconds(20000)) {
  variables["LD_LIBRARY_PATH"] = FAKE_CUDA_FOLDER;
  const Variables set(std::move(variables));
  ProbeOptions options;
  options.gpu_probe = GPU_PROBE_PATH;
  options.deadline = deadline;
  return ask_gpu(options, kNoSystem);
}

/// What the details of the gpu facet have under `key`; empty when they have no such line.
std::string detail(const Fact& fact, const std::string& key) {
  const std::string text = "\n" + fact.details + "\n";
  const size_t start = text.find("\n" + key + "=");
  if (start == std::string::npos) return {};
  const size_t value = start + key.size() + 2;
  return text.substr(value, text.find('\n', value) - value);
}

class GpuProbe : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::string(FAKE_CUDA_FOLDER).empty()) INDUCTORFS_LACKS("a stand-in driver: no test of the GPU probe ran");
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

TEST_F(GpuProbe, TakesDriversOfOneMajorVersionForTheSame) {
  PythonFacts no_torch;
  no_torch.executable = "/fake/python";
  const auto of_driver = [&](const char* version) {
    return cuda_fact(no_torch, ask_stand_in({{"FAKE_CUDA_VERSION", version}})).value;
  };
  EXPECT_EQ(of_driver("13010"), of_driver("13020"));
  EXPECT_NE(of_driver("12080"), of_driver("13020"));
}

TEST_F(GpuProbe, ADriverWithoutADeviceIsACpuHost) {
  const GpuAnswer answer = ask_stand_in({{"FAKE_CUDA_COUNT", "0"}});
  EXPECT_EQ(answer.state, GpuState::kAbsent);
  EXPECT_EQ(gpu_fact(answer).value, "none");
  EXPECT_EQ(gpu_arch_fact(answer).value, "none");
  EXPECT_NE(answer.detail.find("no device"), std::string::npos);
}

TEST_F(GpuProbe, EqualDevicesInAnyOrderAreTheSame) {
  const std::map<std::string, std::string> host = {{"FAKE_CUDA_COUNT", "4"}};
  const auto visible = [&host](const char* list) {
    auto variables = host;
    variables["CUDA_VISIBLE_DEVICES"] = list;
    return ask_stand_in(variables);
  };
  const GpuAnswer first = visible("0,1,2,3");
  const GpuAnswer other = visible("3,1");
  EXPECT_EQ(other.devices.size(), 2U);
  EXPECT_NE(other.devices[0].uuid, first.devices[0].uuid);
  EXPECT_EQ(gpu_fact(other).value, gpu_fact(first).value);
  EXPECT_EQ(gpu_arch_fact(other).value, gpu_arch_fact(first).value);
  EXPECT_EQ(gpu_fact(visible("")).value, "none") << "CUDA_VISIBLE_DEVICES hides all of them";
}

TEST_F(GpuProbe, UnequalDevicesAreAllNamedAndTheOneThatIsVisibleAlone) {
  std::map<std::string, std::string> host = {{"FAKE_CUDA_COUNT", "3"},
                                             {"FAKE_CUDA_NAME", "NVIDIA A100-SXM4-80GB;NVIDIA H100 80GB HBM3"},
                                             {"FAKE_CUDA_CC", "8.0;9.0"},
                                             {"FAKE_CUDA_SMS", "108;132"}};
  const GpuAnswer all = ask_stand_in(host);
  EXPECT_EQ(gpu_arch_fact(all).value, "cc=8.0\ncc=9.0");
  EXPECT_EQ(gpu_fact(all).value,
            "device=NVIDIA A100-SXM4-80GB; cc=8.0; sms=108; memory_gib=80\n"
            "device=NVIDIA H100 80GB HBM3; cc=9.0; sms=132; memory_gib=80");
  host["CUDA_VISIBLE_DEVICES"] = "2,0,1";
  const GpuAnswer turned = ask_stand_in(host);
  EXPECT_EQ(gpu_fact(turned).value, gpu_fact(all).value);
  EXPECT_EQ(detail(gpu_fact(turned), "gpu0.name"), "NVIDIA H100 80GB HBM3");
  host["CUDA_VISIBLE_DEVICES"] = "1";
  EXPECT_EQ(gpu_arch_fact(ask_stand_in(host)).value, "cc=9.0");
}

TEST_F(GpuProbe, AnInstanceOfASplitDeviceIsNotTheWholeOne) {
  const std::map<std::string, std::string> whole = {{"FAKE_CUDA_NAME", "NVIDIA A100-SXM4-40GB"},
                                                    {"FAKE_CUDA_CC", "8.0"},
                                                    {"FAKE_CUDA_SMS", "108"},
                                                    {"FAKE_CUDA_MEM_MB", "40326"}};
  auto instance = whole;
  instance["FAKE_CUDA_NAME"] += " MIG 1g.5gb";
  instance["FAKE_CUDA_SMS"] = "14";
  instance["FAKE_CUDA_MEM_MB"] = "4864";
  instance["FAKE_CUDA_MIG"] = "1";
  const Fact fact = gpu_fact(ask_stand_in(instance));
  const Fact base = gpu_fact(ask_stand_in(whole));
  EXPECT_NE(fact.value, base.value);
  EXPECT_EQ(detail(fact, "gpu0.mig"), "1g.5gb");
  EXPECT_TRUE(detail(fact, "gpu0.uuid").starts_with("MIG-")) << fact.details;
  EXPECT_EQ(detail(fact, "gpu0.parent_uuid"), detail(base, "gpu0.uuid"));
  EXPECT_EQ(detail(base, "gpu0.mig"), "no");
  EXPECT_EQ(detail(base, "gpu0.parent_uuid"), "");
}

TEST_F(GpuProbe, TellsWhatTritonAndInductorReadOfADevice) {
  const Fact fact = gpu_fact(ask_stand_in({}));
  EXPECT_EQ(detail(fact, "gpu0.registers_per_multiprocessor"), "65536");
  EXPECT_EQ(detail(fact, "gpu0.shared_memory_per_block"), "49152");
  EXPECT_EQ(detail(fact, "gpu0.shared_memory_per_block_optin"), "232448");
  EXPECT_EQ(detail(fact, "gpu0.shared_memory_per_multiprocessor"), "233472");
  EXPECT_EQ(detail(fact, "gpu0.warp_size"), "32");
  EXPECT_EQ(detail(fact, "gpu0.clock_khz"), "1980000");
  EXPECT_EQ(detail(fact, "gpu0.uuid"), "GPU-46414b45-2d43-5544-412d-4445562d3000");
  EXPECT_EQ(detail(fact, "driver_cuda"), "13.2");
}

/// The driver does not come up: the GPU facets are not known, each for its own reason.
TEST_F(GpuProbe, ADriverThatFailsIsUnknownWithItsReason) {
  const std::pair<const char*, const char*> failures[] = {{"cuInit=999", "may be lost"},
                                                          {"cuInit=803", "different versions"},
                                                          {"cuInit=802", "fabric manager"},
                                                          {"cuInit=3", "error 3"},
                                                          {"cuDeviceGetName=101", "device 0: error 101"}};
  for (const auto& [failure, reason] : failures) {
    const GpuAnswer answer = ask_stand_in({{"FAKE_CUDA_FAIL", failure}});
    EXPECT_EQ(answer.state, GpuState::kUnknown) << failure;
    for (const Fact& fact : {gpu_fact(answer), gpu_arch_fact(answer), cuda_fact(PythonFacts{}, answer)}) {
      EXPECT_FALSE(fact.known) << failure;
      EXPECT_NE(fact.problem.find(reason), std::string::npos) << failure << ": " << fact.problem;
      EXPECT_EQ(fact.problem.find('\n'), std::string::npos);
    }
  }
}

TEST_F(GpuProbe, ADriverThatIsTooOldSaysSo) {
  const GpuAnswer answer = ask_stand_in({{"FAKE_CUDA_VERSION", "10020"}});
  EXPECT_EQ(answer.state, GpuState::kUnknown);
  EXPECT_EQ(gpu_fact(answer).problem, "the driver is too old: its CUDA level is 10.2, needed is 11.0 or newer");
}

TEST_F(GpuProbe, AStubForLinkingIsACpuHost) {
  const GpuAnswer answer = ask_stand_in({{"FAKE_CUDA_FAIL", "cuInit=34"}});
  EXPECT_EQ(answer.state, GpuState::kAbsent);
  EXPECT_NE(gpu_fact(answer).source.find("a toolkit's, to link with"), std::string::npos) << gpu_fact(answer).source;
}

TEST_F(GpuProbe, AHungDriverIsKilledAtTheDeadline) {
  const GpuAnswer answer = ask_stand_in({{"FAKE_CUDA_HANG", "cuInit"}}, Milliseconds(300));
  EXPECT_EQ(answer.state, GpuState::kUnknown);
  EXPECT_NE(answer.detail.find("may hang"), std::string::npos) << answer.detail;
}

/// The kernel on the stand-in: it computes what the kernel would, unless it is told otherwise.
class GpuKernel : public GpuProbe {
 protected:
  void SetUp() override {
    GpuProbe::SetUp();
    if (HAS_GPU_KERNEL == 0) INDUCTORFS_LACKS("nvcc: no test of the probe's kernel ran");
  }
};

TEST_F(GpuKernel, RunsOnEveryDeviceAndGivesItsMemoryBack) {
  const Fact fact = gpu_fact(ask_stand_in({{"FAKE_CUDA_COUNT", "2"}}));
  ASSERT_TRUE(fact.known) << fact.problem;
  for (const std::string device : {"gpu0.", "gpu1."}) {
    EXPECT_EQ(detail(fact, device + "runs_code"), "yes") << fact.details;
    EXPECT_EQ(detail(fact, device + "kernel_image"), "cubin");
    EXPECT_EQ(detail(fact, device + "memory_free_before"), detail(fact, device + "memory_free_after"));
    EXPECT_NE(detail(fact, device + "memory_free_before"), "");
  }
  EXPECT_NE(detail(fact, "probe_kernel").find("90"), std::string::npos);
}

TEST_F(GpuKernel, IsCompiledForEachArchitectureThatIsSupported) {
  for (const char* capability : {"7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "12.0", "12.1"}) {
    const Fact fact = gpu_fact(ask_stand_in({{"FAKE_CUDA_CC", capability}}));
    EXPECT_EQ(detail(fact, "gpu0.runs_code"), "yes") << capability << ": " << fact.problem;
    EXPECT_EQ(detail(fact, "gpu0.kernel_image"), "cubin") << capability;
  }
}

TEST_F(GpuKernel, IsPtxWhereItsBinariesDoNotFit) {
  for (const std::map<std::string, std::string>& host :
       {std::map<std::string, std::string>{{"FAKE_CUDA_CC", "15.0"}},
        {{"FAKE_CUDA_FAIL", "cuModuleLoadData.fatbin=200"}},
        {{"FAKE_CUDA_FAIL", "cuModuleLoadData.fatbin=222"}, {"FAKE_CUDA_VERSION", "11000"}}}) {
    const Fact fact = gpu_fact(ask_stand_in(host));
    EXPECT_EQ(detail(fact, "gpu0.runs_code"), "yes") << fact.problem;
    EXPECT_EQ(detail(fact, "gpu0.kernel_image"), "ptx");
  }
}

TEST_F(GpuKernel, ADeviceThatDoesNotRunItHasNoFacts) {
  const std::pair<std::pair<const char*, const char*>, const char*> cases[] = {
      {{"FAKE_CUDA_KERNEL", "nothing"}, "wrote nothing"},
      {{"FAKE_CUDA_KERNEL", "wrong"}, "wrong: 2 of 135168 words"},
      {{"FAKE_CUDA_FAIL", "cuLaunchKernel=719"}, "may be lost"},
      {{"FAKE_CUDA_FAIL", "cuStreamQuery=700"}, "the kernel: error 700"},
      {{"FAKE_CUDA_FAIL", "cuDevicePrimaryCtxRetain=214"}, "memory is damaged"},
      {{"FAKE_CUDA_FAIL", "cuStreamQuery=600"}, "did not end within"}};
  for (const auto& [setting, reason] : cases) {
    const GpuAnswer answer = ask_stand_in({{setting.first, setting.second}});
    EXPECT_EQ(answer.state, GpuState::kPresent) << setting.second;
    for (const Fact& fact : {gpu_fact(answer), gpu_arch_fact(answer)}) {
      EXPECT_FALSE(fact.known) << setting.second;
      EXPECT_NE(fact.problem.find("device 0 (NVIDIA H100 80GB HBM3) does not run code: "), std::string::npos)
          << fact.problem;
      EXPECT_NE(fact.problem.find(reason), std::string::npos) << fact.problem;
    }
    EXPECT_TRUE(detail(gpu_fact(answer), "gpu0.runs_code").starts_with("no: ")) << setting.second;
    PythonFacts no_torch;
    no_torch.executable = "/fake/python";
    EXPECT_EQ(cuda_fact(no_torch, answer).value, "driver=13\ntorch=none")
        << "what the driver can is known all the same";
  }
}

TEST_F(GpuKernel, AfterADeviceThatHangsNoFurtherOneIsTried) {
  const GpuAnswer answer = ask_stand_in({{"FAKE_CUDA_FAIL", "cuStreamQuery=600"}, {"FAKE_CUDA_COUNT", "8"}});
  ASSERT_EQ(answer.devices.size(), 8U) << answer.detail;
  EXPECT_EQ(answer.devices[0].runs, Runs::kNo);
  EXPECT_EQ(answer.devices[7].runs, Runs::kUntried);
  EXPECT_EQ(answer.devices[7].why, "a device before it hung");
}

TEST_F(GpuKernel, NothingSpeaksAgainstADeviceThatIsBusyOrForWhichThereIsNoKernel) {
  const std::string value = gpu_fact(ask_stand_in({})).value;
  for (const char* occupied : {"cuDevicePrimaryCtxRetain=2", "cuDevicePrimaryCtxRetain=46", "cuMemAlloc=2"}) {
    const Fact fact = gpu_fact(ask_stand_in({{"FAKE_CUDA_FAIL", occupied}}));
    EXPECT_TRUE(fact.known) << occupied << ": " << fact.problem;
    EXPECT_EQ(fact.value, value);
    EXPECT_TRUE(detail(fact, "gpu0.runs_code").starts_with("not tried: ")) << fact.details;
  }
  const Fact old = gpu_fact(ask_stand_in({{"FAKE_CUDA_CC", "7.0"}, {"FAKE_CUDA_NAME", "Tesla V100-SXM2-32GB"}}));
  EXPECT_TRUE(old.known) << old.problem;
  EXPECT_NE(detail(old, "gpu0.runs_code").find("no kernel for it in this program"), std::string::npos) << old.details;
}

TEST_F(GpuProbe, SaysWhatKernelThisProgramHas) {
  const Fact fact = gpu_fact(ask_stand_in({}));
  EXPECT_TRUE(fact.known) << "without a kernel devices are taken at their driver's word";
  const std::string kernel = detail(fact, "probe_kernel");
  EXPECT_EQ(kernel.find("built without nvcc") != std::string::npos, HAS_GPU_KERNEL == 0) << kernel;
  EXPECT_EQ(detail(fact, "gpu0.runs_code").find("built without nvcc") != std::string::npos, HAS_GPU_KERNEL == 0);
}

TEST(GpuProbeChild, AHostWithoutADriverIsACpuHost) {
  ProbeOptions options;
  options.gpu_probe = GPU_PROBE_PATH;
  const GpuAnswer answer = ask_gpu(options, kNoSystem);
  const Fact fact = gpu_fact(answer);
  if (access("/dev/nvidiactl", F_OK) == 0) {
    // What it says of its devices is for tests/gpu; that it says something holds anywhere.
    EXPECT_TRUE(fact.known ? !fact.value.empty() : !fact.problem.empty());
    return;
  }
  EXPECT_EQ(answer.state, GpuState::kAbsent) << answer.detail;
  EXPECT_TRUE(fact.known);
  EXPECT_EQ(fact.value, "none");
  EXPECT_NE(fact.source.find("libcuda.so.1"), std::string::npos);
}

std::string answer_text(const std::string& device) {
  return R"({"status": "present", "driver": 13020, "devices": [)" + device + "]}";
}
constexpr const char* kDevice =
    R"({"name": "X", "capability": "9.0", "multiprocessors": 1, "memory_bytes": 1073741824, "uuid": "00"})";

/// A host whose driver cannot be asked, by what /proc and /sys show of it.
class UnaskedGpu : public ::testing::Test {
 protected:
  UnaskedGpu() {
    write_script(temporary_ / "probe", R"(echo '{"status": "absent", "detail": "no driver"}'; exit 3)");
    options_.gpu_probe = temporary_ / "probe";
  }
  void add_pci(const std::string& address, const std::string& vendor, const std::string& kind) {
    const std::string device = root_ + "/sys/bus/pci/devices/" + address;
    write_text(device + "/vendor", vendor + "\n");
    write_text(device + "/class", kind + "\n");
  }
  TemporaryDirectory temporary_;
  std::string root_ = temporary_ / "root";
  ProbeOptions options_;
};

TEST_F(UnaskedGpu, IsNoneWhereNoDeviceIsInSight) {
  EXPECT_EQ(gpu_fact(ask_gpu(options_, root_)).value, "none");
  add_pci("0000:01:00.1", "0x10de", "0x040300");  // the sound of a card
  EXPECT_EQ(gpu_fact(ask_gpu(options_, root_)).value, "none");
}

TEST_F(UnaskedGpu, IsNotKnownWhereTheBusShowsADevice) {
  add_pci("0000:17:00.0", "0x10de", "0x030200");
  add_pci("0000:ca:00.0", "0x10de", "0x030000");
  const GpuAnswer answer = ask_gpu(options_, root_);
  for (const Fact& fact : {gpu_fact(answer), gpu_arch_fact(answer), cuda_fact(PythonFacts{}, answer)}) {
    EXPECT_FALSE(fact.known) << fact.value;
    EXPECT_NE(fact.problem.find("0000:17:00.0 and 1 more"), std::string::npos) << fact.problem;
    EXPECT_NE(fact.problem.find("CUDA_VISIBLE_DEVICES"), std::string::npos) << fact.problem;
  }
}

TEST_F(UnaskedGpu, IsNotKnownWhereTheKernelDriverHasADevice) {
  write_text(root_ + "/proc/driver/nvidia/gpus/0000:17:00.0/information", "Model: NVIDIA H100\n");
  EXPECT_FALSE(gpu_fact(ask_gpu(options_, root_)).known);
}

TEST_F(UnaskedGpu, IsNoneOnlyWhereTheVariableHidesEveryDevice) {
  add_pci("0000:17:00.0", "0x10de", "0x030200");
  for (const char* value : {"", "-1", "-1,0", "NoDevFiles"}) {
    const Variables hidden(std::map<std::string, std::string>{{"CUDA_VISIBLE_DEVICES", value}});
    EXPECT_EQ(gpu_fact(ask_gpu(options_, root_)).value, "none") << value;
  }
  for (const char* value : {"0", "0,-1", "1,0", "GPU-1234", "MIG-1", "all"}) {
    const Variables named(std::map<std::string, std::string>{{"CUDA_VISIBLE_DEVICES", value}});
    const Fact fact = gpu_fact(ask_gpu(options_, root_));
    EXPECT_FALSE(fact.known) << value << " names a device that nobody asked";
    EXPECT_NE(fact.problem.find("0000:17:00.0"), std::string::npos) << fact.problem;
  }
}

TEST_F(UnaskedGpu, IsNoneBesideAScreen) {
  add_pci("0000:02:00.0", "0x1a03", "0x030000");  // ASPEED
  add_pci("0000:00:01.0", "0x1af4", "0x038000");  // virtio-gpu
  add_pci("0000:00:03.0", "0x1d0f", "0x030000");  // Amazon's
  add_pci("0000:00:04.0", "0x1d0f", "0x020000");  // and its network
  add_pci("0000:00:05.0", "0x10ee", "0x120000");  // an FPGA
  add_pci("0000:6b:00.0", "0x8086", "0x0b4000");  // QuickAssist
  write_text(root_ + "/dev/accel/accel0", "");
  EXPECT_EQ(gpu_fact(ask_gpu(options_, root_)).value, "none");
}

TEST_F(UnaskedGpu, IsNotKnownWhereThereIsAnAcceleratorOfAnotherMaker) {
  struct Device {
    const char* vendor;
    const char* kind;
  };
  for (const auto& [vendor, kind] : {Device{"0x1da3", "0x120000"}, Device{"0x19e5", "0x120000"},
                                     Device{"0x1d94", "0x038000"}, Device{"0x1414", "0x030200"}}) {
    add_pci("0000:17:00.0", vendor, kind);
    const GpuAnswer answer = ask_gpu(options_, root_);
    for (const Fact& fact : {gpu_fact(answer), gpu_arch_fact(answer), cuda_fact(PythonFacts{}, answer)}) {
      EXPECT_FALSE(fact.known) << vendor;
      EXPECT_NE(fact.problem.find(std::string("0000:17:00.0, vendor ") + vendor), std::string::npos) << fact.problem;
    }
  }
}

TEST_F(UnaskedGpu, IsNotKnownWhereOnlyANodeShowsTheAccelerator) {
  for (const char* node : {"/dev/neuron0", "/dev/accel0"}) {
    const std::string root = temporary_ / std::string(node + 5);
    write_text(root + node, "");
    EXPECT_NE(gpu_fact(ask_gpu(options_, root)).problem.find(node), std::string::npos);
  }
}

TEST_F(UnaskedGpu, IsThatOfNvidiaBesideAnotherMakersScreen) {
  write_script(temporary_ / "probe", "echo '" + answer_text(kDevice) + "'");
  add_pci("0000:00:02.0", "0x8086", "0x030000");
  add_pci("0000:03:00.0", "0x1ed5", "0x030000");
  EXPECT_TRUE(gpu_fact(ask_gpu(options_, root_)).known);
  add_pci("0000:17:00.0", "0x1da3", "0x120000");
  EXPECT_FALSE(gpu_fact(ask_gpu(options_, root_)).known);
}

/// What a job with this torch has on this host.
Fingerprint on_host(const GpuAnswer& gpu, const std::string& version, const std::string& details) {
  Fingerprint host;
  host.set(Facet::kGpu, gpu_fact(gpu));
  host.set(Facet::kGpuArch, gpu_arch_fact(gpu));
  host.set(Facet::kCuda, cuda_fact(unknown_fact("of the job"), gpu));
  Fingerprint job;
  job.set(Facet::kTorch, known_fact("version=" + version, "/torch"));
  Fact torch = job.get(Facet::kTorch);
  torch.details = details;
  job.set(Facet::kTorch, torch);
  return with_job(host, job);
}

TEST_F(UnaskedGpu, OfAmdOrIntelIsNoneForATorchThatCannotUseIt) {
  for (const char* kind : {"0x030000", "0x038000", "0x120000"}) {
    add_pci("0000:c1:00.0", "0x1002", kind);
    const GpuAnswer answer = ask_gpu(options_, root_);
    EXPECT_EQ(on_host(answer, "2.15.0+cpu", "").get(Facet::kGpu).value, "none");
    EXPECT_EQ(on_host(answer, "2.15.0+cu132", "cuda=13.2").get(Facet::kGpuArch).value, "none");
  }
}

TEST_F(UnaskedGpu, OfAmdOrIntelIsNotKnownForATorchThatIsBuiltForIt) {
  for (const char* vendor : {"0x1002", "0x8086"}) {
    add_pci("0000:c1:00.0", vendor, "0x038000");
    const GpuAnswer answer = ask_gpu(options_, root_);
    for (const auto& [version, details] : {std::pair{"2.9.1", "hip=6.4"}, std::pair{"2.9.1+rocm6.4", ""},
                                           std::pair{"2.9.1+xpu", ""}, std::pair{"2.5.1", "built_for=XPU"}}) {
      const Fingerprint facts = on_host(answer, version, details);
      for (const Facet facet : {Facet::kGpu, Facet::kGpuArch, Facet::kCuda}) {
        EXPECT_FALSE(facts.get(facet).known) << version << " " << to_string(facet);
        EXPECT_NE(facts.get(facet).problem.find(std::string("0000:c1:00.0, vendor ") + vendor), std::string::npos)
            << facts.get(facet).problem;
      }
    }
  }
}

TEST_F(UnaskedGpu, IsNotKnownForATorchOfAnotherBuildWhereNoDeviceIsInSight) {
  EXPECT_FALSE(on_host(ask_gpu(options_, root_), "2.9.1+rocm6.4", "hip=6.4").get(Facet::kGpu).known);
}

TEST_F(UnaskedGpu, IsNotKnownForTritonWhoseTorchIsNotKnown) {
  add_pci("0000:c1:00.0", "0x1002", "0x120000");
  const GpuAnswer answer = ask_gpu(options_, root_);
  Fingerprint host;
  host.set(Facet::kGpu, gpu_fact(answer));
  Fingerprint job;
  job.set(Facet::kTorch, unknown_fact("the process has Triton loaded, and no torch"));
  EXPECT_FALSE(with_job(host, job).get(Facet::kGpu).known);
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

TEST(GpuAnswer, ListsTheDistinctModelsSorted) {
  const GpuAnswer answer = parse_gpu_answer(answer_text(
      std::string(kDevice) + "," +
      R"({"name": "A", "capability": "8.0", "multiprocessors": 2, "memory_bytes": 2147483648, "uuid": "01"},)" +
      kDevice));
  ASSERT_EQ(answer.state, GpuState::kPresent);
  EXPECT_EQ(gpu_fact(answer).value, "device=A; cc=8.0; sms=2; memory_gib=2\ndevice=X; cc=9.0; sms=1; memory_gib=1");
  EXPECT_EQ(gpu_arch_fact(answer).value, "cc=8.0\ncc=9.0");
}

TEST(GpuAnswer, OneDeviceThatDoesNotRunCodeIsNamed) {
  const std::string broken =
      R"({"name": "B", "capability": "9.0", "multiprocessors": 1, "memory_bytes": 1, "uuid": "", "runs": "no",
          "why": "it is tired"})";
  const GpuAnswer answer = parse_gpu_answer(answer_text(std::string(kDevice) + "," + broken));
  ASSERT_EQ(answer.state, GpuState::kPresent);
  const Fact fact = gpu_fact(answer);
  EXPECT_FALSE(fact.known);
  EXPECT_TRUE(fact.problem.starts_with("device 1 (B) does not run code: it is tired")) << fact.problem;
  EXPECT_EQ(detail(fact, "gpu0.runs_code"), "not tried: the probe did not try it");
}

TEST(DriverRelease, IsTheNumberInTheFirstLine) {
  EXPECT_EQ(driver_release("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
                           "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"),
            "550.54.15");
  EXPECT_EQ(driver_release("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"),
            "580.65.06");
  EXPECT_EQ(driver_release("GCC version:  gcc version 12.2.0\n"), "");
  EXPECT_EQ(driver_release(""), "");
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
      answer_text(R"({"name": "X", "capability": "9.0", "multiprocessors": 1, "memory_bytes": -1, "uuid": ""})"),
      answer_text(
          R"({"name": "X", "capability": "9.0", "multiprocessors": 1, "memory_bytes": 1, "uuid": "", "runs": 1})"),
      answer_text(R"({"name": "X", "capability": "9.0", "multiprocessors": 1, "memory_bytes": 1, "uuid": "",
                      "details": {"a": 1}})")};
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
