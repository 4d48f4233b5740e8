// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/supervision.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "inductorfs/base/log.h"
#include "inductorfs/base/thread.h"
#include "inductorfs/control/socket.h"
#include "inductorfs/supervisor/protocol.h"
#include "inductorfs/takeover/node_log.h"

namespace inductorfs::mount {
namespace {

using supervisor::Receipt;
using supervisor::Word;

constexpr Milliseconds kBeat{250};
constexpr int kFullSeconds = 3600;  ///< between two lines of the log about a log of nodes that is full
/// The supervisor answers from its loop, which never rests long.
constexpr Milliseconds kAnswerPatience{5000};

int64_t monotonic_now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

/// Waits of these threads that have a deadline of their own are shorter, or come in slices.
constexpr Milliseconds kThreadPatience{5000};

ThreadWatch make_watch(Milliseconds hang) {
  return ThreadWatch(hang.count() == 0 ? hang : std::max(hang, kThreadPatience));
}

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

}  // namespace

std::string describe_end(int status, bool hung) {
  if (hung) return "hung, and was killed";
  return WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                             : "code " + std::to_string(WEXITSTATUS(status));
}

Result<std::unique_ptr<Supervision>> Supervision::take_over(Milliseconds hang) {
  for (const int fd : {supervisor::kRegionFd, supervisor::kSettingsFd, supervisor::kLinkFd, supervisor::kExaminerFd,
                       supervisor::kMounterFd}) {
    if (!is_open(fd)) return fail(ErrorCode::kInvalid, "a worker is started by inductorfs mount, not by hand");
  }
  for (int fd = supervisor::kRegionFd; fd < supervisor::kFirstFreeFd; ++fd) (void)::fcntl(fd, F_SETFD, FD_CLOEXEC);
  INDUCTORFS_TRY_ASSIGN(auto region, takeover::Region::attach(Fd(supervisor::kRegionFd)));
  KeptDescriptors kept;
  kept.device = Fd(is_open(supervisor::kDeviceFd) ? supervisor::kDeviceFd : -1);
  kept.lock = Fd(is_open(supervisor::kLockFd) ? supervisor::kLockFd : -1);
  kept.notices = Fd(is_open(supervisor::kNoticesFd) ? supervisor::kNoticesFd : -1);
  kept.control = Fd(is_open(supervisor::kControlFd) ? supervisor::kControlFd : -1);
  kept.examiner = Fd(supervisor::kExaminerFd);
  kept.mounter = Fd(supervisor::kMounterFd);
  kept.guests = Fd(is_open(supervisor::kGuestsFd) ? supervisor::kGuestsFd : -1);
  region.page().worker.store(::getpid());
  return std::make_unique<Supervision>(std::move(region), Fd(supervisor::kLinkFd), std::move(kept), hang);
}

Supervision::Supervision(takeover::Region region, Fd link, KeptDescriptors kept, Milliseconds hang)
    : region_(std::move(region)),
      link_(std::move(link)),
      kept_(std::move(kept)),
      hang_(hang),
      resumes_(static_cast<bool>(kept_.device)),
      seen_(region_.threads()),
      watch_(make_watch(hang)) {}

void Supervision::start() {
  beat();
  thread_ = start_thread("heart", [this](const std::stop_token& stop) { run(stop); });
}

void Supervision::stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

/// Returns the time without that in which this process was frozen, with its host or alone (SIGSTOP, a paused
/// container): no thread of it could make progress then. A machine that is too busy to run the heart counts as well.
SteadyTime Supervision::time_awake() {
  const SteadyTime now = std::chrono::steady_clock::now();
  frozen_ += std::max(now - looked_at_ - 2 * kBeat, SteadyTime::duration::zero());
  looked_at_ = now;
  return now - frozen_;
}

void Supervision::run(const std::stop_token& stop) {
  looked_at_ = std::chrono::steady_clock::now();
  while (!stop.stop_requested()) {
    pollfd item{alone_ ? -1 : link_.get(), POLLIN, 0};
    (void)::poll(&item, 1, static_cast<int>(kBeat.count()));  // an interruption is a turn like any other
    take_words();
    const SteadyTime now = time_awake();
    if (!is_stuck(now)) beat();
    watch_threads(now);
    if (takeover::NodeLog(region_).full()) {
      log::write_limited(
          log::Level::kError, "mount.node_log_full",
          {{"why", "the kernel knows too many files"}, {"loses", "a crash of this process would lose open files"}},
          kFullSeconds);
    }
  }
}

void Supervision::watch_threads(SteadyTime now) {
  const auto stuck = watch_.look(now, threads_at_work());
  stuck_.with([&](auto& known) { known = stuck; });
  if (stuck.empty()) return;
  // One of them may still write, whatever the others wait for.
  const auto writer = std::ranges::find_if(stuck, [](const StuckThread& thread) { return thread.waits_for_disk; });
  give_up_.with([&](const GiveUp& give_up) {
    if (give_up) give_up(writer == stuck.end() ? stuck.front() : *writer);
  });
}

void Supervision::beat() { region_.page().beat.store(monotonic_now()); }

bool Supervision::is_stuck(SteadyTime now) {
  if (hang_.count() == 0 || region_.page().serving.load() == 0) return false;
  if (!slots_) slots_.emplace(region_);
  for (size_t i = 0; i < seen_.size(); ++i) {
    const takeover::Slot& slot = slots_->of_thread(i);
    const uint64_t request = slot.served.load(std::memory_order_acquire);
    const uint64_t steps = slot.steps.load(std::memory_order_relaxed);
    if (request != seen_[i].request) seen_[i] = {request, steps, now, now};
    if (steps != seen_[i].steps) seen_[i].progress = now;
    seen_[i].steps = steps;
  }
  bool stuck = false;
  for (size_t i = 0; i < seen_.size(); ++i) {
    if (!is_overdue(seen_[i], now) || is_at_work(i, now) || waits_for_another(i, now)) continue;
    stuck = true;
    log::write_limited(log::Level::kError, "mount.request_stuck", {{"thread", static_cast<uint64_t>(i)}});
  }
  return stuck;
}

bool Supervision::is_overdue(const Seen& seen, SteadyTime now) const {
  return seen.request != 0 && now - seen.progress >= hang_;
}

/// Whether a long request goes on: it has said so, or its thread waits for the disk.
bool Supervision::is_at_work(size_t thread, SteadyTime now) {
  const Seen& seen = seen_[thread];
  if (seen.request == 0) return false;
  if (seen.steps != 0 && now - seen.progress < hang_) return true;
  return signs_of(slots_->of_thread(thread).thread.load(std::memory_order_relaxed)).waits_in_kernel;
}

/// Whether what holds a request up may be a lock of another one that goes on. That one was there before this one was
/// overdue; so work that comes later hides no request that is stuck.
bool Supervision::waits_for_another(size_t thread, SteadyTime now) {
  for (size_t i = 0; i < seen_.size(); ++i) {
    if (i != thread && seen_[i].began < seen_[thread].progress + hang_ && is_at_work(i, now)) return true;
  }
  return false;
}

void Supervision::take_words() {
  while (!alone_) {
    Word word{};
    Fd descriptor;
    const Receipt receipt = supervisor::receive_word(link_.get(), word, {&descriptor, 1});
    if (receipt == Receipt::kEnded) {
      alone_ = true;
      log::error("mount.supervisor_lost", {{"action", "served on; a crash of this process would end the mount"}});
    }
    if (receipt != Receipt::kWord) return;
    if (word == Word::kUpgradeTaken || word == Word::kUpgradeRefused || word == Word::kProgramRefused) {
      const Answer refusal = word == Word::kProgramRefused ? Answer::kProgramRefused : Answer::kRefused;
      answer_.notify_with([&](Answer& answer) { answer = word == Word::kUpgradeTaken ? Answer::kTaken : refusal; });
    }
  }
}

Result<void> Supervision::give_device(int device) {
  if (supervisor::send_word(link_.get(), Word::kDevice, device)) return {};
  return fail(ErrorCode::kUnavailable, "the supervisor is gone");
}

void Supervision::keep_lock(int lock) {
  Fd copy(::fcntl(lock, F_DUPFD_CLOEXEC, 0));
  if (!copy || !supervisor::send_word(link_.get(), Word::kLock, copy.get())) {
    log::warning("mount.lock_not_kept", {{"why", "the supervisor is gone, or there are no descriptors"}});
  }
  kept_.lock = std::move(copy);
}

std::function<void()> Supervision::teller_of(const char* companion, Word word) const {
  const auto link = std::make_shared<const Fd>(::fcntl(link_.get(), F_DUPFD_CLOEXEC, 0));
  return [companion, link, word] {
    log::write_limited(log::Level::kError, "mount.companion_replaced",
                       {{"name", companion}, {"why", "it takes no questions"}});
    (void)supervisor::send_word(link->get(), word);
  };
}

std::function<void()> Supervision::examiner_silent() const { return teller_of("examiner", Word::kExaminerSilent); }
std::function<void()> Supervision::mounter_silent() const { return teller_of("mounter", Word::kMounterSilent); }

void Supervision::keep_control(int listener) {
  if (!supervisor::send_word(link_.get(), Word::kControl, listener)) {
    log::warning("mount.control_not_kept", {{"why", "the supervisor is gone"}});
  }
}

void Supervision::give_guests(const Result<Fd>& listener) {
  if (!listener) {
    log::error("mount.control_failed", {{"socket", "for other users"}, {"why", listener.error().what()}});
  } else if (!supervisor::send_word(link_.get(), Word::kGuests, listener->get())) {
    log::warning("mount.control_not_kept", {{"why", "the supervisor is gone"}});
  }
}

void Supervision::free_lock() {
  if (kept_.lock) (void)::flock(kept_.lock.get(), LOCK_UN);  // it is freed with its last descriptor anyway
}

void Supervision::left() { (void)supervisor::send_word(link_.get(), Word::kLeft); }

void Supervision::serving() { region_.page().serving.store(monotonic_now()); }

Result<void> Supervision::ask_upgrade(const std::string& name, Fd program) {
  answer_.with([](Answer& answer) { answer = Answer::kNone; });
  if (alone_ || !supervisor::send_word(link_.get(), Word::kUpgrade, program.get())) {
    return fail(ErrorCode::kUnavailable, "the mount has no supervisor any more: unmount it and mount again");
  }
  const Answer answer = answer_.wait_until(
      Deadline::after(kAnswerPatience).at(), [](Answer now) { return now != Answer::kNone; },
      [](Answer now) { return now; });
  if (answer == Answer::kTaken) return {};
  if (answer == Answer::kProgramRefused) {
    return fail(ErrorCode::kInvalid,
                name +
                    " could be another user's, and what serves next starts processes with root's rights: "
                    "give it a name that begins with inductorfs, and it and each directory "
                    "above it to root, closed to others' writing (chown root, chmod go-w), "
                    "or name another --program");
  }
  return fail(ErrorCode::kBusy, "the mount is already being stopped or upgraded: see inductorfs status");
}

std::vector<StuckThread> Supervision::stuck_threads() const {
  return stuck_.with([](const auto& stuck) { return stuck; });
}

void Supervision::ending(GiveUp give_up) {
  give_up_.with([&](GiveUp& now) { now = std::move(give_up); });
}

SupervisionNews Supervision::news() const {
  const takeover::Page& page = region_.page();
  SupervisionNews news;
  news.supervisor = alone_ ? 0 : page.supervisor.load();
  news.restarts = page.restarts.load();
  news.upgrades = page.upgrades.load();
  news.upgrades_failed = page.upgrade_failed.load();
  news.upgrades_taken_back = page.upgrade_taken_back.load();
  news.safe_mode = page.safe_mode.load() != 0;
  news.slots = region_.threads() - region_.spares();
  news.stuck = stuck_threads();
  news.log_full = takeover::NodeLog(region_).full();
  const int64_t crash = page.last_restart.load();
  if (news.restarts == 0 || crash == 0) return news;
  news.last_end = describe_end(page.last_status.load(), page.last_was_hung.load() != 0);
  const auto ago = std::chrono::nanoseconds(monotonic_now() - crash);
  news.last_crash = std::time(nullptr) - std::chrono::duration_cast<std::chrono::seconds>(ago).count();
  return news;
}

}  // namespace inductorfs::mount
