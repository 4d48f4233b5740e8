// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/layers.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <utility>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/encoding.h"
#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/own_user.h"
#include "inductorfs/base/regular_file.h"
#include "inductorfs/base/text.h"
#include "inductorfs/base/trusted_file.h"
#include "inductorfs/codec/frame.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/mount/open_files.h"
#include "inductorfs/mount/process.h"
#include "inductorfs/mount/process_views.h"
#include "inductorfs/mount/sharing.h"
#include "inductorfs/mount/worker_user.h"
#include "inductorfs/places/mountpoint.h"
#include "inductorfs/places/place.h"
#include "inductorfs/remote/local_remote.h"
#include "inductorfs/remote/server_examination.h"
#include "inductorfs/takeover/request_slots.h"
#include "inductorfs/trust/signing_key.h"
#include "mount/cluster/orders.h"
#include "mount/cluster/remote_options.h"
#include "mount/cluster/signatures.h"
#include "mount/mounter/mounter.h"
#include "mount/mounter/places_watch.h"
#include "mount/processes/asked_processes.h"
#include "mount/processes/secrets.h"
#include "mount/processes/store_place.h"

namespace inductorfs::mount {
namespace {

constexpr size_t kMountIdBytes = 4;
constexpr size_t kMachineDigits = 16;
constexpr uint64_t kCertificateLimit = 16ULL << 20;
/// What a remote may cost a mount when it does not answer.
constexpr Milliseconds kProbePatience{700};
/// For the earlier mount of a store, which publishes for some seconds after umount(8) has returned.
constexpr Milliseconds kEndPatience{15'000};
/// For its password and certificates, which the mounter reads, while jobs wait: what is late is read again, and
/// used then.
constexpr Milliseconds kSecretPatience{1000};
/// For the key with which it signs, which the mounter reads as well.
constexpr Milliseconds kSignPatience{5000};
/// For a look at the places of the facts that a job's own lookup may wait for.
constexpr Milliseconds kPlacePatience{2000};

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return config::printable(std::string(name.data()));
}

/// Where a store is: a copy is another directory, or on another machine.
std::string machine_of(const std::string& store) {
  struct stat status {};
  (void)::stat(store.c_str(), &status);  // the store's lock is held in it
  const std::string machine = read_file(AT_FDCWD, "/etc/machine-id", 64).value_or("");
  return codec::digest_of(machine + "\n" + std::to_string(status.st_ino)).to_hex().substr(0, kMachineDigits);
}

/// Tells the mounts of one host, and of containers with one host name, apart; as old as the store.
Result<std::string> mount_id(const std::string& store) {
  constexpr size_t kDigits = 2 * kMountIdBytes;
  const std::string path = store + "/mount-id";
  const std::string machine = machine_of(store);
  const std::string known = read_file(AT_FDCWD, path, 64).value_or("");
  if (known.size() > kDigits && from_hex(known.substr(0, kDigits)) && known.substr(kDigits) == " " + machine) {
    return known.substr(0, kDigits);
  }
  std::array<char, kMountIdBytes> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) return fail_errno("getrandom");
  std::string fresh = to_hex(std::string_view(bytes.data(), bytes.size()));
  INDUCTORFS_TRY(write_file_atomically(AT_FDCWD, path, fresh + " " + machine, 0600));
  return fresh;
}

/// A server that is away would hide that these are missing or wrong: they are read when it answers.
Result<void> check_files(const config::Settings& settings, const remote::RemoteOptions& options) {
  for (const auto& [option, file] : {std::pair{"--ca-file", &settings.ca_file},
                                     {"--cert-file", &settings.cert_file},
                                     {"--key-file", &settings.key_file}}) {
    if (file->empty()) continue;
    const auto usable = options.files ? options.files(*file) : read_trusted_file(*file, kCertificateLimit);
    if (usable) continue;
    const std::string why = usable.error().what().empty() ? "it does not exist" : usable.error().what();
    const ErrorCode code = is_passing(usable.error()) ? usable.error().code() : ErrorCode::kInvalid;
    return fail(code, "cannot read the file of " + std::string(option) + ": " + *file + ": " + why);
  }
  Result<void> right = remote::check_server_files(options);
  if (right || settings.remote.empty()) return right;
  return fail(std::move(right).error().with_context("remote " + log::redact_url(settings.remote)));
}

Result<remote::Remote> open_remote(const config::Settings& settings, const std::string& id,
                                   const TakeoverState& takeover, Layers& layers) {
  if (settings.remote.empty()) return remote::make_local_remote();
  if (takeover.safe_mode) return remote::make_absent_remote("safe mode after crashes: the remote is off");
  remote::RemoteOptions options = remote_options(settings, "inductorfs-" + id);
  options.connect_patience = std::max(options.connect_patience, settings.lookup_patience);  // a lookup's, too
  if (layers.secrets) {
    (void)layers.secrets->renew(Deadline::after(takeover.resume ? kSecretPatience : settings.start_timeout / 2));
    options.files = [secrets = layers.secrets](const std::string& file) { return secrets->read(file); };
  }
  if (settings.worker) {
    const auto mounter = std::make_shared<const Mounter>(takeover.mounter, takeover.mounter_stands_still);
    options.socket = [mounter](Deadline deadline, const std::function<bool()>& cancelled) {
      return mounter->connect(deadline, cancelled);
    };
  }
  const std::string shown = log::redact_url(settings.remote);
  Result<remote::Remote> opened = remote::open_redis(options, layers.counters, layers.writes);
  // Jobs use a mount that is resumed: it goes on without the remote.
  if (!opened && takeover.resume) return remote::make_absent_remote(opened.error().what());
  if (!opened) return wrong_option(std::move(opened).error().with_context("remote " + shown));
  if (takeover.resume) return opened;  // the remote watch asks it, while the mount is served
  if (const Result<void> found = check_files(settings, options); !found) {
    return is_passing(found.error()) ? fail(found.error()) : wrong_option(found.error());
  }
  Result<remote::ServerFacts> facts = opened->operators->probe(Deadline::after(kProbePatience));
  if (facts) return opened;
  // A password is changed here and there at two moments, so who refuses may be right later, unlike who is no such
  // server.
  const bool is_lasting = is_wrong_server(facts.error()) && facts.error().code() != ErrorCode::kNotPermitted;
  // A warning of the mount (remote_warning).
  if (!is_lasting && is_wrong_server(facts.error())) layers.remote_refusal = facts.error().what();
  if (!is_lasting && !settings.require_remote) return opened;
  if (!is_wrong_server(facts.error())) return fail(unreached(settings, facts.error()));
  return wrong_option(std::move(facts).error().with_context("remote " + shown));
}

Result<std::unique_ptr<catalog::Catalog>> open_catalog(const config::Settings& settings, bool is_resumed,
                                                       Layers& layers) {
  catalog::CatalogOptions options;
  options.file = settings.store + "/" + config::kCatalogFile;
  const host::ThisHost& host = *layers.host;
  options.scopes = host.state()->scopes.ids();
  options.origin = layers.origin;
  options.is_resumed = is_resumed;
  options.poll_interval = settings.poll_interval;
  options.artefact_limit = settings.artefact_limit;
  options.queue_limit = settings.queue_limit;
  options.keeps_local = config::why_nothing_is_published(settings);
  // Heartbeat; what is never published needs no permission.
  if (layers.signatures) {
    options.sign = [signatures = layers.signatures](const remote::ScopeId& scope, std::span<const codec::Entry> entries,
                                                    Deadline deadline) {
      return signatures->sign(scope, entries, deadline);
    };
  }
  options.awaits_permission = !settings.remote.empty() && options.keeps_local.empty();
  return catalog::Catalog::open(
      options, *layers.remote.blobs, *layers.remote.index, *layers.store,
      [&host](const remote::ScopeId& scope, std::string_view path) { return host.accepts(scope, path); },
      layers.counters);
}

/// Of local files that are kept open: most of what the process may have is left to Redis, SQLite and files on their
/// way.
size_t descriptor_limit() {
  constexpr rlim_t kShare = 4;
  rlimit limit{};
  const size_t usual = vfs::FileSystemOptions{}.descriptor_limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return usual;
  return std::max<size_t>(1, std::min<rlim_t>(usual, limit.rlim_cur / kShare));
}

std::unique_ptr<ledger::Ledger> open_ledger(const config::Settings& settings, Layers& layers) {
  // A graph has some 100 KiB; a model of vLLM has one for each kind of layer. It is in memory for a moment.
  constexpr uint64_t kLargestGraphs = uint64_t{16} << 20;
  ledger::LedgerOptions options;
  options.processes = job_processes_of(layers.examiner);
  options.directory = settings.store + "/" + config::kLedger;
  options.counters = &layers.counters;
  options.variables = [writers = layers.host->writers()](pid_t thread) {
    return writers == nullptr ? std::map<std::string, std::string>{} : writers->job_variables(thread);
  };
  options.runs_torch = [writers = layers.host->writers()](pid_t thread) {
    return writers == nullptr ? std::nullopt : writers->runs_torch(thread);
  };
  options.compile_time = [&store = *layers.store](layout::Family family, const codec::Digest& digest) {
    const auto blob = store.open_blob(digest);
    const auto bytes = blob ? blob->read_all(kLargestGraphs) : Result<std::string>(fail(blob.error()));
    return bytes ? layout::compile_time_of(family, *bytes) : std::nullopt;
  };
  options.start_ended = [&layers](const vfs::JobStart& start) { return layers.file_system->note_start(start); };
  options.environment_text = [&host = *layers.host](const std::string& name) { return host.environment_text(name); };
  return std::make_unique<ledger::Ledger>(std::move(options));
}

Result<std::unique_ptr<vfs::FileSystem>> open_file_system(const config::Settings& settings,
                                                          const config::Ownership& ownership, Layers& layers,
                                                          const TakeoverState& takeover) {
  vfs::FileSystemOptions options;
  if (!fail_point_error("takeover.log")) options.region = takeover.region;
  options.resume = takeover.resume;
  options.directory = settings.store + "/" + config::kLocalFiles;
  options.mountpoint = settings.mountpoint;
  options.origin = layers.origin;
  options.owner_uid = ownership.uid;
  options.owner_gid = ownership.gid;
  options.root_mode = ownership.mode;
  options.chown_to_caller = own_uid() == 0;
  options.quiet_time = settings.quiet_time;
  options.lookup_patience = settings.lookup_patience;
  options.compile_once = settings.compile_once;
  options.cluster_winners = settings.cluster_winners;
  options.prefetch_bytes = settings.prefetch;
  options.artefact_limit = settings.artefact_limit;
  options.user_bytes = settings.user_bytes;
  options.user_files = settings.user_files;
  options.descriptor_limit = descriptor_limit();
  options.who_writes = [asker = std::make_shared<OpenFiles>(layers.examiner)](
                           const std::vector<vfs::OpenQuestion>& questions, const std::stop_token& stop) {
    return asker->who_writes(questions, stop);
  };
  for (const config::Also& also : settings.also) options.further_places.push_back(also.name);
  options.place_removed = [places = layers.places] { places->removed(); };
  options.quiet_is_complete = settings.writers == config::WritersPolicy::kAll;
  options.where_seen = [views = std::make_shared<ProcessViews>(settings.mountpoint, view_sources_of(layers.examiner))](
                           pid_t thread, std::string_view path) { return views->path_for(thread, path); };
  options.used = [&ledger = *layers.ledger](vfs::UseNotice&& notice) { ledger.note(std::move(notice)); };
  return vfs::FileSystem::open(options, *layers.host, *layers.catalog, *layers.store, *layers.remote.blobs,
                               *layers.remote.leases, layers.counters);
}

/// The first facts. A mount whose examiner does not answer goes on without: its host watch asks again.
Result<fingerprint::Fingerprint> first_facts(Layers& layers) {
  const host::AskedExaminer examiner{layers.examiner, fingerprint::ReaderOptions{}.deadline,
                                     host::when_none_answers(layers.examiner)};
  Result<fingerprint::Fingerprint> facts = host::learn_facts(examiner, host::FactsRequest{}.deadline);
  if (facts) return facts;
  const ErrorCode code = facts.error().code();
  if (code != ErrorCode::kTimedOut && code != ErrorCode::kUnavailable) return wrong_option(facts.error());
  log::warning("mount.facts_not_learned", {{"why", facts.error().what()}, {"action", "asked again"}});
  layers.facts_are_missing = true;
  fingerprint::Fingerprint none;
  for (const fingerprint::Facet facet : fingerprint::kAllFacets)
    none.set(facet, {false, {}, {}, facts.error().what(), {}});
  return none;
}

Result<std::unique_ptr<host::ThisHost>> open_host(const config::Settings& settings, const config::Ownership& ownership,
                                                  const TakeoverState& takeover, Layers& layers) {
  Result<fingerprint::Fingerprint> facts = takeover.facts ? *takeover.facts : first_facts(layers);
  if (!facts) return fail(facts.error());
  fingerprint::WritersOptions options;
  options.examiner = layers.examiner;
  options.is_ours = [examiner = layers.examiner](pid_t process) { return is_own(examiner, process); };
  std::unique_ptr<host::LearnedEnvironments> learned;
  if (settings.writers == config::WritersPolicy::kLearned) {
    const std::string directory = settings.store + "/" + config::kEnvironments;
    learned = std::make_unique<host::LearnedEnvironments>(directory);
    options.environments = learned.get();
    options.jobs_file = directory + "/processes";
  }
  std::unique_ptr<fingerprint::Writers> writers;
  if (learned || settings.writers == config::WritersPolicy::kMatching) {
    writers = fingerprint::open_writers(options, layers.counters);
  }
  auto host =
      std::make_unique<host::ThisHost>(std::move(*facts), std::move(writers),
                                       host::PlaceReader(host::AskedExaminer{layers.examiner, kPlacePatience, {}}),
                                       settings.trust.value_or(fingerprint::TrustPolicy::kAll),
                                       vfs::RootAccess{ownership.uid, ownership.gid, ownership.mode},
                                       fingerprint::ask_names_by(layers.examiner), std::move(learned));
  host->while_waiting(takeover::note_progress);
  return host;
}

/// A mount that is resumed goes on: until its key can be read, what it makes waits to be published.
Result<void> open_signatures(const config::Settings& settings, const TakeoverState& takeover, Layers& layers) {
  layers.signatures = std::make_shared<Signatures>(settings, takeover.mounter, takeover.mounter_stands_still,
                                                   *layers.remote.statements, layers.counters);
  Result<void> read = layers.signatures->read_key(Deadline::after(kSignPatience));
  if (read) return {};
  if (!takeover.resume) return is_passing(read.error()) ? read : wrong_option(read.error());
  log::warning("mount.signing_key_not_read", {{"file", settings.signing_key}, {"why", read.error().what()}});
  return {};
}

/// Whoever may write there could lead root's file operations elsewhere. What is below it the worker's user may have.
Result<void> check_store(const std::string& path) {
  struct stat there {};
  const bool is_workers =
      ::lstat(path.c_str(), &there) == 0 && S_ISDIR(there.st_mode) && config::is_worker_user(there.st_uid);
  Result<void> own = places::check_own_place(is_workers ? directory_of(path) : path);
  if (!own) return fail(std::move(own).error().with_context("store"));
  struct stat found {};
  if (::geteuid() != 0 || ::stat(path.c_str(), &found) != 0 || (found.st_mode & (S_IWGRP | S_IWOTH)) == 0) return {};
  return fail(ErrorCode::kNotPermitted, "store: " + path + " may be written to by others: take their right away " +
                                            "(chmod go-w), or name another --store");
}

Result<std::unique_ptr<Layers>> open_in_order(const config::Settings& settings, const config::Ownership& ownership,
                                              const TakeoverState& takeover) {
  auto layers = std::make_unique<Layers>();
  layers->examiner =
      std::make_shared<const fingerprint::ExaminerLink>(takeover.examiner, takeover.examiner_stands_still);
  SteadyTime last = std::chrono::steady_clock::now();
  const auto lap = [&last] {  // milliseconds since it was asked last
    const SteadyTime before = std::exchange(last, std::chrono::steady_clock::now());
    return int64_t{std::chrono::duration_cast<Milliseconds>(last - before).count()};
  };
  Result<void> fit = check_store(settings.store);
  if (fit && !takeover.resume) fit = refuse_without_marks(settings.store);
  if (!fit) return wrong_option(fit.error());
  // The store first: its lock keeps a second daemon from everything else in the directory.
  store::StoreOptions store_options;
  store_options.directory = settings.store;
  store_options.size_limit = settings.store_limit;
  store_options.free_floor = settings.store_floor;
  store_options.lock = takeover.lock;
  store_options.patience = takeover.resume ? Milliseconds(0) : kEndPatience;
  auto store = store::BlobStore::open(store_options, layers->counters);
  if (!store) return takeover.resume ? fail(std::move(store).error()) : wrong_path(store.error());
  layers->store = std::move(*store);
  if (takeover.locked) takeover.locked(layers->store->lock());
  const int64_t store_time = lap();

  if (!takeover.resume) INDUCTORFS_TRY(takeover.open_log ? takeover.open_log() : open_log(settings));
  INDUCTORFS_TRY_ASSIGN(layers->host, open_host(settings, ownership, takeover, *layers));
  const int64_t host_time = lap();

  INDUCTORFS_TRY_ASSIGN(const auto id, mount_id(settings.store));
  layers->origin = (host_name() + "/" + id).substr(0, codec::kOriginLimit);
  if (!takeover.safe_mode && !settings.remote.empty()) {
    layers->secrets = std::make_shared<Secrets>(settings, takeover.mounter, takeover.mounter_stands_still);
  }
  INDUCTORFS_TRY_ASSIGN(layers->remote, open_remote(settings, id, takeover, *layers));
  if (!settings.signing_key.empty() && !takeover.safe_mode)
    INDUCTORFS_TRY(open_signatures(settings, takeover, *layers));
  const int64_t remote_time = lap();

  INDUCTORFS_TRY_ASSIGN(layers->catalog, open_catalog(settings, takeover.resume, *layers));
  const std::string cluster = cluster_id(log::redact_url(settings.remote), settings.prefix);
  if (read_heard(settings.store, cluster).freeze.frozen) layers->catalog->freeze(true);  // before anything is shown
  const int64_t catalog_time = lap();

  layers->ledger = open_ledger(settings, *layers);
  layers->places = std::make_shared<PlacesWatch>(takeover.mounter, takeover.mounter_stands_still);
  INDUCTORFS_TRY_ASSIGN(layers->file_system, open_file_system(settings, ownership, *layers, takeover));
  log::info("mount.opened", {{"store_ms", store_time},
                             {"facts_ms", host_time},
                             {"remote_ms", remote_time},
                             {"catalog_ms", catalog_time},
                             {"files_ms", lap()}});
  return layers;
}

/// SQLite and small files say that a disk is full, not which one; of a quota SQLite says nothing.
Error naming_the_disk(const config::Settings& settings, Error error) {
  std::string what = error.what();
  const bool names_it = what.starts_with("store ") || what.starts_with("remote ");
  if (names_it || (error.code() != ErrorCode::kNoSpace && error.code() != ErrorCode::kInternal)) return error;
  const auto written = try_to_write(settings.store);
  const bool is_full = !written && written.error().code() == ErrorCode::kNoSpace;
  if (error.code() != ErrorCode::kNoSpace && !is_full) return error;
  if (is_full) what += " (" + written.error().what() + ")";
  return {ErrorCode::kNoSpace,
          "the disk of --store is full: " + settings.store + ": " + what + "; free some space or name another --store"};
}

}  // namespace

