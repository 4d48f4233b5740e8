// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/config/frozen.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <exception>

#include "inductorfs/config/also_json.h"

namespace inductorfs::config {
namespace {

/// Grows when an older worker could not read what a newer `mount` writes.
constexpr int kForm = 1;
constexpr uint64_t kMemoryLimit = 16ULL << 20;

Json change_to_json(const layout::RuleChange& change) {
  Json json = {{"family", change.family}, {"pattern", change.pattern}};
  if (change.shared) json["shared"] = *change.shared;
  if (!change.facets) return json;
  Json facets = Json::array();
  for (const fingerprint::Facet facet : *change.facets) facets.push_back(std::string(fingerprint::to_string(facet)));
  json["facets"] = std::move(facets);
  return json;
}

Result<layout::RuleChange> change_from_json(const Json& json) {
  layout::RuleChange change;
  change.family = json.at("family").get<std::string>();
  change.pattern = json.at("pattern").get<std::string>();
  if (json.contains("shared")) change.shared = json.at("shared").get<bool>();
  if (!json.contains("facets")) return change;
  change.facets.emplace();
  for (const Json& name : json.at("facets")) {
    INDUCTORFS_TRY_ASSIGN(const auto facet, fingerprint::facet_from_string(name.get<std::string>()));
    change.facets->push_back(facet);
  }
  return change;
}

Result<Frozen> from_json(const Json& json) {
  Frozen frozen;
  Settings& settings = frozen.settings;
  if (json.at("form").get<int>() != kForm) return fail(ErrorCode::kNotSupported, "settings of another version");
  for (const Json& one : json.at("given")) {
    GivenValues given{one.at("values").get<RawValues>(), one.at("where").get<std::string>(),
                      one.at("base").get<std::string>()};
    INDUCTORFS_TRY(apply(given.values, given.where, given.base, settings));
    settings.given.push_back(std::move(given));
  }
  for (const Json& one : json.at("families")) {
    INDUCTORFS_TRY_ASSIGN(auto change, change_from_json(one));
    settings.families.push_back(std::move(change));
  }
  settings.mountpoint = json.at("mountpoint").get<std::string>();
  settings.alias = json.at("alias").get<std::string>();
  settings.store = json.at("store").get<std::string>();
  settings.no_worker_user = json.value("no_worker_user", "");  // of a mount from before there was one
  settings.no_worker_tree = json.value("no_worker_tree", "");
  settings.store_root = json.value("store_root", "");
  if (const auto worker = json.find("worker"); worker != json.end() && !worker->is_null()) {
    settings.worker = WorkerUser{worker->at("uid").get<uid_t>(), worker->at("gid").get<gid_t>(),
                                 worker->at("groups").get<std::vector<gid_t>>()};
  }
  settings.allow_other = json.at("allow_other").get<bool>();
  INDUCTORFS_TRY_ASSIGN(settings.trust, fingerprint::trust_from_string(json.at("trust").get<std::string>()));
  INDUCTORFS_TRY(apply({{"writers", {json.at("writers").get<std::string>()}}}, "settings", "/", settings));
  settings.also.clear();
  for (const Json& one : json.at("also")) {
    auto also = also_from_json(one);
    if (!also) return fail(ErrorCode::kInvalid, "settings of another version: a further place");
    settings.also.push_back(std::move(*also));
  }
  frozen.ownership.uid = json.at("uid").get<uid_t>();
  frozen.ownership.gid = json.at("gid").get<gid_t>();
  frozen.ownership.mode = json.at("mode").get<mode_t>();
  frozen.ownership.uncovered = json.value("uncovered", false);
  return frozen;
}

}  // namespace

std::string freeze(const Settings& settings, const Ownership& ownership) {
  Json given = Json::array();
  for (const GivenValues& one : settings.given) {
    given.push_back({{"values", one.values}, {"where", one.where}, {"base", one.base}});
  }
  Json families = Json::array();
  for (const layout::RuleChange& change : settings.families) families.push_back(change_to_json(change));
  Json also = Json::array();
  for (const Also& place : settings.also) also.push_back(also_to_json(place));
  Json worker;
  if (settings.worker) {
    worker = {{"uid", settings.worker->uid}, {"gid", settings.worker->gid}, {"groups", settings.worker->groups}};
  }
  const Json json = {{"form", kForm},
                     {"given", std::move(given)},
                     {"families", std::move(families)},
                     {"mountpoint", settings.mountpoint},
                     {"alias", settings.alias},
                     {"store", settings.store},
                     {"worker", std::move(worker)},
                     {"no_worker_user", settings.no_worker_user},
                     {"no_worker_tree", settings.no_worker_tree},
                     {"store_root", settings.store_root},
                     {"allow_other", settings.allow_other.value_or(false)},
                     {"trust", to_string(settings.trust.value_or(fingerprint::TrustPolicy::kAll))},
                     {"writers", to_string(settings.writers.value_or(WritersPolicy::kMatching))},
                     {"also", std::move(also)},
                     {"uid", ownership.uid},
                     {"gid", ownership.gid},
                     {"mode", ownership.mode},
                     {"uncovered", ownership.uncovered}};
  // Not as text: a path may have any byte.
  const std::vector<uint8_t> bytes = Json::to_cbor(json);
  return {bytes.begin(), bytes.end()};
}

Result<Frozen> thaw(std::string_view bytes) {
  try {
    return from_json(Json::from_cbor(bytes));
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
