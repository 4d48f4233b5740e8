// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>
#include <utility>

#include "facts.h"
#include "inductorfs/base/number.h"
#include "inductorfs/codec/digest.h"

namespace inductorfs::fingerprint {
namespace {

using Version = std::pair<int, int>;
/// From here on a host without a device has the version in its hash; before, nothing at all ("{}").
constexpr Version kVersionAlways{2, 15};

/// A string as Python's json.dumps writes it: in ASCII.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

/// The name of the device that torch takes: the first one; empty where torch sees none.
Result<std::string> device_name(const Fingerprint& facts, const std::string& torch_cuda) {
  const Fact& gpu = facts.get(Facet::kGpu);
  if (!gpu.known) return fail(ErrorCode::kUnavailable, "the gpu facet is not known: " + gpu.problem);
  const auto driver = value_of(facts.get(Facet::kCuda).value, "driver");
  if (gpu.is_none() || torch_cuda == kNone || !driver) return std::string();
  // A driver of an older major version: cudaErrorInsufficientDriver, so that torch.cuda answers with a RuntimeError.
  if (version_in(*driver).first < version_in(torch_cuda).first) return std::string();
  const auto devices = values_of(gpu.value, "device");
  if (const auto first = value_of(gpu.details, "gpu0.name")) return *first;
  if (devices.size() != 1) {
    return fail(ErrorCode::kUnavailable, "unequal devices, and the fingerprint does not say which is the first");
  }
  return devices.front().substr(0, devices.front().rfind("; cc="));
}

}  // namespace

Result<std::string> torch_system_hash(const Fingerprint& facts) {
  for (Facet facet : {Facet::kTorch, Facet::kTriton, Facet::kCuda}) {
    const Fact& fact = facts.get(facet);
    if (!fact.known) {
      return fail(ErrorCode::kUnavailable,
                  "the " + std::string(to_string(facet)) + " facet is not known: " + fact.problem);
    }
  }
  const Fact& torch = facts.get(Facet::kTorch);
  const auto version = value_of(torch.value, "version");
  if (!version) return fail(ErrorCode::kUnavailable, "this environment has no torch");
  const std::string& cuda_text = facts.get(Facet::kCuda).value;
  const std::string cuda = value_of(cuda_text, "torch").value_or(std::string(kNone));
  const bool is_rocm = value_of(cuda_text, "hip").has_value();
  INDUCTORFS_TRY_ASSIGN(const auto name, device_name(facts, cuda));
  if (is_rocm && !facts.get(Facet::kGpu).is_none()) {
    return fail(ErrorCode::kUnavailable, "for ROCm the hash has the device's gcnArchName, which no facet has");
  }

  const Fact& triton = facts.get(Facet::kTriton);
  std::string key = "null";
  if (!triton.is_none()) {
    const auto text = value_of(triton.details, "triton_key");
    if (!text) return fail(ErrorCode::kUnavailable, "the fingerprint has no triton_key");
    key = quoted(*text);
  }
  // codecache.py CacheBase.get_system: json.dumps(..., sort_keys=True).
  std::string json = "{}";
  if (!name.empty()) {
    json = R"({"device": {"name": )" + quoted(name) + R"(}, "version": {"cuda": )" + quoted(cuda) + R"(, "triton": )" +
           key + "}}";
  } else if (version_in(*version) >= kVersionAlways) {
    json = R"({"version": {"triton": )" + key + "}}";
  }
  return codec::digest_of(json).to_hex();
}

}  // namespace inductorfs::fingerprint