host::FactsRequest facts_request(const config::Settings& settings) {
  host::FactsRequest request;
  request.file = settings.fingerprint;
  request.python = settings.python;
  request.packages_of_jobs = settings.writers == config::WritersPolicy::kLearned && settings.python.empty();
  request.cache_file = settings.store + "/fingerprint.cache";
  request.environment = settings.environment;
  request.reader.program = host::kThisProgram;
  return request;
}

Result<void> check_place_of_store(const std::string& store) {
  Result<void> fit = places::check_outside_of_mounts("--store", store);
  if (fit) fit = places::check_can_hold_files("--store", store);
  if (fit) fit = check_store(store);
  if (fit) fit = refuse_without_marks(store);
  return fit ? fit : wrong_option(fit.error());
}

namespace {

Result<void> check_python(const std::string& python) {
  struct stat found {};
  if (python.empty()) return {};
  const auto refuse = [&](const std::string& why) {
    return fail(ErrorCode::kInvalid, "--python " + config::printable(python) + ": " + why);
  };
  if (::stat(python.c_str(), &found) != 0) return refuse("does not exist: name the interpreter that jobs run");
  if (S_ISDIR(found.st_mode)) return refuse("is a directory: name the interpreter in it, as bin/python");
  if (::access(python.c_str(), X_OK) != 0) return refuse("cannot be run: name the interpreter that jobs run");
  return {};
}

}  // namespace

