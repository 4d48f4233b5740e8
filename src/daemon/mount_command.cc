// SPDX-License-Identifier: Apache-2.0
#include "mount_command.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>

#include "inductorfs/base/log.h"
#include "inductorfs/daemon/daemon.h"
#include "mountpoint.h"
#include "process.h"
#include "service.h"

namespace inductorfs::daemon {
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
  MainLoop(const Settings& settings, Service& service, Signals& signals, StopEvent& ended)
      : settings_(settings), service_(service), signals_(signals), ended_(ended) {}

  /// Returns when the mount is to be taken down.
  void run() {
    // The kernel marks this file whenever the list of mounts changes. The end of the session alone would not do: it
    // does not come while a further place still shows the mount.
    const Result<Fd> mounts = open_at(AT_FDCWD, "/proc/self/mountinfo", O_RDONLY);
    while (!done_) {
      std::array<pollfd, 3> items{pollfd{signals_.fd(), POLLIN, 0}, pollfd{ended_.fd(), POLLIN, 0},
                                  pollfd{mounts ? mounts->get() : -1, POLLPRI, 0}};
      (void)::poll(items.data(), items.size(), timeout());  // an interruption is a turn like any other
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
    if (!done_) log::info("unmounting", {{"why", why}});
    done_ = true;
  }

  void on_signal(int number) {
    if (number == SIGHUP) {
      const Result<void> reopened = open_log(settings_);
      log::info("log_reopened", {{"ok", reopened.has_value()}});
      service_.look_at_host();
      return;
    }
    if (asked_) {
      hurried_ = true;
      end("a second signal");  // stop() detaches it lazily
    } else {
      asked_ = Deadline::after(kBusyPatience);
      notify_systemd("STOPPING=1");
    }
  }

  void try_unmount() {
    const Result<void> unmounted = service_.unmount(false);
    if (unmounted) {
      end("a signal");
    } else if (asked_->passed()) {
      log::warning("unmount_busy", {{"why", unmounted.error().what()}, {"action", "detached lazily"}});
      end("a signal, still in use");
    }
  }

  const Settings& settings_;
  Service& service_;
  Signals& signals_;
  StopEvent& ended_;
  std::optional<Deadline> asked_;  ///< a signal came; until then a busy mount may go by itself
  bool hurried_ = false;
  bool done_ = false;
};

/// From nothing to a mount that answers, and back.
Result<void> serve(Settings& settings, Readiness& readiness) {
  Result<Signals> signals = Signals::open();
  if (!signals) return fail(signals.error());
  const Result<std::unique_ptr<StopEvent>> ended = StopEvent::create();
  if (!ended) return fail(ended.error());
  INDUCTORFS_TRY(settle(settings.mountpoint, settings.foreground));
  if (settings.foreground) INDUCTORFS_TRY(open_log(settings));

  INDUCTORFS_TRY(free_mountpoint(settings.mountpoint));
  Result<std::string> real = resolve_mountpoint(settings.mountpoint);
  if (!real) return fail(real.error());
  settings.mountpoint = std::move(*real);
  INDUCTORFS_TRY(free_mountpoint(settings.mountpoint));
  const Result<Ownership> ownership = ownership_of(settings.mountpoint);
  if (!ownership) return fail(ownership.error());

  Result<std::unique_ptr<Service>> service = Service::open(settings, *ownership, **ended);
  if (!service) return fail(service.error());
  protect();
  INDUCTORFS_TRY((*service)->start());
  log::info("ready", {{"mountpoint", settings.mountpoint},
                      {"remote", log::redact_url(settings.remote)},
                      {"store", settings.store},
                      {"version", INDUCTORFS_VERSION}});
  readiness.ready();
  notify_systemd("READY=1\nSTATUS=serving " + settings.mountpoint);
  MainLoop loop(settings, **service, *signals, **ended);
  loop.run();
  if (!loop.hurried()) (*service)->drain(Deadline::after(kDrainPatience), [&loop] { return loop.hurried(); });
  (*service)->stop();
  service->reset();
  log::info("stopped", {{"mountpoint", settings.mountpoint}});
  return {};
}

/// The daemon's whole life. Nothing of the parent's is run at its end: hence _exit in the child.
int serve_and_report(Settings& settings, Readiness readiness) {
  const Result<void> served = serve(settings, readiness);
  if (served) return kExitDone;
  const std::string line = error_line(served.error());
  if (readiness.has_listener()) {
    log::error("failed", {{"why", served.error().to_string()}});
    readiness.failed(served.error());
  } else {
    (void)::fputs(line.c_str(), stderr);
  }
  return kExitFailed;
}

}  // namespace

int mount_command(Settings settings) {
  if (settings.foreground) return serve_and_report(settings, Readiness());
  Result<Forked> forked = fork_daemon();
  if (!forked) {
    (void)::fputs(error_line(forked.error()).c_str(), stderr);
    return kExitFailed;
  }
  if (forked->child) ::_exit(serve_and_report(settings, std::move(forked->readiness)));
  const Result<void> ready = await_ready(*forked, settings.start_timeout, log_path(settings));
  if (ready) return kExitDone;
  (void)::fputs(error_line(ready.error()).c_str(), stderr);
  return kExitFailed;
}

}  // namespace inductorfs::daemon
