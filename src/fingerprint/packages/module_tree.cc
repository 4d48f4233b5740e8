// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/packages/module_tree.h"

#include <algorithm>
#include <set>
#include <utility>

#include "inductorfs/base/text.h"

namespace inductorfs::fingerprint {
namespace {

/// Far above torch (2476 modules, depth 9): a link that leads back up must not walk forever. The kernel follows 40
/// links in one path, and counts those twice that it has followed before it begins the path anew, because something on
/// this host was renamed meanwhile (fs/namei.c: total_link_count). So more than 20 would end a walk by chance.
constexpr size_t kModuleLimit = 100000;
constexpr int kDepthLimit = 16;
/// Of one directory.
constexpr size_t kNameLimit = 100'000;
constexpr std::string_view kNameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";

struct Listed {
  std::string name;
  bool is_directory = false;
  bool is_file = false;
};

Result<std::vector<Listed>> sorted_listing(const InRoot& root, const std::string& folder) {
  INDUCTORFS_TRY_ASSIGN(const auto entries, root.entries_in(folder, kNameLimit));
  std::vector<Listed> result;
  for (const DirectoryEntry& entry : entries) {
    Listed listed{entry.name, entry.kind == DirectoryEntry::Kind::kDirectory,
                  entry.kind == DirectoryEntry::Kind::kFile};
    if (entry.kind == DirectoryEntry::Kind::kLink) {
      const auto status = root.status(folder + "/" + entry.name);  // a dangling link is neither, and no error
      listed.is_directory = status && S_ISDIR(status->st_mode);
      listed.is_file = status && S_ISREG(status->st_mode);
    }
    result.push_back(std::move(listed));
  }
  return result;
}

/// The first of base + suffix that is a file, in the order of the loaders; empty when there is none.
std::string loaded_file(const InRoot& root, const std::string& base, const ModuleSuffixes& suffixes) {
  for (const std::string& suffix : suffixes.all()) {
    std::string path = base + suffix;
    if (root.is_regular(path)) return path;
  }
  return {};
}

/// The same for a module of the listed folder, without asking the file system: most modules of torch would cost four
/// calls.
std::string listed_file(const std::string& folder, const std::vector<Listed>& listing, const std::string& module,
                        const ModuleSuffixes& suffixes) {
  for (const std::string& suffix : suffixes.all()) {
    const std::string name = module + suffix;
    const auto at =
        std::lower_bound(listing.begin(), listing.end(), name,
                         [](const Listed& entry, const std::string& wanted) { return entry.name < wanted; });
    if (at != listing.end() && at->name == name && at->is_file) return folder + "/" + name;
  }
  return {};
}

Result<void> walk(const InRoot& root, const std::string& folder, const std::string& prefix,
                  const ModuleSuffixes& suffixes, WalkOrder order, int depth, std::vector<Module>& out) {
  if (depth > kDepthLimit || out.size() > kModuleLimit) {
    return fail(ErrorCode::kTooLarge, folder + " is too deep or has too many modules");
  }
  INDUCTORFS_TRY_ASSIGN(auto modules, modules_in(root, folder, suffixes, order));
  for (Module& module : modules) {
    module.name.insert(0, prefix);
    out.push_back(module);
    if (module.folder.empty()) continue;
    INDUCTORFS_TRY(walk(root, module.folder, module.name + ".", suffixes, order, depth + 1, out));
  }
  return {};
}

}  // namespace

ModuleSuffixes::ModuleSuffixes(std::vector<std::string> extensions) : suffixes_(std::move(extensions)) {
  suffixes_.emplace_back(".py");
  suffixes_.emplace_back(".pyc");
}

std::string_view ModuleSuffixes::module_name(std::string_view file_name) const {
  size_t longest = 0;
  for (const std::string& suffix : suffixes_) {
    if (file_name.ends_with(suffix)) longest = std::max(longest, suffix.size());
  }
  if (longest == 0) return {};
  file_name.remove_suffix(longest);
  return file_name;
}

Result<std::vector<Module>> modules_in(const InRoot& root, const std::string& folder, const ModuleSuffixes& suffixes,
                                       WalkOrder order) {
  INDUCTORFS_TRY_ASSIGN(auto listing, sorted_listing(root, folder));
  std::vector<Module> result;
  std::set<std::string, std::less<>> seen;
  for (const Listed& entry : listing) {
    const std::string path = folder + "/" + entry.name;
    Module module;
    module.name = suffixes.module_name(entry.name);
    if (module.name == "__init__" || seen.contains(module.name)) continue;
    if (module.name.empty() && entry.is_directory && entry.name.find('.') == std::string::npos) {
      module.file = loaded_file(root, path + "/__init__", suffixes);
      if (module.file.empty()) continue;
      module.name = entry.name;
      module.folder = path;
    }
    if (module.name.empty() || module.name.find('.') != std::string::npos) continue;
    if (module.file.empty()) module.file = listed_file(folder, listing, module.name, suffixes);
    if (module.file.empty()) return fail(ErrorCode::kNotFound, path + ": Python would find no file for this module");
    seen.insert(module.name);
    result.push_back(std::move(module));
  }
  if (order == WalkOrder::kModuleName) {
    std::sort(result.begin(), result.end(), [](const Module& a, const Module& b) { return a.name < b.name; });
  }
  return result;
}

Result<std::vector<Module>> walk_modules(const InRoot& root, const std::string& folder, const ModuleSuffixes& suffixes,
                                         WalkOrder order) {
  std::vector<Module> result;
  INDUCTORFS_TRY(walk(root, folder, "", suffixes, order, 0, result));
  return result;
}

Result<std::string> assigned_text(std::string_view source, std::string_view name) {
  while (!source.empty()) {
    std::string_view line = take_part(source, '\n');
    if (!line.starts_with(name)) continue;
    line.remove_prefix(name.size());
    if (line.empty() || (line.front() != ' ' && line.front() != ':' && line.front() != '=')) continue;
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    size_t start = line.find_first_not_of(' ', equals + 1);
    if (start == std::string_view::npos) continue;
    // "__version__ = version = '1.0'", as setuptools-scm writes it.
    const size_t next = line.find_first_not_of(kNameCharacters, start);
    const size_t again = next == std::string_view::npos ? next : line.find_first_not_of(' ', next);
    if (next > start && again != std::string_view::npos && line.substr(again).starts_with("= ")) {
      start = std::min(line.find_first_not_of(' ', again + 1), line.size() - 1);
    }
    if (line.substr(start).starts_with("None")) return std::string();
    const char quote = line[start];
    const size_t close = line.find(quote, start + 1);
    if ((quote != '\'' && quote != '"') || close == std::string_view::npos) continue;
    return std::string(line.substr(start + 1, close - start - 1));
  }
  return fail(ErrorCode::kNotFound, "no assignment of " + std::string(name));
}

}  // namespace inductorfs::fingerprint
