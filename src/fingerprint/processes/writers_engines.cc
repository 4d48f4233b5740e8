// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "fingerprint/facts/facts.h"
#include "fingerprint/processes/writers_process.h"

namespace inductorfs::fingerprint {
namespace {

/// Each library of an engine shows one folder, or two; this is more than all engines together have.
constexpr size_t kFolderLimit = 16;

bool is_below(const std::string& path, const std::string& folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

}  // namespace

void note_engine_folders(std::string_view library, bool deleted, std::vector<Package>& folders) {
  for (size_t at = library.find('/'); at != std::string_view::npos;) {
    const size_t end = library.find('/', at + 1);
    if (end == std::string_view::npos) return;
    const std::string_view folder = library.substr(0, end);
    const bool is_engine = is_engine_module(library.substr(at + 1, end - at - 1));
    at = end;
    if (!is_engine) continue;
    const auto known = std::ranges::find(folders, folder, &Package::path);
    if (known != folders.end()) known->replaced = known->replaced || deleted;
    if (known == folders.end() && folders.size() < kFolderLimit) folders.push_back({std::string(folder), deleted, {}});
  }
}

void keep_engines_elsewhere(Process& process,
                            const std::function<std::string(const std::string&)>& identity_of_package) {
  std::vector<Package> kept;
  std::vector<std::string> packages;
  // A folder comes before those below it.
  for (Package& engine : process.engines) {
    // vLLM has a DeepGEMM of its own inside, and a virtual environment may be named after its engine.
    const bool is_inside =
        std::ranges::any_of(packages, [&engine](const std::string& package) { return is_below(engine.path, package); });
    engine.identity = is_inside ? std::string() : identity_of_package(engine.path);
    if (engine.identity.empty()) continue;
    packages.push_back(engine.path);
    const std::string site = engine.path.substr(0, engine.path.rfind('/'));
    if (site != process.site.path || engine.replaced) kept.push_back(std::move(engine));
  }
  process.engines = std::move(kept);
}

std::vector<std::string> sites_of(const Process& process) {
  std::vector<std::string> sites;
  const auto add = [&sites](std::string site) {
    if (std::ranges::find(sites, site) == sites.end()) sites.push_back(std::move(site));
  };
  for (const Package& engine : process.engines) add(engine.path.substr(0, engine.path.rfind('/')));
  add(process.site.path);
  return sites;
}

}  // namespace inductorfs::fingerprint
