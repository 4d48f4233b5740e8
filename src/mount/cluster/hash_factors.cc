// SPDX-License-Identifier: Apache-2.0
#include "mount/cluster/hash_factors.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "inductorfs/base/fd.h"
#include "inductorfs/config/json.h"
#include "inductorfs/layout/layout.h"

namespace inductorfs::mount {

using config::Json;

namespace {

/// Entries of all families that are looked through, and other hashes that are compared.
constexpr size_t kMostEntries = 100'000;
constexpr size_t kMostHashes = 32;
constexpr size_t kMostFactors = 4096;
/// What a report shows: differences, and bytes of a value.
constexpr size_t kMostDifferences = 32;
constexpr size_t kShownBytes = 200;

struct Remedy {
  std::string_view name;
  std::string_view text;
};
/// Read in vLLM 0.32: v1/kv_offload/tiering/p2p/manager.py, distributed/ec_transfer/ec_connector/cpu/scheduler,
/// utils/network_utils.py, distributed/kv_transfer/kv_connector/v1/mooncake/rdma_utils.py, config/vllm.py.
constexpr Remedy kRemedies[] = {
    {"VLLM_NIXL_SIDE_CHANNEL_HOST",
     "it is the pod's own address: vLLM 0.32 leaves it out of the hash, so upgrade vLLM"},
    {"VLLM_P2P_SIDE_CHANNEL_HOST",
     "it is the pod's own address: leave it unset, and give the address as \"host\" of the tier p2p in vLLM's "
     "kv-transfer-config, which is in no hash"},
    {"VLLM_EC_SIDE_CHANNEL_HOST",
     "it is the pod's own address: set it where encoder caches are produced only; pods that leave it unset share"},
    {"VLLM_LOOPBACK_IP", "leave it unset: vLLM then takes 127.0.0.1, or ::1, by itself"},
    {"MOONCAKE_REQUESTER_LOCAL_HOSTNAME", "leave it unset: vLLM then takes the pod's own address by itself"},
    {"VLLM_DP_RANK", "each data-parallel rank has a hash of its own: the same rank of another pod shares"},
    {"VLLM_DP_RANK_LOCAL", "each data-parallel rank has a hash of its own: the same rank of another pod shares"},
    {"code_hash", "the text of the model's or vLLM's sources, or the path at which they are installed: run one image"},
    {"compiler_hash", "torch, Triton, CUDA or the GPU's name: only equal ones can share"},
    {"config_hash",
     "vLLM's version, its arguments or the model's path as text: give all pods the same, the model at the same path"},
};

std::string remedy_of(const std::string& name) {
  const auto* const found = std::ranges::find(kRemedies, name, &Remedy::name);
  if (found != std::end(kRemedies)) return std::string(found->text);
  return "set " + name + " to one value in all pods, or leave it unset";
}

using Factors = std::map<std::string, std::string>;

/// Another host chooses this text. The check bounds its size and its depth, which parsing and printing go through.
/// Parsed into sorted objects: an ordered one compares each name with all before it.
std::optional<Factors> factors_in(std::string_view text) {
  layout::Classification factors_file;
  factors_file.family = layout::Family::kVllmFactors;
  if (!layout::check_content(factors_file, text, text.size())) return std::nullopt;
  const auto document = nlohmann::json::parse(text, nullptr, false);
  const auto variables = document.is_object() ? document.find("env") : document.end();
  if (!document.is_object() || variables == document.end() || !variables->is_object()) return std::nullopt;
  Factors factors;
  const auto take = [&](const std::string& name, const nlohmann::json& value) {
    constexpr auto kReplace = nlohmann::json::error_handler_t::replace;
    if (factors.size() < kMostFactors) factors.emplace(name, value.dump(-1, ' ', true, kReplace));
  };
  for (const auto& [name, value] : variables->items()) take(name, value);
  for (const auto& [name, value] : document.items()) {
    if (name != "env") take(name, value);
  }
  return factors;
}

std::string shown(const std::string& value) {
  return value.size() <= kShownBytes ? value : value.substr(0, kShownBytes) + "...";
}

Json differences_of(const Factors& ours, const Factors& theirs) {
  constexpr std::string_view kNone = "not there";
  Factors all = ours;
  all.insert(theirs.begin(), theirs.end());
  Json differences = Json::array();
  for (const auto& [name, either] : all) {
    const auto here = ours.find(name);
    const auto there = theirs.find(name);
    const std::string mine(here == ours.end() ? kNone : std::string_view(here->second));
    const std::string other(there == theirs.end() ? kNone : std::string_view(there->second));
    if (mine == other) continue;
    differences.push_back(
        {{"name", name}, {"ours", shown(mine)}, {"theirs", shown(other)}, {"remedy", remedy_of(name)}});
  }
  return differences;
}

std::optional<std::string> bytes_of(Layers& layers, const codec::Entry& entry, Deadline deadline) {
  if (entry.size > layout::kVllmFactorsLimit) return std::nullopt;
  if (const auto info = layers.store->find(entry.digest); info && info->size == entry.size) {
    const auto blob = layers.store->open_blob(entry.digest);
    auto bytes = blob ? blob->read_all(entry.size) : Result<std::string>(fail(blob.error()));
    if (bytes && codec::digest_of(*bytes) == entry.digest) return *std::move(bytes);
  }
  auto bytes = remote::fetch_bytes(*layers.remote.blobs, entry.digest, layout::kVllmFactorsLimit, deadline);
  return bytes ? std::optional(*std::move(bytes)) : std::nullopt;
}

/// The hash in torch_compile_cache/<hash>/...; empty in another path.
std::string hash_in(std::string_view path) {
  constexpr std::string_view kAbove = "torch_compile_cache/";
  if (!path.starts_with(kAbove)) return {};
  path.remove_prefix(kAbove.size());
  return std::string(path.substr(0, path.find('/')));
}

/// Entries of factors in a scope, newest first.
std::vector<codec::Entry> entries_of(Layers& layers, const std::string& scope) {
  std::vector<codec::Entry> entries;
  for (const catalog::KnownEntry& known : layers.catalog->newest(kMostEntries)) {
    if (layout::classify(known.entry.path).family != layout::Family::kVllmFactors) continue;
    if (known.scope == scope) entries.push_back(known.entry);
  }
  std::ranges::stable_sort(entries, std::greater{}, &codec::Entry::mtime_ns);
  return entries;
}

struct Own {
  std::string hash;
  std::string bytes;
};

/// What lies on this host comes first: it may not be published yet, or never.
std::optional<Own> own_factors(Layers& layers, const std::vector<codec::Entry>& entries, std::string_view place,
                               Deadline deadline) {
  const layout::Name name = layout::name_of(place);
  const std::string asked = hash_in(name.path);
  const std::string above = (name.root.empty() ? "" : name.root + "/") + "torch_compile_cache";
  const auto newest = [&](const std::string& directory, int depth) {
    return layers.file_system->inspection().newest_own(directory, depth, "cache_key_factors.json",
                                                       layout::kVllmFactorsLimit);
  };
  auto local = asked.empty() ? std::nullopt : newest(above + "/" + asked, 2);
  const auto named = std::ranges::find_if(entries, [&](const auto& entry) { return hash_in(entry.path) == asked; });
  if (!local && named == entries.end()) local = newest(above, 3);
  if (local) return Own{hash_in(layout::name_of(local->path).path), std::move(local->bytes)};
  const auto own = named == entries.end() ? std::ranges::find(entries, layers.origin, &codec::Entry::origin) : named;
  auto bytes = own == entries.end() ? std::nullopt : bytes_of(layers, *own, deadline);
  return bytes ? std::optional(Own{hash_in(own->path), *std::move(bytes)}) : std::nullopt;
}

}  // namespace

Json compare_factors(std::string_view ours, std::string_view theirs) {
  const auto here = factors_in(ours);
  const auto there = factors_in(theirs);
  return here && there ? differences_of(*here, *there) : Json();
}

Json other_hash_report(Layers& layers, const std::string& scope, std::string_view place, Deadline deadline) {
  const std::vector<codec::Entry> entries = entries_of(layers, scope);
  const auto own = own_factors(layers, entries, place, deadline);
  if (!own) return {};
  Json report;
  size_t compared = 0;
  for (const codec::Entry& other : entries) {
    if (hash_in(other.path) == own->hash) continue;
    if (compared == kMostHashes || deadline.passed()) break;
    const auto theirs = bytes_of(layers, other, deadline);
    Json differences = theirs ? compare_factors(own->bytes, *theirs) : Json();
    if (!differences.is_array()) continue;
    ++compared;
    if (!report.is_null() && report["differences"].size() <= differences.size()) continue;
    report = {{"ours", own->hash},
              {"theirs", hash_in(other.path)},
              {"origin", other.origin},
              {"differences", std::move(differences)}};
  }
  if (report.is_null()) return report;
  report["others"] = compared;
  Json& differences = report["differences"];
  if (differences.size() > kMostDifferences) {
    report["more"] = differences.size() - kMostDifferences;
    differences.erase(differences.begin() + kMostDifferences, differences.end());
  }
  return report;
}

}  // namespace inductorfs::mount
