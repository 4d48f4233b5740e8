// SPDX-License-Identifier: Apache-2.0
#define FUSE_USE_VERSION 314
#include "channel.h"

#include <fuse_lowlevel.h>

#include <string>
#include <utility>

#include "inductorfs/base/log.h"

namespace inductorfs::fuse {
namespace {

/// A local file system would not take so long; each such request is counted and some are named in the log.
constexpr uint64_t kSlowNanoseconds = 1'000'000'000;

Counter& counter_of(Counters& counters, std::string_view name) {
  return counters.get(std::string("fuse.") + std::string(name));
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
