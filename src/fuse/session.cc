// SPDX-License-Identifier: Apache-2.0
#define FUSE_USE_VERSION 314
#include "inductorfs/fuse/session.h"

#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "channel.h"
#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/thread.h"
#include "spare_threads.h"
#include "waiting.h"
#include "wire.h"

namespace inductorfs::fuse {
namespace {

/// A request that has cost so many workers their lives is answered with EIO.
constexpr uint32_t kMostDeaths = 2;
/// Between two lines about users at the limit of requests.
constexpr int kOverLimitSeconds = 60;
/// The kernel copies a request page by page, and a copy fails between two pages only (fs/fuse/dev.c: fuse_copy_fill).
constexpr size_t kPageSize = 4096;

/// Safe for concurrent use.
class KernelSession final : public Session {
 public:
  KernelSession(std::shared_ptr<Channel> channel, Fd stop_event, const SessionOptions& options)
      : channel_(std::move(channel)), stop_event_(std::move(stop_event)), options_(options), spinner_(options.spin) {}
  ~KernelSession() override { KernelSession::stop(); }

  void start(std::function<void()> on_end) override;
  void stop() override;
  void forget_name(vfs::NodeId parent, const std::string& name) override;
  void forget_content(vfs::NodeId node) override;
  std::map<uint32_t, size_t> requests_by_user() const override {
    return channel_->slots.served_by_user(SpareThreads::kLong);
  }

 private:
  void run(takeover::Slot& slot, bool spare);
  void run_spare(takeover::Slot& slot);
  /// True: a request lies in the slot. False: the session has ended, or is to stop; or the thread is spare and done.
  bool receive(takeover::Slot& slot, const Sleeper& sleeper, bool spare);
  [[nodiscard]] bool is_refused(takeover::Slot& slot);
  void process(takeover::Slot& slot, bool resumed);
  void process_message(std::string_view message);
  // What an earlier worker left.
  void resume();
  void begin_anew();
  void finish(takeover::Slot& slot);
  void finish_own(takeover::Slot& slot);
  void finish_last();
  [[nodiscard]] bool tell_kernel(std::string_view message, const char* what);
  [[nodiscard]] bool is_whole(const takeover::Slot& slot, std::string_view message);
  [[nodiscard]] bool is_given_up(takeover::Slot& slot, std::string_view message);
  [[nodiscard]] bool is_of_thread(const takeover::Slot& slot) const;
  void invalidate(vfs::NodeId node);

