// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>

#include "inductorfs/base/activity.h"
#include "inductorfs/base/host_error.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/mount_table.h"
#include "inductorfs/base/own_user.h"
#include "inductorfs/config/frozen.h"
#include "inductorfs/control/control.h"
#include "inductorfs/control/requests.h"
#include "inductorfs/mount/process.h"
#include "inductorfs/mount/process_commands.h"
#include "inductorfs/mount/supervision.h"
#include "inductorfs/mount/worker_user.h"
#include "inductorfs/supervisor/protocol.h"
#include "mount/mounter/mounter.h"
#include "mount/processes/store_place.h"
#include "mount/processes/worker_filter.h"
#include "mount/service.h"

namespace inductorfs::mount {
namespace {

/// How long a mount that is in use is asked to go before it is detached.
constexpr Milliseconds kBusyPatience{10000};
constexpr Milliseconds kBusyRetry{250};
/// How long the end of a mount waits for what is queued to reach the cluster; a second signal ends the wait.
constexpr Milliseconds kDrainPatience{5000};

/// SIGTERM, SIGINT and SIGHUP as a descriptor; blocked everywhere else. Needs external synchronisation.
class Signals {
 public:
  [[nodiscard]] static Result<Signals> open() {
    sigset_t set;
    (void)::sigemptyset(&set);
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) (void)::sigaddset(&set, number);
    if (::sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return fail_errno("sigprocmask");
    Fd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd) return fail_errno("signalfd");
    return Signals(std::move(fd));
  }
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// The next signal's number, 0 when there is none.
  [[nodiscard]] int next() {
    signalfd_siginfo info{};
    return ::read(fd_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info) ? static_cast<int>(info.ssi_signo)
                                                                                      : 0;
  }

