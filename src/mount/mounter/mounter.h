// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/config/json_forward.h"
#include "inductorfs/fingerprint/examiner.h"
#include "inductorfs/places/also.h"

namespace inductorfs::mount {

/// A worker's side of its mounter: the process that mounts, unmounts and shows further places, which takes rights that
/// the worker does not have (docs/decisions/0038). It has a child for each of that, as the examiner for its questions
/// (include/inductorfs/fingerprint/examiner.h), and knows by itself what and where: no word of a worker has a path.
/// What it has to log it says to the worker, since the log may lie on a disk that does not answer. mount(), show(),
/// uncover() and close() are confined to the main thread, the others are safe for concurrent use.
class Mounter {
 public:
  /// Words of a worker: the names of tasks. That of kMount has a connection for the rest of the start.
  static constexpr const char* kMount = "mount";
  static constexpr const char* kUnmount = "unmount";
  static constexpr const char* kLeave = "leave";
  static constexpr const char* kShowTo = "show to";
  static constexpr const char* kDropRemoved = "drop removed";
  static constexpr const char* kListen = "listen";
  static constexpr const char* kListenForGuests = "listen for guests";
  static constexpr const char* kUnlisten = "unlisten";
  static constexpr const char* kMakeLog = "make log";
  static constexpr const char* kConnect = "connect";
  static constexpr const char* kListens = "listens";
  /// Requests of kUnmount.
  static constexpr const char* kLazily = "lazily";
  static constexpr const char* kUnlessBusy = "unless busy";
  /// On the connection of kMount, one after the other.
  static constexpr const char* kShow = "show";
  static constexpr const char* kUncover = "uncover";
  static constexpr size_t kMessageLimit = size_t{64} << 10;

  struct Mounted {
    Fd device;  ///< /dev/fuse
    places::BindId own;
    /// It replaces a dead mount. If the start fails, it is to stay, dead, so that jobs go on getting ENOTCONN.
    bool leaves_dead = false;
  };

  /// `socket`: Supervision::mounter(). `stands_still` is called when the mounter takes no words.
  Mounter(int socket, std::function<void()> stands_still);

  /// Mounts. Errors are those of places::open_mountpoint(), fuse::mount() and places::find_own_mount(); kTimedOut.
  [[nodiscard]] Result<Mounted> mount(Deadline deadline);
  /// Shows the mount, which serves requests, at its further places, and detaches those of the dead mount that it has
  /// replaced. Returns the state of each
  /// (places::AlsoPlaces::show()).
  [[nodiscard]] Result<std::vector<std::string>> show(Deadline deadline);
  /// Moves what jobs wrote into the directory below the mount, where a dead one was before, to a directory beside it.
  /// Returns what a person should know about that.
  [[nodiscard]] Result<std::string> uncover(Deadline deadline);
  /// Ends what mount() has begun: whoever is shown somewhere by now stays so until leave().
  void close();

  /// As places::unmount_if_there(). Not lazy it is kBusy, too, when a process works at a further place.
  [[nodiscard]] Result<void> unmount(bool lazy) const;
  /// Detaches the mount and takes the further places away, with what dead daemons have left.
  [[nodiscard]] Result<void> leave() const;

  /// Shows the mount in this user's default directory, where the user has a directory in the mount and has made the
  /// places; without a user to all who have. Returns what is not shown and why, of one user.
  /// `cancelled` is asked several times a second.
  [[nodiscard]] Result<std::vector<std::string>> show_to(std::optional<uid_t> user,
                                                         const std::function<bool()>& cancelled) const;
  /// Takes the places away whose directory was removed from the mount.
  [[nodiscard]] Result<void> drop_removed(const std::function<bool()>& cancelled) const;

  /// Returns what listens at the mount's control socket, as control::listen() makes it; the worker has no right there.
  [[nodiscard]] Result<Fd> listen() const;
  /// The same for control::listen_for_guests().
  [[nodiscard]] Result<Fd> listen_for_guests() const;
  /// Says whether nobody listens at that socket's path any more; false, too, when it is not known.
  [[nodiscard]] bool has_no_listener() const;
  /// Returns the mount's log, to append to. Where it has gone it is made anew, as give_log() does.
  [[nodiscard]] Result<Fd> open_log() const;
  /// Returns a connection to the Unix socket of the mount's server, as redis::connect_unix() makes it.
  /// kBusy when `cancelled` says true, which is asked at least every 100 ms.
  [[nodiscard]] Result<Fd> connect(Deadline deadline, const std::function<bool()>& cancelled) const;
  /// Removes the socket. Best effort: the next daemon replaces it.
  void unlisten() const;

 private:
  struct Session {
    Fd connection;  ///< the question's
    Fd child;       ///< to its child
  };
  [[nodiscard]] Result<Session> begin(const char* word) const;
  [[nodiscard]] bool is_taken(const Fd& connection, Deadline deadline) const;
  [[nodiscard]] Result<config::Json> hear(Deadline deadline, Fd& device);
  [[nodiscard]] Result<config::Json> ask_child(const char* word, Deadline deadline);
  [[nodiscard]] Result<Fd> ask_for_descriptor(const char* word, Deadline deadline,
                                              const std::function<bool()>& cancelled = {}) const;
  [[nodiscard]] Result<config::Json> ask(const char* word, const std::string& request, Milliseconds patience,
                                         const std::function<bool()>& cancelled = {}) const;

  const fingerprint::ExaminerLink link_;
  Session session_;                 ///< of kMount
  std::vector<std::string> heard_;  ///< what it has said of places since it was asked
};

}  // namespace inductorfs::mount
