// SPDX-License-Identifier: Apache-2.0
#define FUSE_USE_VERSION 314
#include "channel.h"

#include <fuse_lowlevel.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "inductorfs/base/log.h"
#include "serve.h"
#include "wire.h"

namespace inductorfs::fuse {
namespace {

/// A local file system would not take so long; each such request is counted and some are named in the log.
constexpr uint64_t kSlowNanoseconds = 1'000'000'000;
constexpr unsigned kMaxWrite = 1U << 20;
/// Readahead and asynchronous direct I/O that may be on their way at once; the kernel's default is 12.
constexpr unsigned kMaxBackground = 64;
/// Milliseconds until a notice that finds no room looks whether the session ends.
constexpr int kNoticeStep = 100;

Counter& counter_of(Counters& counters, std::string_view name) {
  return counters.get(std::string("fuse.") + std::string(name));
}

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

/// libfuse wants one; requests are read into their slots without it.
ssize_t read_device(int fd, void* out, size_t size, void*) noexcept { return ::read(fd, out, size); }

ssize_t size_of(const iovec* parts, int count) noexcept {
  ssize_t size = 0;
  for (int i = 0; i < count; ++i) size += static_cast<ssize_t>(parts[i].iov_len);
  return size;
}

/// The answer in the slot of its request, before the kernel has it: a worker that is killed on the way does nothing
/// twice. Answers of other threads are those of lookups, which may be done again.
void keep_reply(uint64_t unique, const iovec* parts, int count) noexcept {
  takeover::Slot* slot = takeover::serving_slot();
  if (slot == nullptr || request_facts({slot->request(), slot->length()}).unique != unique) return;
  char reply[takeover::Slot::kReplyLimit];
  size_t size = 0;
  for (int i = 0; i < count; ++i) {
    if (parts[i].iov_len > sizeof(reply) - size) return;
    std::memcpy(reply + size, parts[i].iov_base, parts[i].iov_len);
    size += parts[i].iov_len;
  }
  slot->keep_reply({reply, size});
}

/// Begins the session of each later worker.
void keep_init(takeover::Page& page) noexcept {
  takeover::Slot* slot = takeover::serving_slot();
  if (slot == nullptr || slot->length() > takeover::Page::kInitLimit) return;
  std::memcpy(page.init, slot->request(), slot->length());
  page.init_size.store(slot->length());
}

/// A notification, by the process that carries them. False: there is none.
bool send_notice(const Channel& channel, iovec* parts, int count) noexcept {
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = static_cast<size_t>(count);
  while (!channel.stopping) {
    if (::sendmsg(channel.notices, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
    if (errno == EPIPE || errno == ECONNRESET || errno == ECONNREFUSED) {
      if (!channel.renew_notices || !channel.renew_notices()) return false;
      continue;
    }
    if (errno != EAGAIN && errno != EINTR) return false;
    pollfd room{channel.notices, POLLOUT, 0};
    (void)::poll(&room, 1, kNoticeStep);  // an interruption is a turn like any other
  }
  return true;  // the kernel is told by the next worker, or forgets all with the mount
}

ssize_t write_device(int fd, iovec* parts, int count, void* userdata) noexcept {
  auto& channel = *static_cast<Channel*>(userdata);
  const ReplyFacts facts = reply_facts(parts, count);
  ssize_t written = 0;
  if (const uint64_t init_unique = channel.init_unique; init_unique != 0 && facts.unique == init_unique) {
    channel.init_unique = 0;
    if (channel.init_answered.exchange(false)) {
      return size_of(parts, count);
    }
    const std::string message = facts.error == 0 ? patched_init_reply(parts, count, channel.offered) : std::string();
    written = message.empty() ? ::writev(fd, parts, count) : ::write(fd, message.data(), message.size());
    if (written >= 0 && facts.error == 0) keep_init(channel.page);
  } else {
    if (facts.unique != 0) keep_reply(facts.unique, parts, count);
    if (facts.unique == 0 && channel.notices >= 0 && send_notice(channel, parts, count)) return size_of(parts, count);
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

}  // namespace

void EndSession::operator()(fuse_session* session) const noexcept { fuse_session_destroy(session); }

Channel::Channel(const vfs::Operations& operations, Counters& counters, const takeover::Region* region,
                 std::optional<takeover::Region> own)
    : notified_names(counter_of(counters, "notify_name")),
      notified_contents(counter_of(counters, "notify_content")),
      notify_unknown(counter_of(counters, "notify_unknown")),
      resumed(counter_of(counters, "resumed")),
      resent(counter_of(counters, "resent")),
      torn(counter_of(counters, "torn")),
      given_up(counter_of(counters, "given_up")),
      over_limit(counter_of(counters, "over_limit")),
      lost_replies(counter_of(counters, "lost_replies")),
      own_region_(std::move(own)),
      page((own_region_ ? *own_region_ : *region).page()),
      slots(own_region_ ? *own_region_ : *region),
      operations_(operations),
      requests_(counter_of(counters, "requests")),
      nanoseconds_(counter_of(counters, "nanoseconds")),
      slow_(counter_of(counters, "slow")),
      request_times_(counters.histogram("fuse.request")) {
  for (size_t i = 0; i < kOperationNames.size(); ++i) by_operation_[i] = &counter_of(counters, kOperationNames[i]);
}

Result<void> Channel::open_session(Fd device) {
  fuse_set_log_func(libfuse_log);
  char program[] = "inductorfs";
  char* arguments[] = {program, nullptr};
  fuse_args args = FUSE_ARGS_INIT(1, arguments);
  const fuse_lowlevel_ops table = make_operations();
  session.reset(fuse_session_new(&args, &table, sizeof(table), this));
  fuse_opt_free_args(&args);
  if (!session) return fail(ErrorCode::kInternal, "libfuse refused to make a session");

  fuse_custom_io io{};
  io.read = read_device;
  io.writev = write_device;
  if (fuse_session_custom_io(session.get(), &io, device.get()) != 0) {
    return fail(ErrorCode::kInternal, "libfuse refused the /dev/fuse descriptor");
  }
  (void)device.release();  // libfuse closes it with the session
  return {};
}

void Channel::count(Operation operation) noexcept {
  by_operation_[static_cast<size_t>(operation)]->add();
  if (operation != Operation::kForget) requests_.add();
}

void Channel::count_time(Operation operation, uint64_t nanoseconds) noexcept {
  nanoseconds_.add(nanoseconds);
  request_times_.observe(nanoseconds);
  if (nanoseconds < kSlowNanoseconds) return;
  slow_.add();
  log::write_limited(log::Level::kWarning, "fuse.slow",
                     {{"operation", name_of(operation)}, {"milliseconds", nanoseconds / 1'000'000}});
}

void Channel::log_failure(Operation operation, const Error& error) const {
  log::Level level = log::Level::kDebug;
  switch (error.code()) {
    case ErrorCode::kNotFound:
    case ErrorCode::kExists:
    case ErrorCode::kNotDirectory:
    case ErrorCode::kIsDirectory:
    case ErrorCode::kNotEmpty:
    case ErrorCode::kInvalid:
    case ErrorCode::kNameTooLong:
    case ErrorCode::kTooLarge:
    case ErrorCode::kOverQuota:
    case ErrorCode::kReadOnly:
    case ErrorCode::kNotPermitted:
    case ErrorCode::kNotSupported:
    case ErrorCode::kCrossDevice:
    case ErrorCode::kNoSuchOffset:
    case ErrorCode::kNoData:
      return;  // what any local file system answers; a log line would cost more than the request
    case ErrorCode::kNoSpace:
    case ErrorCode::kBusy:
    case ErrorCode::kUnavailable:
    case ErrorCode::kTimedOut:
      level = log::Level::kWarning;
      break;
    case ErrorCode::kCorrupt:
    case ErrorCode::kInternal:
      level = log::Level::kError;
      break;
  }
  log::write_limited(level, "fuse.failed", {{"operation", name_of(operation)}, {"error", error.to_string()}});
}

void Channel::log_exception(Operation operation, const char* what) const {
  log::write_limited(log::Level::kError, "fuse.exception", {{"operation", name_of(operation)}, {"error", what}});
}

Channel& channel_of(fuse_req* request) noexcept { return *static_cast<Channel*>(fuse_req_userdata(request)); }

vfs::Caller caller_of(fuse_req* request) noexcept {
  const fuse_ctx* context = fuse_req_ctx(request);
  return {context->uid, context->gid, context->pid};
}

bool& kill_privileges_of_this_request() noexcept {
  thread_local bool kill = false;
  return kill;
}

}  // namespace inductorfs::fuse
