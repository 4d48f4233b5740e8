// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "inductorfs/base/counters.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/takeover/request_slots.h"
#include "inductorfs/vfs/operations.h"
#include "operation.h"

struct fuse_req;  // libfuse's
struct fuse_session;

namespace inductorfs::fuse {

struct EndSession {
  void operator()(fuse_session* session) const noexcept;
};

/// The device of one session, with all that is read from it and written to it, and what its requests share. A lookup
/// that is still pending holds a reference, so that libfuse's session outlives its answer. A request takes no lock of
/// ours here. Safe for concurrent use.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  /// `own` is set when the session owns the region itself.
  Channel(const vfs::Operations& operations, Counters& counters, const takeover::Region* region,
          std::optional<takeover::Region> own);

  /// Opens libfuse's session on the device, which belongs to the channel from then on.
  [[nodiscard]] Result<void> open_session(Fd device);

  [[nodiscard]] const vfs::Operations& operations() const { return operations_; }

  /// Counts a request of the kernel. FORGET, for which nobody waits, is not in the total.
  void count(Operation operation) noexcept;
  void count_time(Operation operation, uint64_t nanoseconds) noexcept;
  /// Logs a failed operation; the only place that does. Errors that a job may meet every day (not found, exists) are
  /// not logged.
  void log_failure(Operation operation, const Error& error) const;
  void log_exception(Operation operation, const char* what) const;

  Counter& notified_names;
  Counter& notified_contents;
  Counter& notify_unknown;  ///< notices for a name or inode that the kernel did not know, which is normal
  Counter& resumed;         ///< requests that an earlier worker left
  Counter& resent;          ///< requests that the kernel sent again when it was asked to, after those
  Counter& torn;            ///< requests that an earlier worker had not read as a whole; the kernel has ended them
  Counter& given_up;        ///< requests over which two workers crashed or hung; answered with EIO
  Counter& over_limit;      ///< requests of users who had too many; answered with EDQUOT
  Counter& lost_replies;  ///< requests that were gone when their answer came: the caller was killed, or the mount ended

  // Set from the INIT request, before any other request is read.
  std::atomic<uint64_t> init_unique{0};
  std::atomic<uint32_t> offered{0};
  std::atomic<bool> offers_resend{false};
  /// An earlier worker answered the INIT that is being served, so that this answer must not go to the kernel.
  std::atomic<bool> init_answered{false};

  int notices = -1;                     ///< SessionOptions::notices
  std::function<bool()> renew_notices;  ///< SessionOptions::renew_notices
  std::atomic<bool> stopping{false};

 private:
  std::optional<takeover::Region> own_region_;

 public:
  takeover::Page& page;
  takeover::RequestSlots slots;

  /// Of open_session(). Owns the device, and closes it when it is destroyed.
  std::unique_ptr<fuse_session, EndSession> session;

 private:
  const vfs::Operations operations_;
  Counter& requests_;
  Counter& nanoseconds_;
  Counter& slow_;
  Histogram& request_times_;
  std::array<Counter*, kOperationNames.size()> by_operation_{};
};

/// Returns the channel of a request, and the process that made the request.
[[nodiscard]] Channel& channel_of(fuse_req* request) noexcept;
[[nodiscard]] vfs::Caller caller_of(fuse_req* request) noexcept;
/// True in the thread that serves a request for which the kernel wants set-user-id and set-group-id cleared.
[[nodiscard]] bool& kill_privileges_of_this_request() noexcept;

}  // namespace inductorfs::fuse
