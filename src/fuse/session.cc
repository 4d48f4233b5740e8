// SPDX-License-Identifier: Apache-2.0
#define FUSE_USE_VERSION 314
#include "inductorfs/fuse/session.h"

#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "channel.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/thread.h"
#include "serve.h"
#include "wire.h"

namespace inductorfs::fuse {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr unsigned kMaxWrite = 1U << 20;
/// Readahead and asynchronous direct I/O that may be on their way at once; the kernel's default is 12.
constexpr unsigned kMaxBackground = 64;

[[gnu::format(printf, 2, 0)]] void libfuse_log(fuse_log_level level, const char* format, va_list arguments) {
  char line[512];
  (void)std::vsnprintf(line, sizeof(line), format, arguments);  // a long line is cut
  const bool bad = level <= FUSE_LOG_ERR;
  log::write_limited(bad ? log::Level::kError : log::Level::kDebug, "fuse.library", {{"text", line}});
}

void init(void*, fuse_conn_info* connection) noexcept {
  // Features are decided in wire.cc. What libfuse needs to know itself are the sizes, for its buffers.
  connection->max_write = kMaxWrite;
  connection->max_background = kMaxBackground;
  connection->congestion_threshold = kMaxBackground * 3 / 4;
}

ssize_t read_device(int fd, void* out, size_t size, void*) noexcept {
  const ssize_t got = ::read(fd, out, size);
  // A socket that plays the kernel ends with EOF; FUSE_ABORT_ERROR would say ECONNABORTED.
  if (got == 0 || (got < 0 && errno == ECONNABORTED)) {
    errno = ENODEV;
    return -1;
  }
  return got;
}

ssize_t write_device(int fd, iovec* parts, int count, void* userdata) noexcept {
  auto& channel = *static_cast<Channel*>(userdata);
  const ReplyFacts facts = reply_facts(parts, count);
  ssize_t written = 0;
  if (const uint64_t init_unique = channel.init_unique; init_unique != 0 && facts.unique == init_unique) {
    channel.init_unique = 0;
    const std::string message = facts.error == 0 ? patched_init_reply(parts, count, channel.offered) : std::string();
    written = message.empty() ? ::writev(fd, parts, count) : ::write(fd, message.data(), message.size());
  } else {
    written = ::writev(fd, parts, count);
  }
  if (written >= 0) return written;
  if (errno != ENOENT && errno != ENODEV && errno != EPIPE) {
    log::write_limited(log::Level::kError, "fuse.write",
                       {{"error", error_from_errno(errno, "write /dev/fuse").what()}});
  }
  if (facts.unique != 0) channel.lost_replies.add();
  errno = ENOENT;  // the one error that libfuse does not print: the request, or the name, is gone
  return -1;
}

fuse_lowlevel_ops make_operations() noexcept {
  fuse_lowlevel_ops table{};
  table.init = init;
  add_name_operations(table);
  add_attribute_operations(table);
  add_data_operations(table);
  return table;
}

/// When a thread that finds no request keeps asking instead of sleeping. One thread at a time, only while requests come
/// closely, and not while others want the processor: a wake-up costs the caller more than the request itself. Safe for
/// concurrent use.
class Spinner {
 public:
  explicit Spinner(std::chrono::microseconds span) : span_(span) {}

  void note_request() noexcept {
    const int64_t now = SteadyClock::now().time_since_epoch().count();
    gap_.store(now - last_.exchange(now, std::memory_order_relaxed), std::memory_order_relaxed);
  }
  /// Asks again by `try_once` (true: no more asking) for the span. False: now sleep.
  template <typename TryOnce>
  bool spin(TryOnce&& try_once) noexcept {
    const auto span = std::chrono::duration_cast<SteadyClock::duration>(span_);
    if (span.count() == 0 || gap_.load(std::memory_order_relaxed) > kCloseFactor * span.count()) return false;
    if (SteadyClock::now().time_since_epoch().count() < rest_until_.load(std::memory_order_relaxed)) return false;
    if (busy_.exchange(true, std::memory_order_acquire)) return false;
    const auto until = SteadyClock::now() + span;
    bool ended = false;
    for (auto now = SteadyClock::now(); !ended && now < until;) {
      // Our answer woke the caller, perhaps on this very processor: without this it waits until we sleep (measured on
      // a busy host: 54 us a request with a span of 50, instead of 4).
      (void)sched_yield();
      const auto back = SteadyClock::now();
      if (back - now > kUncontendedYield) {
        // Somebody computes here. A compile that uses every processor gets them, and no thread of ours turns on one.
        rest_until_.store((back + kRest).time_since_epoch().count(), std::memory_order_relaxed);
        ended = try_once();
        break;
      }
      ended = try_once();
      now = SteadyClock::now();
    }
    busy_.store(false, std::memory_order_release);
    return ended;
  }

 private:
  static constexpr int64_t kCloseFactor = 4;
  /// A yield to nobody takes less than a microsecond.
  static constexpr std::chrono::microseconds kUncontendedYield{20};
  static constexpr std::chrono::milliseconds kRest{5};
  const std::chrono::microseconds span_;
  std::atomic<int64_t> last_{0};
  std::atomic<int64_t> gap_{INT64_MAX};
  std::atomic<int64_t> rest_until_{INT64_MIN};
  std::atomic<bool> busy_{false};
};

/// libfuse's buffer for one message, allocated by it at the first one. Confined to one fuse thread.
class MessageBuffer {
 public:
  MessageBuffer() = default;
  MessageBuffer(const MessageBuffer&) = delete;
  MessageBuffer& operator=(const MessageBuffer&) = delete;
  ~MessageBuffer() { std::free(buffer_.mem); }
  [[nodiscard]] fuse_buf& get() { return buffer_; }
  [[nodiscard]] std::string_view message() const { return {static_cast<const char*>(buffer_.mem), buffer_.size}; }