  const std::shared_ptr<Channel> channel_;
  const Fd stop_event_;
  const SessionOptions options_;
  Spinner spinner_;
  std::atomic<bool> stopping_{false};
  std::atomic<size_t> running_{0};
  std::atomic<size_t> left_over_{0};  ///< requests of an earlier worker that threads have not finished yet
  std::function<void()> on_end_;
  Guarded<std::vector<std::jthread>> threads_;
  SpareThreads spares_{channel_->slots, [this](takeover::Slot& slot) { run_spare(slot); }};
};

void KernelSession::start(std::function<void()> on_end) {
  INDUCTORFS_CHECK(options_.threads > 0);
  on_end_ = std::move(on_end);
  const size_t count = spares_.regular();
  running_ = count;
  if (options_.resume) resume();
  if (left_over_ == 0 && options_.requests_finished) options_.requests_finished();
  threads_.with([&](std::vector<std::jthread>& threads) {
    for (size_t i = 0; i < count; ++i) {
      takeover::Slot& slot = channel_->slots.of_thread(i);
      threads.push_back(
          start_thread("fuse-" + std::to_string(i), [this, &slot](const std::stop_token&) { run(slot, false); }));
    }
  });
  for (takeover::Slot* slot : spares_.start(options_.resume)) finish_own(*slot);
}

void KernelSession::stop() {
  stopping_ = true;
  channel_->stopping = true;
  const uint64_t one = 1;
  // Stays readable: every thread, also one that only goes to sleep now, sees it.
  INDUCTORFS_CHECK(::write(stop_event_.get(), &one, sizeof(one)) == sizeof(one));
  auto finished = threads_.with([](std::vector<std::jthread>& threads) { return std::move(threads); });
  for (const std::jthread& thread : finished) INDUCTORFS_CHECK(thread.get_id() != std::this_thread::get_id());
  spares_.stop();
  finished.clear();
}

void KernelSession::run_spare(takeover::Slot& slot) {
  // After the last of the others has told of the end, nobody else does.
  for (size_t running = running_.load(); !running_.compare_exchange_weak(running, running + 1);) {
    if (running == 0) return;
  }
  run(slot, true);
}

void KernelSession::run(takeover::Slot& slot, bool spare) {
  {
    if (options_.resume) finish_own(slot);
    const Sleeper sleeper(fuse_session_fd(channel_->session.get()), stop_event_.get());
    spares_.note_reading();
    while (receive(slot, sleeper, spare)) {
      spinner_.note_request();
      spares_.note_serving();
      if (!is_refused(slot)) process(slot, false);
      spares_.note_reading();
    }
  }
  // The last one to leave tells, so that every request has been served by then.
  if (running_.fetch_sub(1) == 1 && !stopping_ && on_end_) on_end_();
}

bool KernelSession::receive(takeover::Slot& slot, const Sleeper& sleeper, bool spare) {
  const int device = fuse_session_fd(channel_->session.get());
  ssize_t got = 0;
  int error = 0;
  const auto try_once = [&] {
    got = ::read(device, slot.request(), slot.request_size);
    error = got < 0 ? errno : 0;
    if (got < 0) slot.free();  // a copy that failed half-way is no request
    // ENOENT: the request was interrupted while it was copied.
    return error != EAGAIN && error != EINTR && error != ENOENT;
  };
  if (spare && spares_.may_end(spares_.regular())) return false;
  for (bool rested = false; !stopping_;) {
    if (try_once() || spinner_.spin(try_once)) break;
    if (rested && spares_.may_end(1)) return false;
    rested = !sleeper.sleep(spare ? static_cast<int>(SpareThreads::kRest.count()) : -1);
  }
  // A socket that plays the kernel ends with EOF; FUSE_ABORT_ERROR would say ECONNABORTED.
  if (got < 0 && !stopping_ && error != ENODEV && error != ECONNABORTED) {
    log::error("fuse.read", {{"error", error_from_errno(error, "read /dev/fuse").to_string()}});
  }
  if (got <= 0) spares_.note_ended();
  return got > 0;
}

/// Whether its user has as many requests under way that take long as one may have, and has been told so. Costs others
/// nothing: fewer threads are busy as a rule.
bool KernelSession::is_refused(takeover::Slot& slot) {
  const size_t limit = options_.user_requests;
  if (limit == 0 || spares_.serving() <= limit) return false;
  const std::string_view message(slot.request(), slot.length());
  const std::optional<uint32_t> user = refusable_user_of(message);
  if (!user || *user == 0 || requests_by_user()[*user] < limit) return false;
  channel_->over_limit.add();
  log::write_limited(log::Level::kWarning, "fuse.over_limit",
                     {{"user", *user}, {"limit", static_cast<uint64_t>(limit)}}, kOverLimitSeconds);
  (void)tell_kernel(error_message(request_facts(message).unique, EDQUOT), "user limit");  // it has gone: as good
  slot.free();
  return true;
}

void KernelSession::process(takeover::Slot& slot, bool resumed) {
  {
    const takeover::Serving serving(slot, resumed);
    process_message({slot.request(), slot.length()});
  }
  slot.free();
}

void KernelSession::process_message(std::string_view message) {
  const RequestFacts facts = request_facts(message);
  if (facts.init) {
    channel_->offered = facts.offered;
    channel_->offers_resend = facts.offers_resend;
    channel_->init_unique = facts.unique;
  }
  if (facts.resent) channel_->resent.add();
  kill_privileges_of_this_request() = facts.kill_privileges;
  fuse_buf buffer{};
  buffer.size = message.size();
  buffer.mem = const_cast<char*>(message.data());
  fuse_session_process_buf(channel_->session.get(), &buffer);
}

void KernelSession::resume() {
  begin_anew();
  fail_point("takeover.session_begun");
  const auto left = channel_->slots.left_over();
  channel_->resumed.add(left.size());
  // The worker that served them may have died of one of them. Who was killed from outside says nothing.
  const int status = channel_->page.last_status;
  const bool by_itself = channel_->page.last_was_hung != 0 || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL;
  for (takeover::Slot* slot : left) {
    if (by_itself && slot->was_served()) slot->deaths.fetch_add(1);
  }
  // An effect that was begun may be half there: it is finished before anybody can see it. What was only taken may take
  // long, so it is finished while others are served, by the thread whose slot it lies in.
  for (takeover::Slot* slot : left) {
    if (is_of_thread(*slot) && slot->phase.load() == takeover::Slot::kTaken) {
      ++left_over_;
    } else {
      finish(*slot);
    }
  }
  fail_point("takeover.slots_finished");
  if (!options_.resend || !channel_->offers_resend || fail_point_error("fuse.resend")) return;
  // The kernel would send again what a thread is about to finish, and it would be done twice.
  if (left_over_ > 0) return;
  const std::string message = resend_message();
  const int device = fuse_session_fd(channel_->session.get());
  if (::write(device, message.data(), message.size()) < 0) {
    log::warning("fuse.resend", {{"error", error_from_errno(errno, "write /dev/fuse").to_string()}});
  }
  fail_point("takeover.resent");
}

/// The session begins with the kernel's INIT; the kernel said it once, to the first worker.
void KernelSession::begin_anew() {
  const size_t size = channel_->page.init_size;
  if (size == 0) return;  // the first worker was killed before it had answered
  std::string init(channel_->page.init, size);
  channel_->init_answered = true;
  process_message(init);
}

bool KernelSession::is_of_thread(const takeover::Slot& slot) const {
  for (size_t i = 0; i < channel_->slots.threads(); ++i) {
    if (&channel_->slots.of_thread(i) == &slot) return true;
  }
  return false;
}

/// What lies in a thread's slot from an earlier worker, before anything new is read into it.
void KernelSession::finish_own(takeover::Slot& slot) {
  if (slot.length() == 0) return;
  finish(slot);
  finish_last();
}

void KernelSession::finish_last() {
  if (left_over_.fetch_sub(1) == 1 && options_.requests_finished) options_.requests_finished();
}

/// False: the kernel does not wait for it.
bool KernelSession::tell_kernel(std::string_view message, const char* what) {
  if (::write(fuse_session_fd(channel_->session.get()), message.data(), message.size()) >= 0) return true;
  if (errno == ENOENT) return false;
  log::warning("fuse.not_told", {{"what", what}, {"error", error_from_errno(errno, "write /dev/fuse").to_string()}});
  return true;
}

/// Whether the kernel had copied all of a request. It does not if the reader is killed while one of the pages is not in
/// memory: it then ends the request with EIO, and an earlier request's bytes lie behind the new header.
bool KernelSession::is_whole(const takeover::Slot& slot, std::string_view message) {
  if (slot.was_served()) return true;
  // Without answer nobody can be asked. References that are not given back cost memory only.
  if (!wants_answer(message)) return message.size() <= kPageSize;
  return tell_kernel(question_message(request_facts(message).unique), "question");
}

/// After two workers the next one would be the third to crash or hang over it, and nobody would be served.
bool KernelSession::is_given_up(takeover::Slot& slot, std::string_view message) {
  if (slot.deaths.load() < kMostDeaths) return false;
  log::error("fuse.given_up", {{"operation", opcode_of(message)}, {"workers", slot.deaths.load()}});
  if (wants_answer(message)) {
    (void)tell_kernel(error_message(request_facts(message).unique, EIO), "error");  // it has gone: as good
  }
  channel_->given_up.add();
  return true;
}

void KernelSession::finish(takeover::Slot& slot) {
  if (slot.phase.load() != takeover::Slot::kAnswered) {
    const std::string_view message(slot.request(), std::min<size_t>(slot.length(), slot.request_size));
    if (!is_whole(slot, message)) {
      channel_->torn.add();
      return slot.free();
    }
    if (is_given_up(slot, message)) return slot.free();
    process(slot, true);
    return fail_point("takeover.request_finished");
  }
  // It may have been given: the kernel then knows no such request any more. References that it brought are counted.
  (void)tell_kernel({slot.reply, std::min<size_t>(slot.reply_size, sizeof(slot.reply))}, "reply");
  fail_point("takeover.answer_repeated");
  slot.free();
}

void KernelSession::invalidate(vfs::NodeId node) {
  const int status = fuse_lowlevel_notify_inval_inode(channel_->session.get(), static_cast<fuse_ino_t>(node), 0, 0);
  if (status != 0) channel_->notify_unknown.add();
}

void KernelSession::forget_name(vfs::NodeId parent, const std::string& name) {
  channel_->notified_names.add();
  const int status = fuse_lowlevel_notify_inval_entry(channel_->session.get(), static_cast<fuse_ino_t>(parent),
                                                      name.c_str(), name.size());
  if (status == 0) return;
  // The kernel did not know the name, but its listing of the directory may lack it.
  invalidate(parent);
}

void KernelSession::forget_content(vfs::NodeId node) {
  channel_->notified_contents.add();
  invalidate(node);
}

}  // namespace

Result<std::unique_ptr<Session>> Session::open(Fd device, const SessionOptions& options,
                                               const vfs::Operations& operations, Counters& counters) {
  const int flags = fcntl(device.get(), F_GETFL);
  if (flags < 0 || fcntl(device.get(), F_SETFL, flags | O_NONBLOCK) < 0) return fail_errno("fcntl", "/dev/fuse");
  Fd stop_event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_event) return fail_errno("eventfd");

  std::optional<takeover::Region> own;
  if (options.region == nullptr) {
    INDUCTORFS_TRY_ASSIGN(auto made, takeover::Region::create(options.threads, takeover::Region::kSpares));
    own.emplace(std::move(made));
  }
  auto channel = std::make_shared<Channel>(operations, counters, options.region, std::move(own));
  channel->notices = options.notices;
  channel->renew_notices = options.renew_notices;
  INDUCTORFS_TRY(channel->open_session(std::move(device)));
  return std::make_unique<KernelSession>(std::move(channel), std::move(stop_event), options);
}

}  // namespace inductorfs::fuse
