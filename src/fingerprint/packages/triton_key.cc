// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "fingerprint/packages/module_tree.h"
#include "fingerprint/packages/package_keys.h"
#include "inductorfs/base/number.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/fingerprint/fingerprint.h"

namespace inductorfs::fingerprint {
namespace {

constexpr uint64_t kSourceLimit = uint64_t{16} << 20;

using Version = std::pair<int, int>;     // major, minor
constexpr Version kKeyInCache{3, 5};     // triton_key moved from compiler/compiler.py to runtime/cache.py
constexpr Version kWholeLanguage{3, 2};  // triton/language walked with its packages, before only its top level

/// The file that defines triton_key; it is the first one hashed. Its text decides, since a build between two versions
/// carries the number of either; the version decides where the text does not say.
std::string defining_file(const InRoot& root, const std::string& triton, const Version& version) {
  const std::string candidates[] = {triton + "/runtime/cache.py", triton + "/compiler/compiler.py"};
  for (const std::string& candidate : candidates) {
    const auto source = root.read_regular(candidate, kSourceLimit);
    if (source && source->find("def triton_key(") != std::string::npos) return candidate;
  }
  return version >= kKeyInCache ? candidates[0] : candidates[1];
}

Result<void> append(std::vector<std::string>& files, Result<std::vector<Module>> modules) {
  if (!modules) return fail(std::move(modules).error());
  for (Module& module : *modules) files.push_back(std::move(module.file));
  return {};
}

/// All files of the key, in the order of triton_key().
Result<std::vector<std::string>> keyed_files(const InRoot& root, const std::string& triton,
                                             const ModuleSuffixes& suffixes, const Version& version) {
  std::vector<std::string> files = {defining_file(root, triton, version)};
  INDUCTORFS_TRY(append(files, walk_modules(root, triton + "/compiler", suffixes, WalkOrder::kFileName)));
  INDUCTORFS_TRY(append(files, walk_modules(root, triton + "/backends", suffixes, WalkOrder::kFileName)));
  files.push_back(triton + "/_C/libtriton.so");
  const std::string language = triton + "/language";
  INDUCTORFS_TRY(append(files, version >= kWholeLanguage ? walk_modules(root, language, suffixes, WalkOrder::kFileName)
                                                         : modules_in(root, language, suffixes, WalkOrder::kFileName)));
  return files;
}

}  // namespace

Result<std::string> triton_key(const InRoot& root, const std::string& triton_directory,
                               const std::vector<std::string>& suffixes, KeyMemory& memory) {
  const std::string version_file = triton_directory + "/__init__.py";
  INDUCTORFS_TRY_ASSIGN(const auto version, assigned_in_file(root, version_file, "__version__"));
  INDUCTORFS_TRY_ASSIGN(const auto files,
                        keyed_files(root, triton_directory, ModuleSuffixes(suffixes), version_in(version)));
  std::vector<std::string> watched = files;
  watched.push_back(version_file);
  INDUCTORFS_TRY_ASSIGN(const auto manifest, manifest_of(root, watched, memory));
  const std::string name = "triton_key " + triton_directory;
  if (auto known = memory.find(name, manifest.digest)) return *known;

  std::string key = version;
  for (size_t i = 0; i < files.size(); ++i) {
    INDUCTORFS_TRY_ASSIGN(const auto digest, remembered_digest(root, files[i], memory));
    if (i > 0) key += '-';
    key += digest.to_hex();
  }
  if (!manifest.too_fresh) memory.keep(name, manifest.digest, key);
  return key;
}

}  // namespace inductorfs::fingerprint
