// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/config/frozen.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <exception>

#include "inductorfs/config/settings_json.h"

namespace inductorfs::config {
namespace {

using Cbor = nlohmann::json;

/// Grows when an older worker could not read what a newer `mount` writes.
constexpr int kForm = 2;
constexpr uint64_t kMemoryLimit = 16ULL << 20;

Cbor change_to_json(const layout::RuleChange& change) {
  Cbor json = {{"family", change.family}, {"pattern", change.pattern}};
  if (change.shared) json["shared"] = *change.shared;
  if (!change.facets) return json;
  Cbor facets = Cbor::array();
  for (const fingerprint::Facet facet : *change.facets) facets.push_back(std::string(fingerprint::to_string(facet)));
  json["facets"] = std::move(facets);
  return json;
}

Result<layout::RuleChange> change_from_json(const Cbor& json) {
  layout::RuleChange change;
  change.family = json.at("family").get<std::string>();
  change.pattern = json.at("pattern").get<std::string>();
  if (json.contains("shared")) change.shared = json.at("shared").get<bool>();
  if (!json.contains("facets")) return change;
  change.facets.emplace();
  for (const Cbor& name : json.at("facets")) {
    INDUCTORFS_TRY_ASSIGN(const auto facet, fingerprint::facet_from_string(name.get<std::string>()));
    change.facets->push_back(facet);
  }
  return change;
}

Result<Frozen> from_json(const Cbor& json) {
  Frozen frozen;
  Settings& settings = frozen.settings;
  if (json.at("form").get<int>() != kForm) return fail(ErrorCode::kNotSupported, "settings of another version");
  auto given = json.at("given").get<std::vector<GivenValues>>();
  for (const GivenValues& one : given) INDUCTORFS_TRY(apply(one.values, one.where, one.base, settings));
  settings.given = std::move(given);
  for (const Cbor& one : json.at("families")) {
    INDUCTORFS_TRY_ASSIGN(auto change, change_from_json(one));
    settings.families.push_back(std::move(change));
  }
  json.at("mountpoint").get_to(settings.mountpoint);
  json.at("alias").get_to(settings.alias);
  json.at("store").get_to(settings.store);
  json.at("no_worker_user").get_to(settings.no_worker_user);
  json.at("no_worker_tree").get_to(settings.no_worker_tree);
  json.at("store_root").get_to(settings.store_root);
  if (const Cbor& worker = json.at("worker"); !worker.is_null()) settings.worker = worker.get<WorkerUser>();
  settings.allow_other = json.at("allow_other").get<bool>();
  INDUCTORFS_TRY_ASSIGN(settings.trust, fingerprint::trust_from_string(json.at("trust").get<std::string>()));
  INDUCTORFS_TRY(apply({{"writers", {json.at("writers").get<std::string>()}}}, "settings", "/", settings));
  json.at("also").get_to(settings.also);
  json.at("ownership").get_to(frozen.ownership);
  return frozen;
}

}  // namespace

std::string freeze(const Settings& settings, const Ownership& ownership) {
  Cbor families = Cbor::array();
  for (const layout::RuleChange& change : settings.families) families.push_back(change_to_json(change));
  const Cbor json = {{"form", kForm},
                     {"given", settings.given},
                     {"families", std::move(families)},
                     {"mountpoint", settings.mountpoint},
                     {"alias", settings.alias},
                     {"store", settings.store},
                     {"worker", settings.worker ? Cbor(*settings.worker) : Cbor()},
                     {"no_worker_user", settings.no_worker_user},
                     {"no_worker_tree", settings.no_worker_tree},
                     {"store_root", settings.store_root},
                     {"allow_other", settings.allow_other.value_or(false)},
                     {"trust", to_string(settings.trust.value_or(fingerprint::TrustPolicy::kAll))},
                     {"writers", to_string(settings.writers.value_or(WritersPolicy::kMatching))},
                     {"also", settings.also},
                     {"ownership", ownership}};
  // Not as text: a path may have any byte.
  const std::vector<uint8_t> bytes = Cbor::to_cbor(json);
  return {bytes.begin(), bytes.end()};
}

Result<Frozen> thaw(std::string_view bytes) {
  try {
    return from_json(Cbor::from_cbor(bytes));
  } catch (const std::exception& problem) {
    return fail(ErrorCode::kInvalid, std::string("settings of another version: ") + problem.what());
  }
}

Result<Fd> to_memory(const char* name, std::string_view bytes) {
  Fd memory(::memfd_create(name, MFD_CLOEXEC));
  if (!memory) return fail_errno("memfd_create");
  INDUCTORFS_TRY(pwrite_full(memory.get(), bytes, 0));
  return memory;
}

Result<Fd> to_sealed_memory(const char* name, std::string_view bytes) {
  Fd memory(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) return fail_errno("memfd_create");
  INDUCTORFS_TRY(pwrite_full(memory.get(), bytes, 0));
  constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  if (::fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0) return fail_errno("seal", "memory of the mount");
  return memory;
}

Result<std::string> from_memory(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return fail_errno("stat", "memory of the mount");
  const auto size = static_cast<uint64_t>(status.st_size);
  if (size > kMemoryLimit) return fail(ErrorCode::kTooLarge, "memory of the mount");
  std::string bytes(static_cast<size_t>(size), '\0');
  INDUCTORFS_TRY_ASSIGN(const auto got, pread_full(fd, bytes.data(), bytes.size(), 0));
  bytes.resize(got);
  return bytes;
}

}  // namespace inductorfs::config
