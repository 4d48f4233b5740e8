// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/vfs/file_system.h"
#include "vfs/node.h"

namespace inductorfs::vfs {

class Overlay;

/// Files of shared families that somebody wrote in place under their final names (cp does, and most programs that are
/// not torch or Triton). Nothing shows when such a file is complete but that nobody has it open for writing and that
/// nothing was written to it for the quiet time. Only a mount that publishes what anybody writes (--writers all) goes
/// by that: a program of the mount's own environment renames, or removes its build directory, and a file that it left
/// half-written must stay here.
///
/// look() asks the kernel and blocks for as long as FileSystemOptions::who_writes does; add() never blocks. Safe for
/// concurrent use.
class InPlace {
 public:
  explicit InPlace(Overlay& overlay) : overlay_(overlay) {}

  /// Whether such files are published at all.
  [[nodiscard]] bool is_on() const;
  /// The file got its name, or was written to: it is looked at when it was quiet. Does nothing for what another sign
  /// shows to be complete.
  void add(const NodePtr& node, const std::string& path);
  /// Hands what is complete to the sealer. Confined to the janitor thread.
  void look();
  /// Waits until nothing is left to be looked at. False at the deadline.
  [[nodiscard]] bool drain(Deadline deadline);
  /// Lets go what is left; the next start finds it.
  void stop();
  [[nodiscard]] size_t waiting() const;
  [[nodiscard]] std::vector<std::string> paths(size_t limit) const;
  [[nodiscard]] bool waits(const std::string& path) const;

 private:
  struct Item {
    NodePtr node;  ///< pinned
    std::string path;
    SteadyTime due;
    int unknown = 0;  ///< how often the kernel did not tell
  };
  using Items = std::map<NodeId, Item>;
  enum class Next { kAsk, kLater, kDrop };

  [[nodiscard]] Next next_of(Item& item) const;
  void put_off(const Item& item, OpenState state);
  void finish(const Item& item, bool complete);
  void hand_over(const Item& item, bool complete);

  Overlay& overlay_;
  Guarded<Items> items_;
};

}  // namespace inductorfs::vfs
