// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "fingerprint/facts/facts.h"
#include "fingerprint/packages/package_keys.h"
#include "inductorfs/codec/digest.h"

namespace inductorfs::fingerprint {
namespace {

std::string or_none(const std::string& text) { return text.empty() ? std::string(kNone) : text; }

/// Whether libtorch is built with the string and list classes of C++11, as torch.compiled_with_cxx11_abi() says. No
/// text file of the package says it (TorchConfig.cmake stopped to): the mangled names of its smallest library do.
std::string cxx11_abi(const InRoot& root, const std::string& library) {
  constexpr uint64_t kLibraryLimit = uint64_t{16} << 20;
  const auto bytes = root.read_regular(library, kLibraryLimit);
  if (!bytes) return "unknown";
  return bytes->find("NSt7__cxx1112basic_string") != std::string::npos ? "yes" : "no";
}

std::string torch_details(const InRoot& root, const std::string& torch, KeyMemory& memory) {
  const std::string file = torch + "/version.py";
  const std::string library = torch + "/lib/libc10.so";
  const auto manifest = manifest_of(root, {file, library}, memory);
  const std::string remembered = "torch build " + torch;
  if (manifest) {
    if (auto known = memory.find(remembered, manifest->digest)) return *known;
  }
  Lines lines = {{"cxx11_abi", cxx11_abi(root, library)}};
  for (const char* name : {"cuda", "hip", "git_version", "debug"}) {
    const auto value = assigned_in_file(root, file, name);
    if (value && !value->empty()) lines.emplace_back(name, *value);
  }
  // torch up to 2.7 does not say in version.py that it is built for Intel's GPUs.
  for (const auto& [name, platform] : {std::pair{"libtorch_hip.so", "ROCm"}, std::pair{"libtorch_xpu.so", "XPU"}}) {
    if (root.status(torch + "/lib/" + name)) lines.emplace_back(kBuiltForKey, platform);
  }
  std::string details = canonical(lines);
  if (manifest && !manifest->too_fresh) memory.keep(remembered, manifest->digest, details);
  return details;
}

}  // namespace

Installed torch_in(const std::string& directory) { return {directory, "torch", {"torch"}, "lib/libtorch_cpu.so"}; }

Result<std::string> contents_digest(const InRoot& root, const Installed& package, KeyMemory& memory, bool& by_files) {
  auto record = record_digest(root, package, memory);
  by_files = !record && (record.error().code() == ErrorCode::kNotFound || record.error().code() == ErrorCode::kInvalid);
  if (!by_files) return record;
  auto digest = files_digest(root, package, memory);
  if (digest) return digest;
  return fail(digest.error().code(),
              record.error().what() + ", and it cannot be known by its files: " + digest.error().what());
}

namespace {

Fact read_torch(const InRoot& root, const PythonFacts& python, KeyMemory& memory) {
  const std::string& torch = python.torch;
  const std::string version_file = torch + "/version.py";
  const auto version = assigned_in_file(root, version_file, "__version__");
  if (!version) return unknown_fact(version.error().what(), torch);
  const auto revision = assigned_in_file(root, version_file, "git_version");
  const auto key = torch_key(root, torch, python.extensions, memory);
  if (!key) return unknown_fact("torch_key: " + key.error().what(), torch);
  bool by_files = false;
  const auto contents = contents_digest(root, torch_in(torch), memory, by_files);
  if (!contents) return unknown_fact(contents.error().what(), torch);
  Fact fact = known_fact(
      canonical({{"version", *version}, {"key", *key}, {"git", or_none(revision.value_or(""))}, {"record", *contents}}),
      torch);
  fact.details = torch_details(root, torch, memory);
  if (!keys_thread_count(root, torch)) add_line(fact.details, kThreadCountInKey, "no");
  if (by_files) add_line(fact.details, "known_by", "its files, as there is no RECORD that names them");
  return fact;
}

/// The fact of a package that the interpreter was not found to have.
Fact absent_fact(const PythonFacts& python, const std::string& package, std::string value) {
  if (python.doubt.empty()) return known_fact(std::move(value), python.executable);
  return unknown_fact(python.executable + " has no " + package + " where it looks, and " + python.doubt +
                          "; a mount without --python learns it from the jobs",
                      python.executable);
}

}  // namespace

Fact torch_fact(const InRoot& root, const Result<PythonFacts>& python, KeyMemory& memory) {
  if (!python) return python_fact(python);  // with its reason and remedy
  if (python->torch.empty()) return absent_fact(*python, "torch", std::string(kNone));
  // One look at each file of torch instead of one for each thing that is read of it: each process waits for that.
  std::string name = "torch fact " + python->torch;
  for (const std::string& suffix : python->extensions) name += " " + suffix;
  const auto manifest = package_manifest(root, torch_in(python->torch), memory);
  const auto kept = manifest ? memory.find(name, manifest->digest) : std::nullopt;
  const auto earlier = kept ? Fingerprint::from_json(*kept) : fail(ErrorCode::kNotFound, name);
  if (earlier && earlier->get(Facet::kTorch).known) return earlier->get(Facet::kTorch);
  Fingerprint read;
  read.set(Facet::kTorch, read_torch(root, *python, memory));
  const Fact& fact = read.get(Facet::kTorch);
  if (fact.known && manifest && !manifest->too_fresh) memory.keep(name, manifest->digest, read.to_json());
  return fact;
}

Fact triton_fact(const InRoot& root, const Result<PythonFacts>& python, KeyMemory& memory) {
  if (!python) return python_fact(python);  // with its reason and remedy
  const std::string& triton = python->triton;
  if (triton.empty()) return absent_fact(*python, "triton", std::string(kNone));
  const auto version = assigned_in_file(root, triton + "/__init__.py", "__version__");
  if (!version) return unknown_fact(version.error().what(), triton);
  const auto key = triton_key(root, triton, python->extensions, memory);
  if (!key) return unknown_fact("triton_key: " + key.error().what(), triton);
  Fact fact = known_fact(canonical({{"version", *version}, {"key", codec::digest_of(*key).to_hex()}}), triton);
  fact.details = canonical({{"triton_key", *key}});
  return fact;
}

Fact cuda_of_torch(const Result<PythonFacts>& python) {
  if (!python) return python_fact(python);  // with its reason and remedy
  if (python->torch.empty()) return absent_fact(*python, "torch", canonical({{"torch", or_none("")}}));
  const std::string file = python->torch + "/version.py";
  const InRoot root = InRoot::host();
  const auto cuda = assigned_in_file(root, file, "cuda");
  if (!cuda) return unknown_fact(cuda.error().what(), file);
  Lines lines = {{"torch", or_none(*cuda)}};
  // A ROCm build has cuda None; its HIP version is what tells two such builds apart.
  const auto hip = assigned_in_file(root, file, "hip");
  if (hip && !hip->empty()) lines.emplace_back("hip", *hip);
  return known_fact(canonical(lines), file);
}

Fact cuda_fact(const Fact& of_torch, const GpuAnswer& gpu) {
  if (gpu.state == GpuState::kUnknown && of_torch.known) {
    return unknown_fact("the driver's CUDA version: " + gpu.detail, gpu.source);
  }
  // Sorted, as canonical() has it: hip and torch come after the driver.
  // The major version: drivers of one major version run each other's machine code and have the functions that torch and
  // Triton call (CUDA's minor version compatibility). What else a program asks of its driver it asks at run time
  // (triton/backends/nvidia/driver.c), and nothing of it is in an artefact.
  const std::string driver = gpu.state == GpuState::kPresent ? std::to_string(gpu.driver / 1000) : std::string(kNone);
  if (!of_torch.known) {
    Fact unknown = of_torch;
    // A job with a torch of its own needs no more than the driver (with_job()).
    if (gpu.state != GpuState::kUnknown) unknown.details = canonical({{"driver", driver}});
    return unknown;
  }
  Fact fact = known_fact(canonical({{"driver", driver}}) + "\n" + of_torch.value, of_torch.source);
  if (!gpu.driver_release.empty()) fact.details = canonical({{"driver_release", gpu.driver_release}});
  return fact;
}

}  // namespace inductorfs::fingerprint
