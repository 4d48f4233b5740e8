// SPDX-License-Identifier: Apache-2.0
#include "layers.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>

#include "inductorfs/base/encoding.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/log.h"
#include "local_remote.h"

namespace inductorfs::daemon {
namespace {

constexpr uint64_t kFactsLimit = 4ULL << 20;
constexpr size_t kMountIdBytes = 4;
/// What a remote may cost a mount when it does not answer.
constexpr Milliseconds kProbePatience{700};

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return printable(std::string(name.data()));
}

/// Tells the mounts of one host, and of containers with one host name, apart; as old as the store.
Result<std::string> mount_id(const std::string& store) {
  const std::string path = store + "/mount-id";
  const Result<std::string> known = read_file(AT_FDCWD, path, 64);
  if (known && known->size() == 2 * kMountIdBytes && from_hex(*known)) return *known;
  std::array<char, kMountIdBytes> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) return fail_errno("getrandom");
  std::string fresh = to_hex(std::string_view(bytes.data(), bytes.size()));
  INDUCTORFS_TRY(write_file_atomically(AT_FDCWD, path, fresh, 0600));
  return fresh;
}

Result<std::unique_ptr<remote::Remote>> open_remote(const Settings& settings, const std::string& id,
                                                    Counters& counters) {
  if (settings.remote.empty()) return make_local_remote();
  remote::RemoteOptions options;
  options.url = settings.remote;
  options.password_file = settings.password_file;
  options.ca_file = settings.ca_file;
  options.certificate_file = settings.cert_file;
  options.key_file = settings.key_file;
  options.prefix = settings.prefix;
  options.client_name = "inductorfs-" + id;
  const std::string shown = log::redact_url(settings.remote);
  Result<std::unique_ptr<remote::Remote>> opened = remote::open_redis(options, counters);
  if (!opened) return fail(std::move(opened).error().with_context("remote " + shown));
  Result<remote::ServerFacts> facts = (*opened)->probe(Deadline::after(kProbePatience));
  if (!facts && facts.error().code() == ErrorCode::kNotPermitted && settings.password_file.empty()) {
    return fail(ErrorCode::kNotPermitted, "remote " + shown + ": " + facts.error().what() +
                                              ": name the file of its password with --password-file");
  }
  if (!facts && is_wrong_server(facts.error())) return fail(std::move(facts).error().with_context("remote " + shown));
  if (!facts) log::warning("remote_absent", {{"remote", shown}, {"why", facts.error().what()}});
  return opened;
}

Result<std::unique_ptr<catalog::Catalog>> open_catalog(const Settings& settings, const std::string& origin,
                                                       Layers& layers) {
  catalog::CatalogOptions options;
  options.file = settings.store + "/catalog.sqlite";
  options.scopes = layers.scopes->ids();
  options.origin = origin;
  options.poll_interval = settings.poll_interval;
  options.artefact_limit = settings.artefact_limit;
  const Scopes& scopes = *layers.scopes;
  return catalog::Catalog::open(
      options, *layers.remote, *layers.store,
      [&scopes](const remote::ScopeId& scope, std::string_view path) { return scopes.accepts(scope, path); },
      layers.counters);
}

Result<std::unique_ptr<vfs::FileSystem>> open_file_system(const Settings& settings, const std::string& origin,
                                                          const Ownership& ownership, Layers& layers) {
  vfs::FileSystemOptions options;
  options.directory = settings.store + "/files";
  options.mountpoint = settings.mountpoint;
  options.origin = origin;
  options.owner_uid = ownership.uid;
  options.owner_gid = ownership.gid;
  options.root_mode = ownership.mode;
  options.chown_to_caller = ::geteuid() == 0;
  options.quiet_time = settings.quiet_time;
  options.prefetch_bytes = settings.prefetch;
  options.artefact_limit = settings.artefact_limit;
  const Scopes& scopes = *layers.scopes;
  return vfs::FileSystem::open(
      options, [&scopes](layout::Family family) { return scopes.of(family); }, *layers.catalog, *layers.store,
      *layers.remote, layers.counters);
}

}  // namespace

Scopes::Scopes(const fingerprint::Fingerprint& facts) {
  for (const layout::Rule& rule : layout::all_rules()) {
    scopes_.emplace(rule.family, layout::scope_of(rule.family, facts));
  }
}

const layout::Scope& Scopes::of(layout::Family family) const {
  const auto at = scopes_.find(family);
  INDUCTORFS_CHECK(at != scopes_.end());  // all_rules() has every family
  return at->second;
}

