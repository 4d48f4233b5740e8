// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "inductorfs/base/guarded.h"
#include "inductorfs/codec/parcel.h"
#include "inductorfs/store/blob_file.h"
#include "vfs/nodes/notifier.h"
#include "vfs/tree/context.h"
#include "vfs/tree/parcel_mark.h"

namespace inductorfs::vfs {

/// Parcels of the cluster on this host's disk (layout::Form). A parcel is unpacked into the view when its name is first
/// asked for: a directory by one rename, an index after the files that it names. From then on they are files of the
/// local disk, so that nothing can take one of them from a program that has seen another. A directory that was unpacked
/// is shown as long as the cluster has that very one, an index as long as the cluster has any; both go as a whole, when
/// the kernel knows none of their names.
///
/// A path of the view that is being shown is held (Shown), and one that is being removed is not shown; the lock of that
/// is a leaf. Calls block on the local disk only. Safe for concurrent use.
class Parcels : Context {
 public:
  explicit Parcels(const Context& context) : Context(context) {}

  /// Keeps a path from being removed while it lives. Confined to one thread.
  class Shown {
   public:
    Shown(Parcels& parcels, std::string path);
    ~Shown();
    Shown(const Shown&) = delete;
    Shown& operator=(const Shown&) = delete;
    /// Says whether the path is held; not while it is being removed.
    [[nodiscard]] explicit operator bool() const { return held_; }

   private:
    Parcels& parcels_;
    std::string path_;
    bool held_ = false;
  };

  /// Says whether the view has the parcel's name from the cluster, and is to show another one: the cluster has none
  /// any more, or another directory. An index stays when the cluster has a later one.
  [[nodiscard]] bool is_outdated(const std::string& path, const catalog::KnownEntry* known) const;
  /// Unpacks a parcel, whose blob is in the store. Whoever has made the name on this host meanwhile keeps it, which is
  /// a success. kBusy when files that an index names are there already, by another writer.
  [[nodiscard]] Result<void> unpack(const Site& site, const catalog::KnownEntry& known);
  /// Returns why this parcel was not unpacked when its path was last asked for. Empty if it was unpacked, if nobody has
  /// asked for it, and if later refusals have pushed out the reason.
  [[nodiscard]] std::string why_not_unpacked(const std::string& path, const codec::Digest& digest) const;
  /// Removes a parcel's files from the view, all or none: none while the kernel knows one of their names, which is then
  /// asked to forget them, or while somebody shows them. Returns whether the blob is free. Files that were changed here
  /// stay, without the blob. Takes moves().
  bool drop(const std::string& path);
  /// Removes what the cluster does not have any more, as drop() does. Of an index the index alone: a program that has
  /// read it still opens the files that it names, which are in nobody's way then.
  bool hide(const Site& site);

 private:
  /// The last attempt to unpack what has this path failed.
  struct Refusal {
    std::string path;
    codec::Digest digest;  ///< of the entry that was to be unpacked
    std::string why;
    std::optional<uid_t> owner;  ///< of the root
  };
  struct State {
    std::map<std::string, size_t> shown;
    std::set<std::string> leaving;
    std::vector<Refusal> refusals;  ///< one for a path, the latest last
  };
  static constexpr size_t kMostRefusals = 64;
  [[nodiscard]] Result<void> lay_out(const Site& site, const catalog::KnownEntry& known);
  void note_refusal(const Site& site, const codec::Digest& digest, std::string why);
  [[nodiscard]] Result<std::string> unpack_aside(const Site& site, const catalog::KnownEntry& known,
                                                 const codec::ParcelHead& head, const store::BlobFile& blob);
  [[nodiscard]] Result<void> place_directory(const Site& site, const std::string& aside);
  [[nodiscard]] Result<void> place_index(const Site& site, const std::string& aside, const codec::ParcelHead& head);
  [[nodiscard]] std::string aside(std::string_view what);
  [[nodiscard]] std::vector<std::string> names_of(const std::string& path) const;
  [[nodiscard]] bool is_known(const std::vector<std::string>& names);
  using NamesToGo = std::function<std::vector<std::string>(const Moves&)>;
  bool leave(const std::string& path, const NamesToGo& names_to_go);
  void take_away(const std::string& path, const std::vector<std::string>& names);

  Guarded<State> state_;
  std::atomic<uint64_t> number_{0};  ///< of the next directory beside the view
};

}  // namespace inductorfs::vfs
