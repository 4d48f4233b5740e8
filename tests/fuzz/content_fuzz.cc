// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/layout/layout.h"
#include "inductorfs/layout/scope.h"

/// Contents of every kind that is taken apart: ELF, cubin, PTX, pickle, JSON, group files; and scope texts, which come
/// from other hosts through the cluster. The first byte picks the kind, so that no input is spent on finding a name.
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
  const layout::Place place = layout::classify(path);
  const auto anywhere = layout::check_content(place, bytes, bytes.size());
  const auto here = layout::check_content(place, bytes, bytes.size(), host);
  // A host's limits can only refuse what is sound.
  if (!anywhere) {
    INDUCTORFS_CHECK(!here && here.error().code() == anywhere.error().code());
    INDUCTORFS_CHECK(anywhere.error().code() != ErrorCode::kInvalid);
  } else {
    INDUCTORFS_CHECK(here || here.error().code() == ErrorCode::kNotSupported);
  }
  // What is checked whole is never taken for whole when it is not.
  const auto cut = layout::check_content(place, bytes.substr(0, bytes.size() / 2), bytes.size() + 1);
  INDUCTORFS_CHECK(!cut && cut.error().code() == ErrorCode::kInvalid);
}

/// A candidate's name is taken from its bytes, so that the walk over the pickle is reached.
void fuzz_candidate(std::string_view bytes) {
  const std::string path = "fxgraph/ab/fab" + std::string(49, 'a') + "/" + codec::torch_hash(bytes);
  (void)layout::check_content(layout::classify(path), bytes,
                              bytes.size());  // either answer: only crashes are looked for
}

void fuzz_scopes(std::string_view text) {
  const size_t half = text.find('\0');
  if (half == std::string_view::npos) return;
  const std::string_view ours = text.substr(0, half);
  const std::string_view theirs = text.substr(half + 1);
  INDUCTORFS_CHECK(layout::compare_scopes(ours, ours).empty());
  const auto there = layout::compare_scopes(ours, theirs);
  const auto back = layout::compare_scopes(theirs, ours);
  INDUCTORFS_CHECK(there.size() == back.size());
  for (size_t i = 0; i < there.size(); ++i) INDUCTORFS_CHECK(there[i].ours == back[i].theirs);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data + 1), size - 1);
  const size_t kind = data[0] % (kPaths.size() + 3);
  if (kind < kPaths.size()) {
    fuzz_content(kPaths[kind], input);
  } else if (kind == kPaths.size()) {
    fuzz_candidate(input);
  } else if (kind == kPaths.size() + 1) {
    fuzz_scopes(input);
  } else {
    (void)layout::triton_architecture(input);  // either answer: only crashes are looked for
  }
  return 0;
}