std::vector<remote::ScopeId> Scopes::ids() const {
  std::set<remote::ScopeId> ids;
  for (const auto& [family, scope] : scopes_) {
    if (layout::rule_of(family).shared && !scope.id.empty()) ids.insert(scope.id);
  }
  return {ids.begin(), ids.end()};
}

bool Scopes::accepts(const remote::ScopeId& scope, std::string_view path) const {
  const layout::Family family = layout::classify(path).family;
  return layout::rule_of(family).shared && !scope.empty() && of(family).id == scope;
}

std::vector<PrivateFamily> private_families(const Scopes& scopes) {
  std::vector<PrivateFamily> found;
  for (const layout::Rule& rule : layout::all_rules()) {
    const layout::Scope& scope = scopes.of(rule.family);
    if (rule.shared && scope.id.empty()) found.push_back({std::string(rule.name), scope.why_private});
  }
  return found;
}

Result<fingerprint::Fingerprint> learn_facts(const std::string& file, const std::string& python,
                                             const std::string& cache_file) {
  if (file.empty()) {
    fingerprint::ProbeOptions options;
    options.python = python;
    options.cache_file = cache_file;
    return fingerprint::probe(options);
  }
  const Result<std::string> text = read_file(AT_FDCWD, file, kFactsLimit);
  if (!text) {
    const std::string why = text.error().what().empty() ? "it does not exist" : text.error().what();
    return fail(text.error().code(), "the fingerprint cannot be read: " + file + ": " + why);
  }
  Result<fingerprint::Fingerprint> facts = fingerprint::Fingerprint::from_json(*text);
  if (!facts) {
    return fail(ErrorCode::kInvalid, "no fingerprint: " + file + ": " + facts.error().what() +
                                         ": make one with inductorfs fingerprint --json");
  }
  return facts;
}

std::string log_path(const Settings& settings) {
  if (!settings.log.empty()) return settings.log;
  return settings.foreground ? std::string() : settings.store + "/log";
}

Result<void> open_log(const Settings& settings) {
  const std::string path = log_path(settings);
  INDUCTORFS_TRY(log::open(path, settings.log_level));
  // The daemon's umask is 0 for the sake of artefacts' modes; the log names paths of every user of the mount.
  if (!path.empty() && ::chmod(path.c_str(), 0640) != 0 && errno != EPERM) return fail_errno("chmod", path);
  return {};
}

std::string fingerprint_cache(const Settings& settings) { return settings.store + "/fingerprint.cache"; }

bool is_wrong_server(const Error& error) {
  const ErrorCode code = error.code();
  return code == ErrorCode::kInvalid || code == ErrorCode::kNotSupported || code == ErrorCode::kNotPermitted ||
         code == ErrorCode::kCorrupt;
}

Result<std::unique_ptr<Layers>> open_layers(const Settings& settings, const Ownership& ownership) {
  auto layers = std::make_unique<Layers>();
  // The store first: its lock keeps a second daemon from everything else in the directory.
  store::StoreOptions store_options;
  store_options.directory = settings.store;
  store_options.size_limit = settings.store_limit;
  Result<std::unique_ptr<store::BlobStore>> store = store::BlobStore::open(store_options, layers->counters);
  if (!store) return fail(store.error());
  layers->store = std::move(*store);

  INDUCTORFS_TRY(open_log(settings));
  const Result<fingerprint::Fingerprint> facts =
      learn_facts(settings.fingerprint, settings.python, fingerprint_cache(settings));
  if (!facts) return fail(facts.error());
  layers->scopes = std::make_unique<Scopes>(*facts);

  const Result<std::string> id = mount_id(settings.store);
  if (!id) return fail(id.error());
  const std::string origin = (host_name() + "/" + *id).substr(0, codec::kOriginLimit);

  Result<std::unique_ptr<remote::Remote>> remote = open_remote(settings, *id, layers->counters);
  if (!remote) return fail(remote.error());
  layers->remote = std::move(*remote);

  Result<std::unique_ptr<catalog::Catalog>> catalog = open_catalog(settings, origin, *layers);
  if (!catalog) return fail(catalog.error());
  layers->catalog = std::move(*catalog);

  Result<std::unique_ptr<vfs::FileSystem>> files = open_file_system(settings, origin, ownership, *layers);
  if (!files) return fail(files.error());
  layers->file_system = std::move(*files);
  return layers;
}

}  // namespace inductorfs::daemon
