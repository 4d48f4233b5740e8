// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "inductorfs/base/guarded.h"
#include "inductorfs/config/settings.h"
#include "inductorfs/places/bind.h"

namespace inductorfs::places {

/// A further place and what became of it.
struct AlsoState {
  enum class Kind { kAbsent, kBound, kLinked, kFailed };
  config::Also also;
  Kind kind = Kind::kAbsent;
  std::string why;                ///< kFailed
  std::vector<std::string> made;  ///< directories that are removed with it
  BindId bound;                   ///< kBound
  /// "bound", "linked", "absent" or "failed: why".
  [[nodiscard]] std::string to_string() const;
};

/// The further places at which directories of one mount are shown: bind mounts for root, symbolic links (where nothing
/// is in the way) for others. A place that cannot be had is a warning, never a refusal of the mount.
///
/// show() and hide() go through the mount, so they need its threads running. Safe for concurrent use.
class AlsoPlaces {
 public:
  /// `record`: the file in which it is written down what was put where (also_record.h); empty: nowhere.
  AlsoPlaces(std::string mountpoint, std::vector<config::Also> places, bool root, std::string record = "");

  /// Makes the directories in the mount, and shows them. Replaces what a dead predecessor left at a place, without
  /// touching the place itself before: a path in a dead mount can hang. What the predecessor had made is this one's to
  /// remove.
  void show();
  /// In place of show(): the places are as an earlier worker left them, by what it noted, else by what is there.
  void resume(const std::vector<AlsoState>& noted);
  /// Takes all away again, lazily where somebody works in it. Idempotent.
  void hide();
  /// kBusy, with who it is, when somebody works at one of the bound places.
  [[nodiscard]] Result<void> check_idle() const;
  [[nodiscard]] std::vector<AlsoState> states() const;

 private:
  void inherit(std::vector<AlsoState>& fresh) const;

  std::string mountpoint_;
  bool root_;
  std::string record_;
  Guarded<std::vector<AlsoState>> states_;
};

/// Takes away what was put at one place, with the directories that were made for it: only what still is of that mount.
void take_away_place(const std::string& mountpoint, const AlsoState& state);

/// Detaches the bind mounts that show `device` ("major:minor"), or whose mount is gone: for a mount whose daemon died.
void detach_binds_of(const std::string& device);

}  // namespace inductorfs::places
