// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/base/result.h"
#include "inductorfs/mount/thread_watch.h"
#include "inductorfs/supervisor/protocol.h"
#include "inductorfs/takeover/region.h"
#include "inductorfs/takeover/request_slots.h"

namespace inductorfs::mount {

/// What the supervisor has recorded, for `status`.
struct SupervisionNews {
  int supervisor = 0;  ///< its pid; 0: it is gone, and no other worker would take over
  uint32_t restarts = 0;
  uint32_t upgrades = 0;
  uint32_t upgrades_failed = 0;
  uint32_t upgrades_taken_back = 0;  ///< the new program served, and crashed again and again
  bool safe_mode = false;
  bool log_full =
      false;  ///< the log of nodes has no room for all that the kernel knows; the next worker would lack some
  std::string last_end;  ///< how the last worker crashed; empty: none did
  std::time_t last_crash = 0;
  size_t slots = 0;
  std::vector<StuckThread> stuck;  ///< threads of this worker, other than those of requests, that do not go on
};

/// A worker's side of its supervisor. It owns the memory that outlives the worker, a thread (the heart) that beats in
/// that memory, and the link. The heart stops beating when a request is not answered for longer than `hang` and shows
/// no progress: then this process is as good as dead. A request that waits for the disk in the kernel is not stuck: a
/// kill could not end that wait, and the next worker would wait for the same. The heart also finds other threads that
/// do not go on (ThreadWatch), but beats on: jobs read and write without those threads, and another worker might not
/// even start if the cause lies below the store. start() and stop() need external synchronisation; everything else is
/// safe for concurrent use.
class Supervision {
 public:
  /// Takes the descriptors that the supervisor has opened for this process. kInvalid when there are none, or when they
  /// are of another version.
  [[nodiscard]] static Result<std::unique_ptr<Supervision>> take_over(Milliseconds hang);
  /// The descriptors that the supervisor kept from the worker before; empty for the first worker.
  struct KeptDescriptors {
    Fd device;
    Fd lock;        ///< the lock of the store
    Fd notices;     ///< the socket to the messenger
    Fd control;     ///< the listening control socket
    Fd examiner{};  ///< the socket to the examiner, of this worker alone
    Fd mounter{};   ///< the socket to the mounter, of this worker alone
    Fd guests{};    ///< the channel of guests (supervisor/protocol.h)
  };
  Supervision(takeover::Region region, Fd link, KeptDescriptors kept, Milliseconds hang);
  ~Supervision() { stop(); }
  Supervision(const Supervision&) = delete;
  Supervision& operator=(const Supervision&) = delete;

  [[nodiscard]] takeover::Region& region() { return region_; }
  /// Says whether another worker has served the mount before.
  [[nodiscard]] bool resumes() const { return resumes_; }
  [[nodiscard]] Fd take_device() { return std::move(kept_.device); }
  /// Returns the lock of the store that an earlier worker took; -1: none did.
  [[nodiscard]] int lock() const { return kept_.lock.get(); }
  /// Returns the descriptor for SessionOptions::notices; -1: the supervisor has none.
  [[nodiscard]] int notices() const { return kept_.notices.get(); }
  [[nodiscard]] bool safe_mode() const { return region_.page().safe_mode.load() != 0; }

  /// Returns the socket for fingerprint::ExaminerLink.
  [[nodiscard]] int examiner() const { return kept_.examiner.get(); }
  /// Returns what tells the supervisor that the examiner takes no questions, for it to be replaced. It may be called
  /// after this object has gone.
  [[nodiscard]] std::function<void()> examiner_silent() const;
  /// Returns the socket for Mounter.
  [[nodiscard]] int mounter() const { return kept_.mounter.get(); }
  /// As examiner_silent().
  [[nodiscard]] std::function<void()> mounter_silent() const;

  /// Starts the heart.
  void start();
  void stop();
  /// Gives the supervisor the device, before the first request is read from it.
  [[nodiscard]] Result<void> give_device(int device);
  /// Lets the supervisor hold the store's lock from now on, so that no other process takes it between two workers. Best
  /// effort: without a supervisor no worker would take over.
  void keep_lock(int lock);
  /// Leaves the listening control socket with the supervisor, so that who asks is never refused between two workers.
  void keep_control(int listener);
  /// Returns what an earlier worker left so; empty for the first one.
  [[nodiscard]] Fd take_control() { return std::move(kept_.control); }
  /// Returns the channel for control::ControlServer::open(); -1: other users do not come to this mount.
  [[nodiscard]] int guests() const { return kept_.guests.get(); }
  /// Gives the listening control socket of other users to the proxy. Without it the mount serves, and root reaches it.
  void give_guests(const Result<Fd>& listener);
  /// Frees the store's lock because the mount has ended: another process may use the store before this one is gone.
  void free_lock();
  /// Records that requests are answered from now on.
  void serving();
  /// Tells the supervisor that nothing of the mount is left, which it would take down itself otherwise.
  void left();
  /// Asks the supervisor to let this program follow this worker. After a success the process is to hand over. kBusy
  /// when the supervisor refuses, kUnavailable when there is none.
  [[nodiscard]] Result<void> ask_upgrade(const std::string& name, Fd program);

  [[nodiscard]] SupervisionNews news() const;
  [[nodiscard]] std::vector<StuckThread> stuck_threads() const;
  using GiveUp = std::function<void(const StuckThread& thread)>;
  /// Records that this process is ending: it is about to join its threads. From then on the heart's thread calls
  /// `give_up`, which is to end the process, as soon as a thread does not go on; an empty `give_up` takes that back.
  void ending(GiveUp give_up);

 private:
  enum class Answer { kNone, kTaken, kRefused, kProgramRefused };
  /// The work of a thread, as it was observed at two moments.
  struct Seen {
    uint64_t request = 0;
    uint64_t steps = 0;
    SteadyTime began;     ///< when the request was first observed
    SteadyTime progress;  ///< when its last progress was observed
  };
  void run(const std::stop_token& stop);
  void beat();
  [[nodiscard]] SteadyTime time_awake();
  [[nodiscard]] bool is_stuck(SteadyTime now);
  void watch_threads(SteadyTime now);
  [[nodiscard]] bool is_overdue(const Seen& seen, SteadyTime now) const;
  [[nodiscard]] bool is_at_work(size_t thread, SteadyTime now);
  [[nodiscard]] bool waits_for_another(size_t thread, SteadyTime now);
  void take_words();
  [[nodiscard]] std::function<void()> teller_of(const char* companion, supervisor::Word word) const;

  takeover::Region region_;
  Fd link_;
  KeptDescriptors kept_;
  const Milliseconds hang_;
  const bool resumes_;
  std::atomic<bool> alone_{false};  ///< the supervisor is gone
  Guarded<Answer> answer_{Answer::kNone};
  Guarded<std::vector<StuckThread>> stuck_;
  Guarded<GiveUp> give_up_;
  // These members are confined to the heart's thread. The slots are mapped when there is time: a takeover does not wait
  // for that.
  std::optional<takeover::RequestSlots> slots_;
  std::vector<Seen> seen_;
  ThreadWatch watch_;
  SteadyTime looked_at_;
  SteadyTime::duration frozen_{};
  std::jthread thread_;
};

/// Describes how a worker ended: "signal 9", "code 1", "hung, and was killed".
[[nodiscard]] std::string describe_end(int status, bool hung);

}  // namespace inductorfs::mount
