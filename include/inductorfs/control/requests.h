// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/result.h"
#include "inductorfs/control/control.h"

/// The requests and answers on the control socket:
///     request := {"op": "status"} | {"op": "where"} | {"op": "places"} | {"op": "explain", "path": hex}
///              | {"op": "stats"} | {"op": "jobs"} | {"op": "misses", "job": number}
///              | {"op": "sync", "timeout_ms": number} | {"op": "unmount", "lazy": boolean}
///              | {"op": "upgrade", "program": hex}       (with a descriptor of the program)
///              | {"op": "warm", "pattern": hex, "family": text, "scope": text, "limit": number, "slice_ms": number}
///              | {"op": "nodes"} | {"op": "freeze" | "lift" | "purge", ...}    (mount/cluster_control.h)
///     answer  := {"ok": true, "result": object} | {"ok": false, "code": text, "error": text}
/// Paths are in hexadecimal, because a name may have any byte and JSON text may not.
namespace inductorfs::control {

/// Which artefacts of the cluster `warm` fetches; what is empty excludes nothing.
struct WarmSelection {
  std::string pattern;          ///< a glob (layout/glob.h) over canonical paths
  std::string family;           ///< a family's name
  std::string scope;            ///< a scope's id, or the first kScopePrefix or more of its digits
  uint64_t limit = UINT64_MAX;  ///< bytes to fetch at most
  bool operator==(const WarmSelection&) const = default;
};
inline constexpr size_t kScopePrefix = 8;

/// The operations that a running mount offers on its control socket; they are called from several threads.
/// Safe for concurrent use.
class MountControl {
 public:
  virtual ~MountControl() = default;
  /// The queries return JSON objects as text.
  [[nodiscard]] virtual std::string where() = 0;
  /// `guest`: who asks, if that is neither root nor the user who mounted. Guests are told of nothing in directories
  /// that are closed to them in the file system.
  [[nodiscard]] virtual std::string status(const Peer* guest) = 0;
  /// Shows the mount in this user's default directory (mount::Mounter::show_to()). {"failed": text} says why one of
  /// its places is not shown.
  [[nodiscard]] virtual Result<std::string> show_to(uid_t user, const std::function<bool()>& cancelled) = 0;
  [[nodiscard]] virtual Result<std::string> explain(const std::string& path, const Peer* guest) = 0;
  /// The totals, with the programs of one user, or of all.
  [[nodiscard]] virtual std::string stats(std::optional<uid_t> user) = 0;
  /// What the jobs of one user did, or of all users.
  [[nodiscard]] virtual std::string jobs(std::optional<uid_t> user) = 0;
  /// What a job missed, and why; 0: the last job that missed something.
  [[nodiscard]] virtual std::string misses(uint64_t job, std::optional<uid_t> user) = 0;
  /// Waits until everything is published, the deadline has passed, or `cancelled` answers true. Returns a JSON object
  /// as text: sync_report().
  [[nodiscard]] virtual Result<std::string> sync(Deadline deadline, const std::function<bool()>& cancelled) = 0;
  /// Unmounts and lets the daemon end. kBusy leaves everything as it was.
  [[nodiscard]] virtual Result<void> unmount(bool lazy) = 0;
  /// Lets this program, whose path is only shown, serve the mount instead; this process then ends. Returns a JSON
  /// object as text. kInvalid when it is no program, or one that others could have made, kBusy during a stop or another
  /// upgrade, kUnavailable without a supervisor.
  [[nodiscard]] virtual Result<std::string> upgrade(const std::string& program, const Fd& executable) = 0;
  /// Fetches a part of the selection into the store, for about `slice`; the caller repeats the request until the
  /// answer is `done`. Returns a JSON object as text: Warmer::step().
  [[nodiscard]] virtual Result<std::string> warm(const WarmSelection& selection, Milliseconds slice,
                                                 const std::function<bool()>& cancelled) = 0;
  /// Asks something of all mounts of the cluster, or orders it. `request` and the result are JSON objects as text.
  [[nodiscard]] virtual Result<std::string> ask_cluster(const std::string& request,
                                                        const std::function<bool()>& cancelled) = 0;
};

/// Answers one request. It refuses sync, warm, unmount, upgrade and orders to the cluster to everybody but root and the
/// daemon's own user. Others are told of their own jobs only, and of the directories that let them in.
[[nodiscard]] Answer answer_request(MountControl& mount, std::string_view request, const Peer& peer, uid_t owner);
/// Makes the answer to peers that wait for the end when the process ends without one of its threads.
[[nodiscard]] std::string refuse_end(const std::string& why);
/// Makes the answer to one who has too many connections.
[[nodiscard]] std::string refuse_crowd();

[[nodiscard]] std::string status_request();
[[nodiscard]] std::string where_request();
[[nodiscard]] std::string places_request();
[[nodiscard]] std::string explain_request(std::string_view path);
[[nodiscard]] std::string stats_request();
[[nodiscard]] std::string jobs_request();
[[nodiscard]] std::string misses_request(uint64_t job);
[[nodiscard]] std::string sync_request(Milliseconds timeout);
[[nodiscard]] std::string warm_request(const WarmSelection& selection, Milliseconds slice);
[[nodiscard]] std::string unmount_request(bool lazy);
[[nodiscard]] std::string upgrade_request(std::string_view program);

/// Returns the result of an answer, as JSON text, or its error.
[[nodiscard]] Result<std::string> parse_answer(std::string_view answer);
/// Says whether the supervisor has answered, because no worker can serve the mount; it does nothing that is asked.
[[nodiscard]] bool is_of_no_worker(std::string_view answer);
/// Returns the worker that was killed and that the kernel does not let end, when that is why; else 0.
[[nodiscard]] pid_t held_worker(std::string_view answer);

}  // namespace inductorfs::control
