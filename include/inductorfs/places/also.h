// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/fd.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/config/settings.h"
#include "inductorfs/places/bind.h"

namespace inductorfs::places {

/// Before the reason, in the state of a place that is not shown.
inline constexpr std::string_view kPlaceFailed = "failed: ";

/// The further places at which directories of one mount are shown: by bind mounts for root, by symbolic links (where
/// nothing is in the way) for other users. A place that cannot be had is a warning and never prevents the mount.
///
/// What is shown is known from the kernel's list of mounts and from the links themselves, whoever asks. show() and
/// hide() go through the mount, so they need its threads to be running. Immutable after construction.
class AlsoPlaces {
 public:
  /// `record` is a file that names the links, for whoever follows when this daemon is killed.
  AlsoPlaces(std::string mountpoint, std::vector<config::Also> places, bool root, std::string record);

  /// Makes the directories in the mount and shows them. A place is refused when the mountpoint leads to another mount
  /// than `mount`, because then its directory would be made where whoever renamed the directories around it wants. It
  /// replaces what a dead predecessor left at a place, and does not touch the place itself before that, because a path
  /// in a dead mount can hang. Returns for each place "bound", "linked" or kPlaceFailed with the reason.
  [[nodiscard]] std::vector<std::string> show(const BindId& mount) const;
  /// Shows, in the same words, directories of `root`, which is this user's directory of root's mount, at the default
  /// places below `torch`, that user's default directory. The user has made them: a place is shown only where an empty
  /// directory of the user's is, since a job that runs may need what lies in another one. What is missing in the mount
  /// is made with the user's rights.
  [[nodiscard]] std::vector<std::string> show_to(const BindId& mount, const config::User& user, const std::string& root,
                                                 const std::string& torch) const;
  /// Returns the users but root to whom directories in the mount's root belong.
  [[nodiscard]] std::vector<uid_t> users(const BindId& mount) const;
  /// Removes all places of this mount; a bind mount that is in use is detached lazily. Idempotent.
  void hide(const BindId& mount) const;
  /// Answers kBusy, and names the processes, when one works at one of the bound places.
  [[nodiscard]] Result<void> check_idle(const BindId& mount) const;

 private:
  void record_links() const;

  const std::string mountpoint_;
  const std::vector<config::Also> places_;
  const bool root_;
  const std::string record_;
};

/// Returns the path of the record that belongs to a control socket.
[[nodiscard]] std::string also_record_path(const std::string& socket);
/// Removes the links that the record of a killed daemon names, and the record, unless its mount is there, dead or
/// alive.
void take_back_places(const std::string& record);

/// Detaches the bind mounts that show directories of the file system `device` ("major:minor"), which was, or is,
/// mounted at `mountpoint`, wherever their directories are by now. It leaves them alone if another mount that is served
/// has that number.
void detach_binds_of(const std::string& device, const std::string& mountpoint);
/// Detaches those whose directory was removed from the mount: nothing can be made there any more, so jobs would fail.
void detach_removed_binds(const std::string& device);
/// Detaches the dead bind mounts of mounts that somebody has unmounted by hand after their daemon had died, but not
/// those of a device for which a process has what keep_binds_of() returned.
void detach_orphaned_binds();
/// For who replaces the dead mount of this device: until its places are replaced, too, they are like those of a mount
/// that is gone, and to detach them would show the jobs the directories below. Holds them until the descriptor is
/// closed; waits for a sweep of another process to detach what it is about to. None when there can be no sweep.
[[nodiscard]] Fd keep_binds_of(const std::string& device);

}  // namespace inductorfs::places
