// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"

/// The control socket of a mount: a Unix stream socket that carries one line of request and one line of answer. Root's
/// mount has a second one, for other users.
namespace inductorfs::control {

inline constexpr size_t kRequestLimit = 64ULL << 10;
inline constexpr size_t kAnswerLimit = 64ULL << 20;
/// The longest that a peer may take to send its request or to take the answer.
inline constexpr Milliseconds kPeerPatience{5000};

struct Peer {
  uid_t uid = 0;
  std::vector<gid_t> groups{};  ///< all of them; none are known on a kernel before 4.13
  pid_t pid = 0;
  std::shared_ptr<const Fd> descriptor{};  ///< that came with the request, whatever it is of; or nothing
  /// Says whether the peer has hung up, so that nobody waits for the answer any more.
  std::function<bool()> gone;
};

struct Answer {
  std::string line;  ///< without the newline
  /// The connection stays open until this process ends, so that a peer that asked for the end can wait for it.
  bool hold_until_exit = false;
};

using RequestHandler = std::function<Answer(std::string_view request, const Peer& peer)>;

/// Listens at a path and answers each request on a thread of its own, a bounded number at the same time. It owns the
/// socket and the threads. Safe for concurrent use.
class ControlServer {
 public:
  virtual ~ControlServer() = default;
  /// Starts to answer at what listen() has made, or an earlier process has left, and whom the proxy hands over at the
  /// channel `guests` (supervisor/protocol.h; -1: there is none), which stays the caller's.
  [[nodiscard]] static std::unique_ptr<ControlServer> open(Fd listener, RequestHandler handler, int guests = -1);
  /// Ends the threads. The socket stays at its path. Idempotent.
  virtual void stop() = 0;
};

/// Listens at a path, for root and for this user alone. Makes the path's directory (0700, root's 0755) and checks that
/// it belongs to this user. Replaces a socket at which nobody listens; kBusy when somebody does. Whoever serves the
/// mount may do so without a right to that directory.
[[nodiscard]] Result<Fd> listen(const std::string& path);
/// Listens beside listen()'s socket for everybody else who reaches the directory. What they send along is closed by
/// whoever receives it, which may wait for their file system or peer as long as they like: this is for the proxy alone
/// (docs/operations/processes-of-a-mount.md). From Linux 6.16 on the kernel refuses it.
[[nodiscard]] Result<Fd> listen_for_guests(const std::string& path);
/// Returns the path of that socket.
[[nodiscard]] std::string guests_path(const std::string& path);

/// Asks the daemon at `path`, or for a user who may not, at guests_path(), and returns its answer. Blocks until the
/// deadline. kNotFound when there is no socket, kUnavailable when nobody answers at it, kInvalid when the request has
/// more than kRequestLimit bytes.
[[nodiscard]] Result<std::string> ask(const std::string& path, std::string_view request, Deadline deadline);
/// Asks as ask() does, then waits until the daemon has closed the connection. Returns the last line that the daemon
/// sent. After each kSilence without an end it calls `on_silence` with the process that listens (0: not known), and
/// gives up (kTimedOut) when that returns false. A `descriptor` that is not -1 goes along with the request.
[[nodiscard]] Result<std::string> ask_and_await_end(const std::string& path, std::string_view request,
                                                    Deadline deadline,
                                                    const std::function<bool(pid_t daemon)>& on_silence = {},
                                                    int descriptor = -1);
inline constexpr Milliseconds kSilence{1500};
/// Sends a further line to the peers that this process has answered with hold_until_exit; for the process's last
/// moment.
void tell_those_who_hold(std::string_view line);
/// Says whether somebody listens there. A process that was killed does, until its last file is closed.
[[nodiscard]] bool is_listening(const std::string& path);
/// Says whether somebody answers there, or may yet: not who was killed and hangs up. Blocks for two seconds at most,
/// where a daemon does not come round to answering.
[[nodiscard]] bool is_served(const std::string& path);

}  // namespace inductorfs::control
