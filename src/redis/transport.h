// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "inductorfs/base/budget.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/redis/url.h"

namespace inductorfs::redis {

/// Bytes to and from a server; never blocks, never raises SIGPIPE. Needs external synchronisation.
class Transport {
 public:
  virtual ~Transport() = default;
  /// 0: nothing there now. kUnavailable: the other side has closed, or the connection is lost.
  [[nodiscard]] virtual Result<size_t> read(char* out, size_t size) = 0;
  /// 0: no room now. After that, the next call must begin with the same bytes (OpenSSL wants it).
  [[nodiscard]] virtual Result<size_t> write(std::string_view bytes) = 0;
  /// The poll(2) events that the last read waits for.
  [[nodiscard]] virtual short read_events() const = 0;
  [[nodiscard]] virtual int fd() const = 0;
  /// Nothing is wrong with a connection that nobody uses: not closed, no byte that nobody asked for.
  [[nodiscard]] virtual bool idle_ok() const = 0;
};

/// How long somebody waits, and for how long it is still of use to him. Immutable value.
struct Wait {
  Deadline deadline;
  const std::function<bool()>* cancelled = nullptr;
  Budget* budget = nullptr;

  /// Asked at least this often.
  static constexpr Milliseconds kCancelInterval{100};
  [[nodiscard]] bool is_cancelled() const { return cancelled != nullptr && *cancelled && (*cancelled)(); }
  [[nodiscard]] Deadline end() const {
    return budget != nullptr ? Deadline(std::min(deadline.at(), budget->end().at())) : deadline;
  }
  /// When to look again at the latest.
  [[nodiscard]] Deadline slice() const { return cancelled != nullptr ? end().earlier(kCancelInterval) : end(); }
  [[nodiscard]] Wait earlier(Milliseconds span) const { return {deadline.earlier(span), cancelled, budget}; }
};

/// Waits for poll(2) `events` on `fd`; false when the deadline came first. kBusy: cancelled.
[[nodiscard]] Result<bool> wait_ready(int fd, short events, const Wait& wait);

/// A connected socket (resolves the name, tries all addresses): non-blocking, close-on-exec.
[[nodiscard]] Result<Fd> connect_socket(const Endpoint& endpoint, const Wait& wait);

[[nodiscard]] std::unique_ptr<Transport> make_plain_transport(Fd socket);

/// TLS 1.2 or later with the server's name or address checked; shakes hands within the deadline. kNotPermitted when
/// the certificate is not good for that name, kInvalid when one of the endpoint's files is not. The certificates are
/// read at the first call and when their files have changed.
[[nodiscard]] Result<std::unique_ptr<Transport>> make_tls_transport(Fd socket, const Endpoint& endpoint,
                                                                    const Wait& wait);
/// How often certificates have been read.
[[nodiscard]] uint64_t certificate_loads();

/// recv(2) and send(2) with the contracts of Transport; `peek` looks without taking.
[[nodiscard]] Result<size_t> receive_now(int fd, char* out, size_t size);
[[nodiscard]] Result<size_t> send_now(int fd, std::string_view bytes);
enum class Idle { kQuiet, kBytes, kClosed };
[[nodiscard]] Idle idle_state(int fd);

}  // namespace inductorfs::redis
