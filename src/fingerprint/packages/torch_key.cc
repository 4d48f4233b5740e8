// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "fingerprint/packages/module_tree.h"
#include "fingerprint/packages/package_keys.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/fingerprint/fingerprint.h"

namespace inductorfs::fingerprint {
namespace {

/// Modules are source files and small extension stubs; torch's largest has 3 MB.
constexpr uint64_t kModuleFileLimit = uint64_t{16} << 20;
/// What 2.14 and 2.15 hash after the modules, for a tree whose codecache.py does not say.
constexpr const char* kExtraFiles[] = {"codegen/aoti_runtime/interface.cpp", "codegen/aoti_runtime/streams.h",
                                       "script.ld"};

/// The list differs between 2.6, 2.7, 2.8 and 2.14 (codecache.py, torch_key: `extra_files = (...)`), so it is read from
/// that very file: a development build between two versions has the list of its own code.
std::vector<std::string> extra_files(const InRoot& root, const std::string& inductor) {
  std::vector<std::string> result;
  const auto source = root.read_regular(inductor + "/codecache.py", kModuleFileLimit);
  const size_t start = source ? source->find("extra_files = (") : std::string::npos;
  if (start == std::string::npos) return {std::begin(kExtraFiles), std::end(kExtraFiles)};
  const size_t end = source->find(")\n", start);
  size_t at = source->find('"', start);
  while (at < end && end != std::string::npos) {
    const size_t close = source->find('"', at + 1);
    if (close == std::string::npos) break;
    result.push_back(source->substr(at + 1, close - at - 1));
    at = source->find('"', close + 1);
  }
  return result;
}

Result<void> hash_file(codec::Hasher& hasher, const InRoot& root, const std::string& path) {
  INDUCTORFS_TRY_ASSIGN(const auto bytes, root.read_regular(path, kModuleFileLimit));
  hasher.update(bytes);
  return {};
}

}  // namespace

Result<std::string> assigned_in_file(const InRoot& root, const std::string& file, std::string_view name) {
  const auto source = root.read_regular(file, kModuleFileLimit);
  if (!source && source.error().code() != ErrorCode::kNotFound) return fail(source.error());
  if (!source) return fail(ErrorCode::kNotFound, file + " cannot be read");
  auto text = assigned_text(*source, name);
  if (!text) return fail(std::move(text).error().with_context(file));
  return text;
}

Result<std::string> torch_key(const InRoot& root, const std::string& torch_directory,
                              const std::vector<std::string>& suffixes, KeyMemory& memory) {
  const std::string version_file = torch_directory + "/version.py";
  INDUCTORFS_TRY_ASSIGN(const auto version, assigned_in_file(root, version_file, "__version__"));
  INDUCTORFS_TRY_ASSIGN(const auto modules,
                        walk_modules(root, torch_directory, ModuleSuffixes(suffixes), WalkOrder::kModuleName));

  std::vector<std::string> files = {version_file};
  for (const Module& module : modules) files.push_back(module.file);
  std::vector<std::string> extras;
  const std::string inductor = torch_directory + "/_inductor";
  for (const std::string& extra : extra_files(root, inductor)) {
    std::string path = inductor;
    path.append("/").append(extra);
    if (root.status(path)) extras.push_back(std::move(path));
  }
  files.insert(files.end(), extras.begin(), extras.end());
  INDUCTORFS_TRY_ASSIGN(const auto manifest, manifest_of(root, files, memory));
  const std::string name = "torch_key " + torch_directory;
  if (auto known = memory.find(name, manifest.digest)) return *known;

  codec::Hasher hasher;
  hasher.update(version);
  for (const Module& module : modules) {
    hasher.update(module.name);
    INDUCTORFS_TRY(hash_file(hasher, root, module.file));
  }
  for (const std::string& extra : extras) INDUCTORFS_TRY(hash_file(hasher, root, extra));
  std::string key = hasher.finish().to_hex();
  if (!manifest.too_fresh) memory.keep(name, manifest.digest, key);
  return key;
}

}  // namespace inductorfs::fingerprint
