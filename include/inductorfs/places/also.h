// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "inductorfs/base/guarded.h"
#include "inductorfs/config/settings.h"
#include "inductorfs/places/bind.h"

namespace inductorfs::places {

/// A further place and its state.
struct AlsoState {
  enum class Kind { kAbsent, kBound, kLinked, kFailed };
  config::Also also;
  Kind kind = Kind::kAbsent;
  std::string why;                ///< the reason for kFailed
  std::vector<std::string> made;  ///< directories that were made for the place and are removed with it
  BindId bound;                   ///< the bind mount of kBound
  /// Returns "bound", "linked", "absent" or "failed: why".
  [[nodiscard]] std::string to_string() const;
};

/// The further places at which directories of one mount are shown: by bind mounts for root, by symbolic links (where
/// nothing is in the way) for other users. A place that cannot be had is a warning and never prevents the mount.
///
/// show() and hide() go through the mount, so they need its threads to be running. Safe for concurrent use.
class AlsoPlaces {
 public:
  /// `record` is the file that records what was put where (also_record.h); empty: there is no record.
  AlsoPlaces(std::string mountpoint, std::vector<config::Also> places, bool root, std::string record = "");

  /// Makes the directories in the mount and shows them. A place is refused when the mountpoint leads to another mount
  /// than `mount`, because then its directory would be made where whoever renamed the directories around it wants. It
  /// replaces what a dead predecessor left at a place, and does not touch the place itself before that, because a path
  /// in a dead mount can hang. Directories that the predecessor had made are removed with this object's own. Calls
  /// `after_each` when a place is shown, or is not; states() tells.
  void show(const BindId& mount, const std::function<void()>& after_each = {});
  /// Takes the places over from an earlier worker, in place of show(): as that worker recorded them in `noted`, else as
  /// they are found.
  void resume(const std::vector<AlsoState>& noted);
  /// Removes all places; a bind mount that is in use is detached lazily. Idempotent.
  void hide();
  /// Answers kBusy, and names the processes, when one works at one of the bound places.
  [[nodiscard]] Result<void> check_idle() const;
  [[nodiscard]] std::vector<AlsoState> states() const;

 private:
  void inherit(std::vector<AlsoState>& fresh) const;

  std::string mountpoint_;
  bool root_;
  std::string record_;
  Guarded<std::vector<AlsoState>> states_;
};

/// Removes what was put at one place, with the directories that were made for it, as far as it still belongs to that
/// mount.
void take_away_place(const std::string& mountpoint, const AlsoState& state);

/// Detaches the bind mounts that show `device` ("major:minor") and those whose mount is gone, for a mount whose daemon
/// died.
void detach_binds_of(const std::string& device);

}  // namespace inductorfs::places