Result<void> check_named(const config::Settings& settings) {
  INDUCTORFS_TRY(check_place_of_store(settings.store));
  const remote::RemoteOptions options = remote_options(settings, "inductorfs");
  if (!settings.remote.empty()) {
    Counters counters;
    auto opened = remote::open_redis(options, counters);
    if (!opened) {
      return wrong_option(std::move(opened).error().with_context("remote " + log::redact_url(settings.remote)));
    }
  }
  if (const Result<void> found = check_files(settings, options); !found) return wrong_option(found.error());
  if (!settings.signing_key.empty()) {
    const auto key = trust::SigningKey::load(settings.signing_key);
    if (!key) return wrong_option(Error(key.error()).with_context("--signing-key"));
  }
  if (const Result<void> runs = check_python(settings.python); !runs) return wrong_option(runs.error());
  if (settings.fingerprint.empty()) return {};
  host::FactsRequest request = facts_request(settings);
  request.cache_file.clear();
  const auto facts = host::learn_facts(request);
  return facts ? Result<void>() : wrong_option(facts.error());
}

bool is_wrong_server(const Error& error) {
  const ErrorCode code = error.code();
  return code == ErrorCode::kInvalid || code == ErrorCode::kNotSupported || code == ErrorCode::kNotPermitted ||
         code == ErrorCode::kCorrupt;
}

Result<std::unique_ptr<Layers>> open_layers(const config::Settings& settings, const config::Ownership& ownership,
                                            const TakeoverState& takeover) {
  Result<std::unique_ptr<Layers>> opened = open_in_order(settings, ownership, takeover);
  if (!opened) return fail(naming_the_disk(settings, std::move(opened).error()));
  return opened;
}

}  // namespace inductorfs::mount
