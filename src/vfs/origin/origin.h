// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "vfs/origin/marks.h"
#include "vfs/read/compile_leases.h"
#include "vfs/read/lookup.h"
#include "vfs/tree/context.h"

namespace inductorfs::vfs {

/// Says whether the known writers of a file allow it to be sealed.
enum class Standing {
  kMatches,   ///< all of them had the facts of its scope
  kStays,     ///< the file stays here, or was made for other facts
  kUnjudged,  ///< what a writer has loaded is still being read
  kChanged,   ///< a process wrote meanwhile: ask again
};

/// Knows who wrote each file that stands under a final name. A writer is examined when the name is given, and judged
/// before anything leaves the host. The results are kept as marks on the file (Marks). Examining costs microseconds,
/// because a job's own thread waits for it; no thread waits for a judgement. Safe for concurrent use.
class Origin : Context {
 public:
  explicit Origin(const Context& context) : Context(context) {}

  /// Notes that this process writes the file, or gave it, or the directory of a parcel, its name. `anew`: nothing of
  /// the earlier content is left.
  void saw_writer(const NodePtr& node, const std::string& path, pid_t writer, bool anew = false);
  void saw_writer_in_place(const NodePtr& node, pid_t writer, bool anew);
  /// Notes that the file at this path of the view is written to, replaced or removed: what it belongs to is not the
  /// cluster's any more. Nothing for files that belong to no parcel.
  void member_changed(const std::string& path);
  /// Notes that this user is about to write to a file that is open; the caller holds the content's lock and moves().
  [[nodiscard]] Result<void> note_writer(const Node& node, Content& content, int file, const Caller& caller);
  /// Notes that this user is about to give what is at this place, below the file system's directory, another name. The
  /// superuser's names are the owner's: who restores a copy is trusted. The caller holds moves().
  [[nodiscard]] Result<void> note_namer(const std::string& place, const Caller& caller) const;
  /// Notes who may reach and write to what is at this place and shown at this path, since fewer may after what is about
  /// to happen to it: it goes to another root, its mode changes, or with `all` its owner. The caller holds moves().
  [[nodiscard]] Result<void> note_open(const std::string& place, const std::string& path, bool all = false) const;
  /// Notes that this user is about to take a name away from its directory, which may be about to become a parcel.
  [[nodiscard]] Result<void> note_left(const std::string& path, const Caller& caller) const;
  /// Notes that this process gave a whole Triton set its name.
  void saw_writer_of_set(const NodePtr& directory, const std::string& path, pid_t writer);
  /// Tells FileSystemOptions::used, and who waits for it, that this process made what stands under the name.
  void made(const std::string& path, pid_t writer) const;
  /// The same for a Triton set with these names.
  void made_set(const std::string& path, const std::vector<std::string>& names, pid_t writer) const;
  /// Adds a writer to all files of a set, which have one writer. `place` is where they are now, below the file system's
  /// directory.
  void mark_set(const std::string& place, const std::vector<std::string>& names, Provenance& set,
                const WriterVerdict& verdict) const;

  /// Returns the provenance of a file below the file system's directory. The caller holds the content's lock and
  /// moves().
  [[nodiscard]] Provenance provenance(const Content& content, const std::string& place) const;
  /// Returns the provenance of a file of the view.
  [[nodiscard]] Provenance provenance_of(const std::string& path) const;
  /// Changes the provenance of each file of a set.
  void change_set(const std::string& path, const std::function<void(Provenance&)>& change);
  void keep_set_private(const std::string& path, const std::string& why);
  /// Makes a file private whose writers wait to be judged and for whom nobody can tell with whom they share.
  void cannot_judge(const NodePtr& node, const std::string& path, const std::string& why);
  void cannot_judge_set(const NodePtr& directory, const std::string& path, const std::string& why);

  /// An error where the disk does not tell who has made the file; then nothing is decided.
  [[nodiscard]] Result<Standing> standing(const NodePtr& node, const std::string& path, const std::string& scope);
  [[nodiscard]] Result<Standing> standing_of_set(const NodePtr& directory, const std::string& path,
                                                 const layout::Scope& scope);

 private:
  bool change_provenance(const NodePtr& node, const std::function<void(Provenance&)>& change);
  [[nodiscard]] mode_t reach_of(const std::string& path) const;
  [[nodiscard]] Standing judge_writers(const NodePtr& node, const std::string& path, const std::string& scope);
};

}  // namespace inductorfs::vfs
