// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "fuzz_target.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/layout/layout.h"

/// Paths, and contents of every kind that is taken apart, as the file system gives them to the checks: ELF, cubin, PTX,
/// pickle, JSON, group files. elf_fuzz, pickle_fuzz, group_fuzz and json_fuzz look deeper into one each.
namespace {

using namespace inductorfs;

const std::string kKey = "triton/@/ABCDEFGHIJKLMNOPQRSTUVWXYZ234567ABCDEFGHIJKLMNOPQRST/";
const std::string kCode = "ab/cab" + std::string(49, 'a');
const std::string kHex(64, 'a');

const std::array<std::string, 13> kPaths = {kCode + ".main.so",
                                            kCode + ".main.o",
                                            kKey + "launcher.so",
                                            kKey + "k.cubin",
                                            kKey + "k.ptx",
                                            kKey + "k.json",
                                            kKey + "__grp__k.json",
                                            kKey + "k.autotune.json",
                                            kKey + "k.ttir",
                                            "ab/" + kHex + ".best_config",
                                            "aotautograd/aab" + std::string(49, 'a') + "/entry",
                                            kCode + ".py",
                                            "cache/" + kHex};

/// Of serving engines: pickle, JSON, parcels.
const std::array<std::string, 11> kEnginePaths = {
    "torch_aot_compile/" + kHex + "/rank_0_0/model",
    "torch_compile_cache/0123456789/rank_0_0/backbone/vllm_compile_cache.py",
    "modelinfos/a-B.json",
    "flashinfer_autotune_cache/0.7.2/90a/" + kHex + "/autotune_configs.json",
    "autotune/v2/0123456789abcdef/entries/0123456789abcdef01234567.json",
    "cubins/" + std::string(40, 'a') + "/fmha/k.cubin",
    "cubins/" + std::string(40, 'a') + "/fmha/k.so",
    "cache/kernel.gemm.00112233445566778899aabbccddeeff",
    "linux-x86_64/kernels/" + kHex,
    "cuda-binaries/" + kHex,
    "jit/sm90/norm/build-0123456789abcdef/deps-0123456789abcdef"};

layout::HostLimits some_host() {
  layout::HostLimits host;
  host.cuda_architectures = {80, 90};
  host.glibc = "2.36";
  host.glibcxx = "3.4.30";
  host.cxxabi = "1.3.13";
  host.x86_isa_level = 3;
  host.resolves = [](std::string_view soname) { return soname.starts_with("lib"); };
  return host;
}

void fuzz_content(const std::string& path, std::string_view bytes) {
  static const layout::HostLimits host = some_host();
  const layout::Classification classified = layout::classify(path);
  const auto anywhere = layout::check_content(classified, bytes, bytes.size());
  const auto here = layout::check_content(classified, bytes, bytes.size(), host);
  // A host's limits can only refuse what is sound.
  if (!anywhere) {
    INDUCTORFS_CHECK(!here && here.error().code() == anywhere.error().code());
    INDUCTORFS_CHECK(anywhere.error().code() != ErrorCode::kInvalid);
  } else {
    INDUCTORFS_CHECK(here || here.error().code() == ErrorCode::kNotSupported);
  }
  // What is checked whole is never taken for whole when it is not.
  const auto cut = layout::check_content(classified, bytes.substr(0, bytes.size() / 2), bytes.size() + 1);
  INDUCTORFS_CHECK(!cut && cut.error().code() == ErrorCode::kInvalid);
}

/// A candidate's name is taken from its bytes, so that the walk over the pickle is reached.
void fuzz_candidate(std::string_view bytes) {
  const std::string path = "fxgraph/ab/fab" + std::string(49, 'a') + "/" + codec::torch_hash(bytes);
  (void)layout::check_content(layout::classify(path), bytes,
                              bytes.size());  // either answer: only crashes are looked for
}

void fuzz_path(std::string_view path) {
  const layout::Classification classified = layout::classify(path);
  const layout::Classification again = layout::classify(classified.canonical);
  INDUCTORFS_CHECK(again.canonical == classified.canonical && again.family == classified.family);
  INDUCTORFS_CHECK(layout::canonical_path(path) == classified.canonical);
  for (const std::string& sealed : layout::sealed_by_removal_of(path)) {
    INDUCTORFS_CHECK(layout::rule_of(layout::classify(sealed).family).shared);
  }
}

}  // namespace

/// The first byte picks the kind, so that no input is spent on finding a name.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input = fuzz::view(data, size);
  if (input.empty()) return 0;
  constexpr size_t kOthers = 4;
  const size_t kind = fuzz::take_byte(input) % (kPaths.size() + kOthers + kEnginePaths.size());
  if (kind < kPaths.size()) {
    fuzz_content(kPaths[kind], input);
  } else if (kind >= kPaths.size() + kOthers) {
    fuzz_content(kEnginePaths[kind - kPaths.size() - kOthers], input);
  } else if (kind == kPaths.size()) {
    fuzz_candidate(input);
  } else if (kind == kPaths.size() + 1) {
    fuzz_path(input);
  } else if (kind == kPaths.size() + 2) {
    const auto [path, bytes] = fuzz::halves(input);
    (void)layout::check_content(layout::classify(path), bytes, bytes.size());  // either answer
  } else {
    (void)layout::triton_architecture(input);  // either answer: only crashes are looked for
  }
  return 0;
}
