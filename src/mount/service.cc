// SPDX-License-Identifier: Apache-2.0
#include "mount/service.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/log_lines.h"
#include "inductorfs/base/own_user.h"
#include "inductorfs/mount/sharing.h"
#include "inductorfs/mount/worker_tree.h"
#include "inductorfs/mount/worker_user.h"
#include "inductorfs/places/own_mounts.h"
#include "inductorfs/supervisor/protocol.h"
#include "mount/mounter/places_watch.h"
#include "mount/processes/asked_processes.h"
#include "mount/processes/secrets.h"
#include "mount/processes/store_place.h"
#include "mount/processes/worker_filter.h"

namespace inductorfs::mount {

namespace {

/// What a mount waits for the cluster's index, so that a first job finds what is there.
constexpr Milliseconds kSyncPatience{2000};
/// For each outside command when the facts are learned again: an unmount may have to wait for it.
constexpr Milliseconds kProbePatience{10000};
/// For reading an environment when the facts are learned again: a slow file system has more time than at the mount.
constexpr Milliseconds kReaderPatience{120'000};
constexpr Milliseconds kAnnouncePatience{1000};
/// For the password and certificates of the remote, which may lie on a disk that does not answer.
constexpr Milliseconds kSecretPatience{5000};
/// For places of users' file systems, which the start does not wait for longer.
constexpr Milliseconds kPlacesPatience{20'000};
/// How often it is asked, while the last groups are published, whether to hurry.
constexpr Milliseconds kDrainSlice{100};
/// From one worker's start until it ends for a damaged catalog.
constexpr Milliseconds kRenewRest{60'000};

host::HostWatchOptions watch_options(const config::Settings& settings, const std::optional<Note>& noted,
                                     const Layers& layers, host::AskedExaminer examiner) {
  host::HostWatchOptions options;
  options.reader = host::PlaceReader(std::move(examiner));
  options.interval = settings.probe_interval;
  options.from_file = !settings.fingerprint.empty();
  options.ask_at_once = layers.facts_are_missing;
  if (noted) {
    options.known_traces = noted->traces;
    options.learned = noted->learned;
  }
  return options;
}

/// The last reason why not all has gone; nothing when all has.
Result<void> publish_all(Layers& layers, Deadline deadline, const std::function<bool()>& cancelled) {
  while (true) {
    // The first slice has begun before the deadline is looked at: an empty queue is always seen as such.
    Result<void> done = layers.file_system->sync(deadline.earlier(kDrainSlice));
    if (done || deadline.passed() || cancelled()) return done;
    if (done.error().code() == ErrorCode::kNoSpace || done.error().code() == ErrorCode::kBusy) return done;
    // Away: whatever is waited for will not come in a time that an end may take.
    if (!layers.remote.operators->health().reachable || layers.catalog->frozen()) return done;
  }
}

}  // namespace

Result<std::unique_ptr<StopEvent>> StopEvent::create() {
  Fd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) return fail_errno("eventfd");
  return std::make_unique<StopEvent>(std::move(fd));
}

void StopEvent::raise() noexcept {
  constexpr uint64_t kOne = 1;
  (void)!::write(fd_.get(), &kOne, sizeof kOne);  // full means raised
}

Result<void> open_worker_log(const config::Settings& settings, const Supervision& supervision) {
  if (!settings.worker || log_elsewhere(settings).empty()) return open_log(settings);
  INDUCTORFS_TRY_ASSIGN(auto file, Mounter(supervision.mounter(), supervision.mounter_silent()).open_log());
  log::open_given(std::move(file), settings.log_level);
  return {};
}

Result<std::unique_ptr<Service>> Service::open(const config::Settings& settings, const config::Ownership& ownership,
                                               Supervision& supervision, NoteMemory& notes, StopEvent& ended) {
  std::optional<Note> noted = supervision.resumes() ? notes.read() : std::nullopt;
  TakeoverState takeover;
  takeover.region = &supervision.region();
  takeover.resume = supervision.resumes();
  takeover.safe_mode = supervision.safe_mode();
  takeover.lock = supervision.lock();
  takeover.locked = [&supervision](int lock) { supervision.keep_lock(lock); };
  takeover.examiner = supervision.examiner();
  takeover.examiner_stands_still = supervision.examiner_silent();
  takeover.mounter = supervision.mounter();
  takeover.mounter_stands_still = supervision.mounter_silent();
  takeover.open_log = [&settings, &supervision] { return open_worker_log(settings, supervision); };
  if (noted) takeover.facts = noted->facts;
  supervision.start();
  INDUCTORFS_TRY_ASSIGN(auto layers, open_layers(settings, ownership, takeover));
  return std::make_unique<Service>(settings, std::move(layers), supervision, notes, std::move(noted), ended);
}

Service::Service(const config::Settings& settings, std::unique_ptr<Layers> layers, Supervision& supervision,
                 NoteMemory& notes, std::optional<Note> noted, StopEvent& ended)
    : settings_(settings),
      supervision_(supervision),
      notes_(notes),
      ended_(ended),
      mounter_(supervision.mounter(), supervision.mounter_silent()),
      layers_(std::move(layers)),
      socket_(config::runtime_directory(own_uid(), config::process_environment()) + "/" +
              config::socket_name(settings.mountpoint)),
      store_watch_(settings_, *layers_),
      watch_(
          *layers_->remote.operators, layers_->writes, log::redact_url(settings.remote),
          [this] { return layers_->catalog->status().entries; },
          [secrets = layers_->secrets](const std::function<bool()>& cancelled) {
            return !secrets || secrets->renew(Deadline::after(kSecretPatience), cancelled);
          }),
      heartbeat_(settings_, *layers_),
      host_watch_(watch_options(settings, noted, *layers_, examiner_of_watch()), host_hooks(),
                  layers_->host->state()->facts, layers_->counters),
      explainer_(*layers_, cluster_state()),
      answers_({settings_, *layers_, supervision_, mounter_, store_watch_, watch_, heartbeat_, host_watch_,
                [this] { return note_.with([](const Note& one) { return one.also; }); },
                [this] { return note_.with([](const Note& one) { return one.left_over; }); },
                [this] { return session_->requests_by_user(); }, [this] { ended_.raise(); }},
               cluster_state()) {
  note_.with([&](Note& known) {
    if (noted) known = std::move(*noted);
    known.facts = layers_->host->state()->facts;
  });
  layers_->host->on_new_scopes([this] { host_watch_.announce_now(); });
}

ClusterState Service::cluster_state() const {
  return {!settings_.remote.empty(), [this] { return heartbeat_.why_frozen(); },
          [this](const std::string& path, const std::string& scope) { return heartbeat_.purged(path, scope); },
          [this] { return watch_.why_full(); }};
}

Result<void> Service::start() {
  if (supervision_.resumes()) return resume();
  INDUCTORFS_TRY(mount());
  start_threads();
  await_catalog();
  show();
  INDUCTORFS_TRY(listen());
  Result<std::string> left_over = mounter_.uncover(Deadline::after(kPlacesPatience));
  if (left_over) note_.with([&](Note& known) { known.left_over = std::move(*left_over); });
  if (!left_over) log::error("mount.mounter_failed", {{"why", left_over.error().what()}});
  mounter_.close();
  leaves_dead_ = false;
  note();
  supervision_.serving();
  if (!settings_.remote.empty()) {
    watch_.start();
    heartbeat_.start();
  }
  host_watch_.start();
  layers_->places->start(true);
  return {};
}

/// A place that cannot be had prevents no mount.
void Service::show() {
  Result<std::vector<std::string>> states = mounter_.show(Deadline::after(kPlacesPatience));
  if (!states) {
    mounter_.close();  // what it says later is no answer to another question
    trouble_ = "the mount is not shown at its further places: " + states.error().what() + ": mount again";
    log::error("mount.mounter_failed", {{"why", states.error().what()}});
  }
  note_.with([&](Note& known) { known.also = std::move(states).value_or(std::vector<std::string>()); });
}

Result<void> Service::resume() {
  find_own();
  INDUCTORFS_TRY(open_session(supervision_.take_device()));
  start_threads();
  fail_point("takeover.threads_started");
  supervision_.serving();
  fail_point("takeover.serving");
  const Result<void> listening = listen();
  // Jobs use the mount; that it cannot be asked about is no reason to take it from them.
  if (!listening) log::error("mount.control_failed", {{"socket", socket_}, {"why", listening.error().what()}});
  if (!settings_.remote.empty()) {
    watch_.start();
    heartbeat_.start();
  }
  host_watch_.start();
  layers_->places->start(false);
  return {};
}

/// For the next worker. Without it that one learns everything anew, which only takes longer.
void Service::note() {
  const Result<void> written = note_.with([&](const Note& noted) { return notes_.write(noted); });
  if (!written) log::warning("mount.notes_not_written", {{"why", written.error().what()}});
}

void Service::stop() {
  answers_.end_waits();
  watch_.stop();
  heartbeat_.stop();
  if (control_) control_->stop();
  if (control_) mounter_.unlisten();
  if (!session_) return;
  heartbeat_.leave();
  leave();
  host_watch_.stop();
  stop_threads();
}

void Service::stop_threads() {
  layers_->places->stop();
  store_watch_.stop();
  if (threads_started_) {
    layers_->catalog->stop();
    session_->stop();
    layers_->file_system->stop();
    explainer_.stop();
    layers_->ledger->stop();
  }
  session_.reset();  // closes the device: until here those who still hold files were answered
}

void Service::drain(Deadline deadline, const std::function<bool()>& cancelled) {
  if (!threads_started_ || settings_.remote.empty()) return;
  const SteadyTime begin = std::chrono::steady_clock::now();
  const uint64_t queued_before = layers_->catalog->status().queued;
  const Result<void> done = publish_all(*layers_, deadline, cancelled);
  const auto took = std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - begin);
  const catalog::CatalogStatus after = layers_->catalog->status();
  const uint64_t unsealed = layers_->file_system->inspection().status().unsealed;
  const uint64_t gone = queued_before > after.queued ? queued_before - after.queued : 0;
  log::info("mount.drained", {{"groups", gone}, {"ms", static_cast<int64_t>(took.count())}, {"all", done.has_value()}});
  if (done) return;
  log::warning("mount.left_queued", {{"groups", after.queued},
                                     {"unsealed", unsealed},
                                     {"why", done.error().what()},
                                     {"action", "published after the next mount"}});
}

Result<void> Service::mount() {
  auto mounted = mounter_.mount(Deadline::after(settings_.start_timeout));
  if (!mounted) {
    leave();  // it may have been there all the same
    return fail(std::move(mounted).error());
  }
  own_ = mounted->own;
  leaves_dead_ = mounted->leaves_dead;
  Result<void> opened = supervision_.give_device(mounted->device.get());
  if (opened) opened = open_session(std::move(mounted->device));
  if (!opened) leave();
  return opened;
}

/// What is left of the mount after that the supervisor has taken down.
void Service::leave() {
  mounter_.close();
  if (answers_.nobody_unmounts()) return;  // nor would anybody now: the supervisor has another one try
  const Result<void> done = leaves_dead_ ? Result<void>() : mounter_.leave();
  if (done) return supervision_.left();
  log::error("mount.unmount_failed", {{"mountpoint", settings_.mountpoint}, {"why", done.error().to_string()}});
}

void Service::find_own() {
  const std::vector<MountEntry> table = read_mount_table();
  const MountEntry* entry = find_mount_at(table, settings_.mountpoint);
  if (entry != nullptr && entry->is_ours()) own_ = {entry->id, entry->device};
}

Result<void> Service::open_session(Fd device) {
  fuse::SessionOptions options;
  options.threads = settings_.threads;
  options.user_requests = settings_.user_requests;
  options.region = &supervision_.region();
  options.resume = supervision_.resumes();
  options.requests_finished = [&files = *layers_->file_system] { files.requests_finished(); };
  options.notices = supervision_.notices();
  if (options.notices >= 0) {
    own_messenger_.emplace(device.get(), options.notices);
    options.renew_notices = [this] { return own_messenger_->renew(); };
  }
  INDUCTORFS_TRY_ASSIGN(auto session, fuse::Session::open(std::move(device), options,
                                                          layers_->file_system->operations(), layers_->counters));
  session_ = std::move(session);
  return {};
}

void Service::start_threads() {
  vfs::FileSystem& files = *layers_->file_system;
  layers_->ledger->start();
  explainer_.start();
  files.start(*session_);
  session_->start([this] { ended_.raise(); });
  layers_->catalog->set_damage_listener([this] { renew_catalog(); });
  layers_->catalog->start(
      [&files](const std::vector<std::string>& paths) { files.on_catalog_change(paths); },
      [&files, &ledger = *layers_->ledger, shares = !settings_.remote.empty()](const catalog::PublishReport& report) {
        files.on_published(report);
        const bool is_shared = shares && report.state == catalog::PublishState::kPublished;
        if (is_shared) ledger.note_published(report.paths);
      });
  threads_started_ = true;
}

void Service::await_catalog() {
  const bool answers = settings_.remote.empty() || layers_->remote.operators->health().reachable;
  if (!answers) return;
  if (!layers_->catalog->wait_synced(Deadline::after(kSyncPatience))) {
    log::warning("mount.catalog_not_synced", {{"waited_ms", static_cast<int64_t>(kSyncPatience.count())}});
  }
}

/// For the host-watch thread, for which only the end of the mount waits.
host::AskedExaminer Service::examiner_of_watch() {
  return {layers_->examiner, kReaderPatience, [this] { return host_watch_.stopping(); }};
}

host::HostWatch::Hooks Service::host_hooks() {
  host::HostWatch::Hooks hooks;
  hooks.learn = [this] { return host::learn_facts(examiner_of_watch(), kProbePatience); };
  hooks.traces = [this](const host::Places& places) {
    return host::PlaceReader(examiner_of_watch()).traces(places).value_or("");
  };
  hooks.looked = [this](const fingerprint::Fingerprint& facts, const std::string& traces, std::time_t learned) {
    (void)layers_->host->state()->limits();  // here nobody waits for them
    note_.with([&](Note& noted) {
      noted.facts = facts;
      noted.traces = traces;
      noted.learned = learned;
    });
    note();
  };
  hooks.apply = [this](const fingerprint::Fingerprint& facts, bool scopes) {
    layers_->host->replace(facts);
    announced_.clear();
    if (!scopes) return layers_->file_system->judge_again();
    layers_->file_system->host_changed();
  };
  hooks.announce = [this] { return announce_scopes(); };
  return hooks;
}

bool Service::announce_scopes() {
  if (settings_.remote.empty()) return true;
  for (const remote::ScopeInformation& scope : layers_->host->information()) {
    if (host_watch_.stopping()) return true;
    if (announced_.contains(scope.id)) continue;
    const Result<void> told = layers_->remote.index->announce_scope(scope, Deadline::after(kAnnouncePatience));
    if (!told) {
      log::debug("mount.scope_not_announced", {{"scope", scope.id}, {"why", told.error().what()}});
      return false;
    }
    announced_.insert(scope.id);
  }
  return true;
}

/// At the socket of the worker before this one, if that still has its path.
Result<void> Service::listen() {
  store_watch_.start();
  Fd listener = supervision_.take_control();
  if (!listener || mounter_.has_no_listener()) {
    INDUCTORFS_TRY_ASSIGN(listener, mounter_.listen());
    supervision_.keep_control(listener.get());
    if (supervision_.guests() >= 0) supervision_.give_guests(mounter_.listen_for_guests());
  }
  control_ = control::ControlServer::open(
      std::move(listener),
      [this](std::string_view request, const control::Peer& peer) {
        return control::answer_request(answers_, request, peer, own_uid());
      },
      supervision_.guests());
  return {};
}

bool Service::is_mounted() const {
  const auto is_listed = [this] {
    return std::ranges::any_of(read_mount_table(), [this](const MountEntry& entry) {
      return entry.mount_point == settings_.mountpoint && entry.is_ours() && entry.device == own_.device;
    });
  };
  return is_listed() || is_listed();  // a list that changes while it is read may lack a line
}

std::vector<std::string> Service::warnings() const {
  std::vector<std::string> warnings;
  for (std::string warning :
       {settings_.no_worker_user, worker_tree_warning(settings_), worker_places_warning(), worker_filter_warning(),
        trouble_, note_.with([](const Note& one) { return one.left_over; }),
        sharing_warning(settings_, layers_->host->state()->facts),
        remote_warning(settings_, layers_->remote.operators->health(), layers_->remote_refusal), filter_warning()}) {
    if (!warning.empty()) warnings.push_back(std::move(warning));
  }
  return warnings;
}

/// Jobs go on meanwhile. Whatever damages the files of one worker after another is no reason to serve nobody.
void Service::renew_catalog() {
  const bool is_too_soon = supervision_.resumes() && std::chrono::steady_clock::now() - begun_ < kRenewRest;
  if (is_too_soon || answers_.has_unmounted() || supervision_.news().supervisor == 0 || !try_to_write(settings_.store))
    return;
  log::info("mount.renews_catalog", {{"mountpoint", settings_.mountpoint}});
  renews_catalog_ = true;
  ended_.raise();
}

int Service::hand_over_code() const {
  return answers_.hands_over() ? supervisor::kExitHandOver : supervisor::kExitHost;
}

void Service::hand_over() {
  // What can take long comes first: requests are answered meanwhile.
  answers_.end_waits();
  host_watch_.stop();
  watch_.stop();
  heartbeat_.stop();
  if (control_) control_->stop();
  explainer_.stop();
  layers_->catalog->stop();
  layers_->ledger->stop();
  session_->stop();
  // Nothing is synced or marked clean: the next worker goes on with what is in the kernel's memory, as after a crash.
}

}  // namespace inductorfs::mount