 private:
  fuse_buf buffer_{};
};

/// Sleeps until the device has a request, or the session is to stop. Confined to one fuse thread.
class Sleeper {
 public:
  /// EPOLLEXCLUSIVE: a request wakes one of the threads, as with a blocking read, not all of them.
  Sleeper(int device, int stop) : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    add(device, EPOLLIN | EPOLLEXCLUSIVE);
    add(stop, EPOLLIN);
  }
  void sleep() const {
    epoll_event event{};
    (void)epoll_wait(epoll_.get(), &event, 1, -1);  // whatever woke us: the caller looks
  }

 private:
  void add(int fd, uint32_t events) {
    epoll_event event{};
    event.events = events;
    INDUCTORFS_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0);
  }
  Fd epoll_;
};

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

 private:
  void run();
  /// True: a message lies in the buffer. False: the session has ended, or is to stop.
  bool receive(MessageBuffer& buffer, const Sleeper& sleeper);
  void process(MessageBuffer& buffer);
  void invalidate(vfs::NodeId node);

  const std::shared_ptr<Channel> channel_;
  const Fd stop_event_;
  const SessionOptions options_;
  Spinner spinner_;
  std::atomic<bool> stopping_{false};
  std::atomic<size_t> running_{0};
  std::function<void()> on_end_;
  Guarded<std::vector<std::jthread>> threads_;
};

void KernelSession::start(std::function<void()> on_end) {
  INDUCTORFS_CHECK(options_.threads > 0);
  on_end_ = std::move(on_end);
  running_ = options_.threads;
  threads_.with([&](std::vector<std::jthread>& threads) {
    for (size_t i = 0; i < options_.threads; ++i) {
      threads.push_back(start_thread("fuse-" + std::to_string(i), [this](const std::stop_token&) { run(); }));
    }
  });
}

void KernelSession::stop() {
  stopping_ = true;
  const uint64_t one = 1;
  // Stays readable: every thread, also one that only goes to sleep now, sees it.
  INDUCTORFS_CHECK(::write(stop_event_.get(), &one, sizeof(one)) == sizeof(one));
  auto finished = threads_.with([](std::vector<std::jthread>& threads) { return std::move(threads); });
  for (const std::jthread& thread : finished) INDUCTORFS_CHECK(thread.get_id() != std::this_thread::get_id());
  finished.clear();
}

void KernelSession::run() {
  {
    MessageBuffer buffer;
    const Sleeper sleeper(fuse_session_fd(channel_->session.get()), stop_event_.get());
    while (receive(buffer, sleeper)) process(buffer);
  }
  // The last one to leave tells, so that every request has been served by then.
  if (running_.fetch_sub(1) == 1 && !stopping_ && on_end_) on_end_();
}

bool KernelSession::receive(MessageBuffer& buffer, const Sleeper& sleeper) {
  fuse_session* session = channel_->session.get();
  int got = 0;
  const auto try_once = [&] {
    got = fuse_session_receive_buf(session, &buffer.get());
    return got != -EAGAIN && got != -EINTR;
  };
  while (!stopping_) {
    if (try_once() || spinner_.spin(try_once)) break;
    sleeper.sleep();
  }
  if (got < 0 && !stopping_) {
    log::error("fuse.read", {{"error", error_from_errno(-got, "read /dev/fuse").to_string()}});
  }
  return got > 0;
}

void KernelSession::process(MessageBuffer& buffer) {
  spinner_.note_request();
  const RequestFacts facts = request_facts(buffer.message());
  if (facts.init) {
    channel_->offered = facts.offered;
    channel_->init_unique = facts.unique;
  }
  kill_privileges_of_this_request() = facts.kill_privileges;
  fuse_session_process_buf(channel_->session.get(), &buffer.get());
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

Result<std::unique_ptr<Session>> Session::open(Fd device, const SessionOptions& options, vfs::FileSystem& file_system,
                                               Counters& counters) {
  const int flags = fcntl(device.get(), F_GETFL);
  if (flags < 0 || fcntl(device.get(), F_SETFL, flags | O_NONBLOCK) < 0) return fail_errno("fcntl", "/dev/fuse");
  Fd stop_event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_event) return fail_errno("eventfd");

  fuse_set_log_func(libfuse_log);
  auto channel = std::make_shared<Channel>(file_system, counters);
  char program[] = "inductorfs";
  char* arguments[] = {program, nullptr};
  fuse_args args = FUSE_ARGS_INIT(1, arguments);
  const fuse_lowlevel_ops operations = make_operations();
  channel->session.reset(fuse_session_new(&args, &operations, sizeof(operations), channel.get()));
  fuse_opt_free_args(&args);
  if (!channel->session) return fail(ErrorCode::kInternal, "libfuse refused to make a session");

  fuse_custom_io io{};
  io.read = read_device;
  io.writev = write_device;
  if (fuse_session_custom_io(channel->session.get(), &io, device.get()) != 0) {
    return fail(ErrorCode::kInternal, "libfuse refused the /dev/fuse descriptor");
  }
  (void)device.release();  // libfuse closes it with the session
  return std::make_unique<KernelSession>(std::move(channel), std::move(stop_event), options);
}

}  // namespace inductorfs::fuse
