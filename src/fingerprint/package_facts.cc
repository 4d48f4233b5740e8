// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "facts.h"
#include "inductorfs/codec/digest.h"
#include "package_keys.h"

namespace inductorfs::fingerprint {
namespace {

constexpr const char* kNoPython = "the interpreter could not be asked where its packages are";

std::string or_none(const std::string& text) { return text.empty() ? "none" : text; }

/// CUDA's packed version: 13020 is 13.2.
std::string cuda_level(int packed) { return std::to_string(packed / 1000) + "." + std::to_string(packed % 1000 / 10); }

}  // namespace

Fact torch_fact(const Result<PythonFacts>& python, KeyMemory& memory) {
  if (!python) return unknown_fact(kNoPython);
  const std::string& torch = python->torch;
  if (torch.empty()) return known_fact("none", python->executable);
  const std::string version_file = torch + "/version.py";
  const auto version = assigned_in_file(version_file, "__version__");
  if (!version) return unknown_fact(version.error().what(), torch);
  const auto revision = assigned_in_file(version_file, "git_version");
  const auto key = torch_key(torch, python->extensions, memory);
  if (!key) return unknown_fact("torch_key: " + key.error().what(), torch);
  const auto record = record_digest(torch);
  if (!record) return unknown_fact(record.error().what(), torch);
  return known_fact(
      canonical(
          {{"version", *version}, {"key", *key}, {"git", revision ? or_none(*revision) : "none"}, {"record", *record}}),
      torch);
}

Fact triton_fact(const Result<PythonFacts>& python, KeyMemory& memory) {
  if (!python) return unknown_fact(kNoPython);
  const std::string& triton = python->triton;
  if (triton.empty()) return known_fact("none", python->executable);
  const auto version = assigned_in_file(triton + "/__init__.py", "__version__");
  if (!version) return unknown_fact(version.error().what(), triton);
  const auto key = triton_key(triton, python->extensions, memory);
  if (!key) return unknown_fact("triton_key: " + key.error().what(), triton);
  return known_fact(canonical({{"version", *version}, {"key", codec::digest_of(*key).to_hex()}}), triton);
}

Fact cuda_fact(const Result<PythonFacts>& python, const GpuAnswer& gpu) {
  if (!python) return unknown_fact(kNoPython);
  if (gpu.state == GpuState::kUnknown) return unknown_fact("the driver's CUDA level: " + gpu.detail, gpu.source);
  Lines lines = {{"driver", gpu.state == GpuState::kPresent ? cuda_level(gpu.driver) : "none"}};
  if (python->torch.empty()) {
    lines.emplace_back("torch", "none");
    return known_fact(canonical(lines), python->executable);
  }
  const std::string file = python->torch + "/version.py";
  const auto cuda = assigned_in_file(file, "cuda");
  if (!cuda) return unknown_fact(cuda.error().what(), file);
  lines.emplace_back("torch", or_none(*cuda));
  // A ROCm build has cuda None; its HIP version is what tells two such builds apart.
  const auto hip = assigned_in_file(file, "hip");
  if (hip && !hip->empty()) lines.emplace_back("hip", *hip);
  return known_fact(canonical(lines), file);
}

}  // namespace inductorfs::fingerprint
