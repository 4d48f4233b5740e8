// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "inductorfs/config/settings.h"
#include "inductorfs/control/control.h"
#include "inductorfs/control/requests.h"
#include "inductorfs/fuse/session.h"
#include "inductorfs/host/host_watch.h"
#include "inductorfs/mount/layers.h"
#include "inductorfs/mount/remote_watch.h"
#include "inductorfs/mount/sharing.h"
#include "inductorfs/mount/supervision.h"
#include "inductorfs/places/also.h"
#include "notes.h"
#include "own_messenger.h"

namespace inductorfs::mount {

/// An eventfd that the main thread polls: anything that ends the mount raises it. Safe for concurrent use.
class StopEvent {
 public:
  [[nodiscard]] static Result<std::unique_ptr<StopEvent>> create();
  explicit StopEvent(Fd fd) : fd_(std::move(fd)) {}
  void raise() noexcept;
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  Fd fd_;
};

/// One mount with all its layers. start(), stop() and hand_over() are confined to the main thread; the queries of
/// MountControl are safe for concurrent use.
class Service final : public control::MountControl {
 public:
  /// Opens the layers below the kernel, with what an earlier worker has noted when there was one.
  [[nodiscard]] static Result<std::unique_ptr<Service>> open(const config::Settings& settings,
                                                             const config::Ownership& ownership,
                                                             Supervision& supervision, Notes& notes, StopEvent& ended);
  Service(const config::Settings& settings, std::unique_ptr<Layers> layers, Supervision& supervision, Notes& notes,
          std::optional<Noted> noted, StopEvent& ended);
  ~Service() override { stop(); }

  /// Mounts, starts all threads, waits a little for the catalog, shows the mount at its further places, and listens.
  /// After an error, stop() takes back what was done. With a mount of an earlier worker: goes on serving that.
  /// `ownership`: of the directory that is to be covered, when it was looked at.
  [[nodiscard]] Result<void> start(const config::Ownership& ownership);
  /// The reverse of start(), unmounting lazily if the mount is still there. Idempotent.
  void stop();
  /// Answers what was begun and takes nothing new; mount and further places stay for the next worker. The process is
  /// to end at once after that, without destruction.
  void hand_over();
  /// Whether upgrade() has agreed with the supervisor that hand_over() is next.
  [[nodiscard]] bool hands_over() const { return hands_over_; }

  /// What is queued goes to the cluster as far as it gets (drain.h). Between the unmount and stop().
  void drain(Deadline deadline, const std::function<bool()>& cancelled);

  /// Looks whether the facts of this host have changed; returns at once.
  void look_at_host() { host_watch_.look(); }

  /// Why the mount is no longer there, for the log.
  [[nodiscard]] const char* why_ended() const { return asked_ ? "asked to" : "unmounted from outside"; }
  /// Whether the mountpoint still shows this mount: it may have been unmounted from outside.
  [[nodiscard]] bool is_mounted() const;

  /// What the person who mounts should know (sharing.h), one sentence each; mostly empty.
  [[nodiscard]] std::vector<std::string> warnings() const;

  [[nodiscard]] std::string status() override;
  [[nodiscard]] std::string where() override;
  [[nodiscard]] std::string explain(const std::string& path) override;
  [[nodiscard]] Result<std::string> sync(Deadline deadline, const std::function<bool()>& cancelled) override;
  [[nodiscard]] Result<void> unmount(bool lazy) override;
  [[nodiscard]] Result<std::string> upgrade(const std::string& program) override;

 private:
  Result<void> mount(const config::Ownership& ownership);
  Result<void> resume();
  Result<void> open_session(Fd device);
  void find_device();
  void stop_threads();
  void note();
  void start_threads();
  void await_catalog();
  [[nodiscard]] fingerprint::ReaderOptions reader_of_watch();
  [[nodiscard]] host::HostWatch::Hooks host_hooks();
  [[nodiscard]] bool announce_scopes();
  [[nodiscard]] config::Json what_was_shared() const;
  Result<void> listen();

  config::Settings settings_;
  Supervision& supervision_;
  Notes& notes_;
  StopEvent& ended_;
  std::unique_ptr<Layers> layers_;
  std::optional<OwnMessenger> own_messenger_;  ///< the session's, and used by nobody else
  std::unique_ptr<fuse::Session> session_;
  std::string device_;  ///< of the mount, as mountinfo has it
  std::string socket_directory_;
  std::string socket_;
  places::AlsoPlaces also_;
  RemoteWatch watch_;
  host::HostWatch host_watch_;
  std::string socket_alias_;  ///< a link for the spelling of the mountpoint that the user gave
  std::unique_ptr<control::ControlServer> control_;
  Guarded<bool> stopping_{false};
  Guarded<Noted> noted_;
  std::atomic<bool> asked_{false};  ///< unmount() has taken the mount away
  std::atomic<bool> hands_over_{false};
  bool threads_started_ = false;
};

}  // namespace inductorfs::mount
