// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "inductorfs/config/settings.h"
#include "inductorfs/control/control.h"
#include "inductorfs/fuse/session.h"
#include "inductorfs/host/host_watch.h"
#include "inductorfs/mount/layers.h"
#include "inductorfs/mount/misses.h"
#include "inductorfs/mount/remote_watch.h"
#include "inductorfs/mount/store_watch.h"
#include "inductorfs/mount/supervision.h"
#include "inductorfs/places/bind.h"
#include "mount/answers.h"
#include "mount/cluster/heartbeat.h"
#include "mount/mounter/mounter.h"
#include "mount/mounter/notes.h"
#include "mount/processes/own_messenger.h"

namespace inductorfs::mount {

/// An eventfd that the main thread polls; anything that ends the mount raises it. Safe for concurrent use.
class StopEvent {
 public:
  [[nodiscard]] static Result<std::unique_ptr<StopEvent>> create();
  explicit StopEvent(Fd fd) : fd_(std::move(fd)) {}
  void raise() noexcept;
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  Fd fd_;
};

/// Opens the log of a worker's mount: what lies elsewhere than in the store its mounter opens.
[[nodiscard]] Result<void> open_worker_log(const config::Settings& settings, const Supervision& supervision);

/// One mount with all its layers, which it owns; the supervision, the notes and the stop event must outlive it.
/// Confined to the main thread.
class Service {
 public:
  /// Opens the layers below the kernel, with the notes of an earlier worker if there was one.
  [[nodiscard]] static Result<std::unique_ptr<Service>> open(const config::Settings& settings,
                                                             const config::Ownership& ownership,
                                                             Supervision& supervision, NoteMemory& notes,
                                                             StopEvent& ended);
  Service(const config::Settings& settings, std::unique_ptr<Layers> layers, Supervision& supervision, NoteMemory& notes,
          std::optional<Note> noted, StopEvent& ended);
  ~Service() { stop(); }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  /// Mounts, starts all threads, waits briefly for the catalog, shows the mount at its further places, and listens.
  /// After an error, stop() undoes what was done. If an earlier worker has mounted, goes on serving that mount.
  [[nodiscard]] Result<void> start();
  /// Undoes start() in reverse order, and unmounts lazily if the mount is still there. Idempotent.
  void stop();
  /// Answers the requests that were begun and takes no new ones; mount and further places stay for the next worker. The
  /// process must end at once after that, without destruction.
  void hand_over();
  /// Says whether hand_over() is next: an upgrade has agreed on it with the supervisor, or the catalog's file is
  /// damaged, which the next worker sets aside.
  [[nodiscard]] bool hands_over() const { return answers_.hands_over() || renews_catalog_; }
  /// What the process ends with then.
  [[nodiscard]] int hand_over_code() const;

  /// Tells who wants the store that this mount is about to free it.
  void say_end() { store::say_end(layers_->store->lock()); }
  /// Publishes, between the unmount and stop(), what is written, as far as that gets before the deadline or until
  /// `cancelled`. The log says what was published (mount.drained) and what stays in the durable queue for the next
  /// mount (mount.left_queued). Returns at once when the cluster is away.
  void drain(Deadline deadline, const std::function<bool()>& cancelled);

  /// Asks the host watch whether the facts of this host have changed; returns at once.
  void look_at_host() { host_watch_.look(); }

  /// Says why the mount is no longer there, for the log.
  [[nodiscard]] const char* why_ended() const {
    return answers_.has_unmounted() ? "asked to" : "unmounted from outside";
  }
  /// Says whether the mountpoint still shows this mount, which may have been unmounted from outside.
  [[nodiscard]] bool is_mounted() const;

  /// Returns what the control socket offers. Safe for concurrent use.
  [[nodiscard]] control::MountControl& answers() { return answers_; }
  /// Returns what the user who mounted should know (sharing.h), one sentence each; mostly empty.
  [[nodiscard]] std::vector<std::string> warnings() const;
  /// Returns the line for `systemctl status` (RemoteWatch).
  [[nodiscard]] std::string summary() const { return watch_.summary(); }

 private:
  Result<void> mount();
  void show();
  void leave();
  Result<void> resume();
  Result<void> open_session(Fd device);
  void find_own();
  void stop_threads();
  void note();
  [[nodiscard]] ClusterState cluster_state() const;
  void start_threads();
  void renew_catalog();
  void await_catalog();
  [[nodiscard]] host::AskedExaminer examiner_of_watch();
  [[nodiscard]] host::HostWatch::Hooks host_hooks();
  [[nodiscard]] bool announce_scopes();
  Result<void> listen();

  config::Settings settings_;
  Supervision& supervision_;
  NoteMemory& notes_;
  StopEvent& ended_;
  Mounter mounter_;
  std::unique_ptr<Layers> layers_;
  std::optional<OwnMessenger> own_messenger_;  ///< only the session uses it
  std::unique_ptr<fuse::Session> session_;
  places::BindId own_;        ///< the mount; empty when a resumed worker has not found it
  bool leaves_dead_ = false;  ///< Mounter::Mounted::leaves_dead, until it serves
  std::string trouble_;       ///< of the further places, for the user
  std::string socket_;
  StoreWatch store_watch_;
  RemoteWatch watch_;
  Heartbeat heartbeat_;
  std::set<remote::ScopeId> announced_;  ///< confined to the host-watch thread
  host::HostWatch host_watch_;
  Guarded<Note> note_;
  MissExplainer explainer_;
  Answers answers_;
  std::unique_ptr<control::ControlServer> control_;
  std::atomic<bool> renews_catalog_{false};
  const SteadyTime begun_ = std::chrono::steady_clock::now();
  bool threads_started_ = false;
};

}  // namespace inductorfs::mount
