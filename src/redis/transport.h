// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "inductorfs/base/budget.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/redis/url.h"

namespace inductorfs::redis {

/// Carries bytes to and from a server; never blocks, never raises SIGPIPE. Needs external synchronisation.
class Transport {
 public:
  virtual ~Transport() = default;
  /// Returns 0 when nothing is there now. kUnavailable when the other side has closed, or the connection is lost.
  [[nodiscard]] virtual Result<size_t> read(char* out, size_t size) = 0;
  /// Returns 0 when there is no room now; the next call must then begin with the same bytes (OpenSSL requires it).
  [[nodiscard]] virtual Result<size_t> write(std::string_view bytes) = 0;
  /// Returns the poll(2) events that the last read waits for.
  [[nodiscard]] virtual short read_events() const = 0;
  [[nodiscard]] virtual int fd() const = 0;
  /// Says whether an unused connection is in order: it is not closed, and has no byte that was not asked for.
  [[nodiscard]] virtual bool idle_ok() const = 0;
};

/// How long a caller waits, and for how long the answer is still of use to it. Immutable value.
struct Wait {
  Deadline deadline;
  const std::function<bool()>* cancelled = nullptr;
  Budget* budget = nullptr;

  /// `cancelled` is asked at least this often.
  static constexpr Milliseconds kCancelInterval{100};
  [[nodiscard]] bool is_cancelled() const { return cancelled != nullptr && *cancelled && (*cancelled)(); }
  [[nodiscard]] Deadline end() const {
    return budget != nullptr ? Deadline(std::min(deadline.at(), budget->end().at())) : deadline;
  }
  /// Returns the latest time to ask `cancelled` again.
  [[nodiscard]] Deadline slice() const { return cancelled != nullptr ? end().earlier(kCancelInterval) : end(); }
  [[nodiscard]] Wait earlier(Milliseconds span) const { return {deadline.earlier(span), cancelled, budget}; }
};

/// Waits for poll(2) `events` on `fd`; returns false when the deadline came first. kBusy when it was cancelled.
[[nodiscard]] Result<bool> wait_ready(int fd, short events, const Wait& wait);

/// The same for several descriptors, until one of them is ready.
[[nodiscard]] Result<bool> wait_any(std::span<pollfd> entries, const Wait& wait);

/// Connects a socket (resolves the name, tries all addresses): non-blocking, close-on-exec.
[[nodiscard]] Result<Fd> connect_socket(const Endpoint& endpoint, const Wait& wait);

[[nodiscard]] std::unique_ptr<Transport> make_plain_transport(Fd socket);

/// Starts TLS 1.2 or later, checks the server's name or address, and shakes hands within the deadline. kNotPermitted
/// when the certificate is not valid for that name, kInvalid when one of the endpoint's files is not valid. The
/// certificates are read at the first call and when their files have changed.
[[nodiscard]] Result<std::unique_ptr<Transport>> make_tls_transport(Fd socket, const Endpoint& endpoint,
                                                                    const Wait& wait);
/// Returns how often certificates have been read.
[[nodiscard]] uint64_t certificate_loads();

/// recv(2) and send(2) with the contracts of Transport.
[[nodiscard]] Result<size_t> receive_now(int fd, char* out, size_t size);
[[nodiscard]] Result<size_t> send_now(int fd, std::string_view bytes);
enum class Idle { kQuiet, kBytes, kClosed };
[[nodiscard]] Idle idle_state(int fd);

}  // namespace inductorfs::redis