 private:
  explicit Signals(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

/// The main thread of a daemon: waits for what ends the mount. Confined to the main thread.
class MainLoop {
 public:
  MainLoop(const config::Settings& settings, const Supervision& supervision, Service& service, Signals& signals,
           StopEvent& ended)
      : settings_(settings), supervision_(supervision), service_(service), signals_(signals), ended_(ended) {}

  /// Returns when the mount is to be taken down, or handed over.
  void run() {
    // The kernel marks this file whenever the list of mounts changes. The end of the session alone would not do: it
    // does not come while a further place still shows the mount.
    const Result<Fd> mounts = open_mount_table();
    if (!service_.is_mounted()) end(service_.why_ended());  // while an earlier worker did not look
    while (!done_) {
      std::array<pollfd, 3> items{pollfd{signals_.fd(), POLLIN, 0}, pollfd{ended_.fd(), POLLIN, 0},
                                  pollfd{mounts ? mounts->get() : -1, POLLPRI, 0}};
      (void)::poll(items.data(), items.size(), timeout());  // an interruption is a turn like any other
      if (service_.hands_over()) return;
      if ((items[1].revents & POLLIN) != 0) end(service_.why_ended());
      if (items[2].revents != 0 && !service_.is_mounted()) end(service_.why_ended());
      for (int number = signals_.next(); number != 0; number = signals_.next()) on_signal(number);
      if (asked_ && !done_) try_unmount();
    }
  }

  /// Whether a second signal has come: nothing is waited for any more.
  [[nodiscard]] bool hurried() {
    for (int number = signals_.next(); number != 0; number = signals_.next()) {
      if (number != SIGHUP) hurried_ = hurried_ || asked_.has_value();
      if (number != SIGHUP && !asked_) asked_ = Deadline::after(kBusyPatience);
    }
    return hurried_;
  }

 private:
  int timeout() const { return asked_ ? static_cast<int>(kBusyRetry.count()) : -1; }

  void end(const char* why) {
    if (!done_) log::info("mount.unmounting", {{"why", why}});
    done_ = true;
  }

  void on_signal(int number) {
    if (number == SIGHUP) {
      const Result<void> reopened = open_worker_log(settings_, supervision_);
      log::info("mount.log_reopened", {{"ok", reopened.has_value()}});
      service_.look_at_host();
      return;
    }
    if (asked_) {
      hurried_ = true;
      end("a second signal");  // stop() detaches it lazily
    } else {
      asked_ = Deadline::after(kBusyPatience);
      notify_systemd("STOPPING=1\nSTATUS=unmounting");
    }
  }

  void try_unmount() {
    const Result<void> unmounted = service_.answers().unmount(false);
    if (unmounted) {
      end("a signal");
    } else if (unmounted.error().code() != ErrorCode::kBusy) {
      log::error("mount.unmount_failed", {{"mountpoint", settings_.mountpoint}, {"why", unmounted.error().what()}});
      end("a signal");
    } else if (asked_->passed()) {
      log::warning("mount.unmount_busy", {{"why", unmounted.error().what()}, {"action", "detached lazily"}});
      end("a signal, still in use");
    }
  }

  const config::Settings& settings_;
  const Supervision& supervision_;
  Service& service_;
  Signals& signals_;
  StopEvent& ended_;
  std::optional<Deadline> asked_;  ///< a signal came; until then a busy mount may go by itself
  bool hurried_ = false;
  bool done_ = false;
};

/// The descriptors and settings that the supervisor has opened for this process.
struct Inheritance {
  config::Frozen mount;
  std::unique_ptr<Supervision> supervision;
  Fd notes;
  Readiness readiness;
};

/// For good, and before there are threads. Whatever takes rights over the host the mounter and the examiner do. An
/// ordinary user's worker has no rights, and its messenger is not set-user-id. Root's is `user` from its start, whom
/// its supervisor became.
Result<void> give_up_rights(const std::optional<config::WorkerUser>& user) {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno("prctl");
  if (user) {
    if (::geteuid() != user->uid) return fail(ErrorCode::kInternal, "this worker is not the user of its settings");
    act_for(0, 0);
    if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return fail_errno("prctl");
    return keep_capabilities({});
  }
  protect();
  constexpr std::array kToSeeHidden = {CAP_SYS_PTRACE};
  return keep_capabilities(has_hidden_processes() ? std::span<const int>(kToSeeHidden) : std::span<const int>());
}

Result<Inheritance> inherit() {
  Inheritance inherited;
  const Result<std::string> bytes = config::from_memory(supervisor::kSettingsFd);
  if (!bytes) return fail(ErrorCode::kInvalid, "a worker is started by inductorfs mount, not by hand");
  INDUCTORFS_TRY_ASSIGN(inherited.mount, config::thaw(*bytes));
  config::Settings& settings = inherited.mount.settings;
  if (::fcntl(supervisor::kMountsFd, F_GETFD) >= 0) use_mount_table(Fd(supervisor::kMountsFd));
  INDUCTORFS_TRY(give_up_rights(settings.worker));
  INDUCTORFS_TRY_ASSIGN(auto supervision, Supervision::take_over(inherited.mount.settings.hang_timeout));
  inherited.supervision = std::move(supervision);
  (void)::close(supervisor::kSettingsFd);
  inherited.notes = Fd(supervisor::kNotesFd);
  const bool awaited = ::fcntl(supervisor::kReadyFd, F_GETFD) >= 0;
  if (awaited) inherited.readiness = Readiness(Fd(supervisor::kReadyFd));
  return inherited;
}

/// Ends this process as a crash would, which loses nothing: what is not sealed is found at the next mount.
[[noreturn]] void end_without(const StuckThread& thread, Supervision& supervision) {
  // Its last step in the kernel may still come: then the store is not free before.
  if (!thread.waits_for_disk) supervision.free_lock();
  control::tell_those_who_hold(control::refuse_end(thread.to_string()));
  log::error("mount.ended_without_thread", {{"why", thread.to_string()}});
  ::_exit(EXIT_SUCCESS);  // to its supervisor: no other worker is wanted
}

/// To the log, and to the person who mounts, who may not look there.
void tell_warnings(const config::Settings& settings, const std::vector<std::string>& warnings, Readiness& readiness) {
  std::string lines;
  for (const std::string& warning : warnings) {
    log::warning("mount.warning", {{"what", warning}});
    lines += (lines.empty() ? "" : "\n") + warning;
    const bool log_is_elsewhere = settings.foreground && !log_path(settings).empty();
    if (log_is_elsewhere) (void)::fputs(warning_line(warning).c_str(), stderr);
  }
  readiness.ready(lines);
}

/// From nothing, or from where another worker left it, to a mount that answers, and back.
Result<void> serve(config::Settings& settings, Inheritance& inherited) {
  INDUCTORFS_TRY_ASSIGN(auto signals, Signals::open());
  INDUCTORFS_TRY_ASSIGN(const auto ended, StopEvent::create());
  Supervision& supervision = *inherited.supervision;
  const auto store = place_of_store(supervision.lock(), settings.store);
  const std::string named = store ? std::exchange(settings.store, *store) : settings.store;
  confine_worker(settings);
  // The first worker does this after it has got the store's lock: the log may be another mount's.
  if (settings.foreground || supervision.resumes()) {
    const Result<void> opened = open_worker_log(settings, supervision);
    if (!opened && !supervision.resumes()) return opened;  // jobs use the mount, with a log or without one
  }
  INDUCTORFS_TRY(store);
  if (named != settings.store) log::warning("mount.store_moved", {{"from", named}, {"to", settings.store}});
  INDUCTORFS_TRY(config::change_families(settings, "settings of the mount"));

  NoteMemory notes(std::move(inherited.notes));
  INDUCTORFS_TRY_ASSIGN(auto service, Service::open(settings, inherited.mount.ownership, supervision, notes, *ended));
  INDUCTORFS_TRY(service->start());
  log::info(supervision.resumes() ? "mount.resumed" : "mount.ready", {{"mountpoint", settings.mountpoint},
                                                                      {"remote", log::redact_url(settings.remote)},
                                                                      {"store", settings.store},
                                                                      {"version", INDUCTORFS_VERSION}});
  if (!no_landlock().empty()) log::info("mount.no_landlock", {{"why", no_landlock()}});
  tell_warnings(settings, service->warnings(), inherited.readiness);
  if (!supervision.resumes()) notify_systemd("READY=1\nSTATUS=" + service->summary());
  MainLoop loop(settings, supervision, *service, signals, *ended);
  loop.run();
  if (service->hands_over()) {
    service->hand_over();
    log::info("mount.handed_over", {{"mountpoint", settings.mountpoint}});
    ::_exit(service->hand_over_code());
  }
  service->say_end();
  supervision.ending([&supervision](const StuckThread& thread) { end_without(thread, supervision); });
  if (!loop.hurried()) service->drain(Deadline::after(kDrainPatience), [&loop] { return loop.hurried(); });
  service->stop();
  {
    const Activity activity("closes the store");
    service.reset();
  }
  supervision.ending({});
  supervision.free_lock();
  log::info("mount.stopped", {{"mountpoint", settings.mountpoint}});
  return {};
}

}  // namespace

int worker_command() {
  // Started by descriptor, it would be called by the number of that.
  (void)::prctl(PR_SET_NAME, "inductorfs");
  Result<Inheritance> inherited = inherit();
  if (!inherited) {
    (void)::fputs(error_line(inherited.error()).c_str(), stderr);
    return EXIT_FAILURE;
  }
  config::Settings& settings = inherited->mount.settings;
  const Result<void> served = serve(settings, *inherited);
  if (served) return EXIT_SUCCESS;
  // Where the log is standard error, once, and in the words of an answer.
  const bool log_is_stderr = log_path(settings).empty();
  if (!log_is_stderr) log::error("mount.failed", {{"why", served.error().to_string()}});
  if (inherited->readiness.has_listener()) {
    inherited->readiness.failed(served.error());
  } else if (settings.foreground) {
    (void)::fputs(error_line(served.error()).c_str(), stderr);
  }
  // Its disk, or the store is gone.
  const ErrorCode code = served.error().code();
  const bool is_of_disk = is_of_host(code) || code == ErrorCode::kNotFound;
  // Without waiting for the supervision's thread: the disk, which may be in order again, is in use meanwhile.
  ::_exit(inherited->supervision->resumes() && is_of_disk ? supervisor::kExitHost : exit_code_of(served.error()));
}

}  // namespace inductorfs::mount
