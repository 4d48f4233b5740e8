// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "vfs/origin/marks.h"
#include "vfs/read/lookup.h"
#include "vfs/read/services.h"
#include "vfs/tree/root_tree.h"

namespace inductorfs::vfs {

/// Whether what is known of a file's writers lets it be sealed.
enum class Standing {
  kFits,      ///< all of them had the facts of its scope
  kStays,     ///< it stays here, or was made for other facts
  kUnjudged,  ///< what a writer has loaded is still being read
  kChanged,   ///< somebody wrote meanwhile: ask again
};

/// Knows who wrote what stands under a final name: looked at when the name is given, and judged before anything leaves
/// the host. What it learns is kept as marks on the file (Marks). A look costs microseconds, because a job's own thread
/// waits for it; a judgement is never waited for. Safe for concurrent use.
class Origin {
 public:
  Origin(const Services& services, RootTree& tree, Lookup& lookup, Marks& marks)
      : host_(services.host), counters_(services.counters), tree_(tree), lookup_(lookup), marks_(marks) {}

  /// This process writes the file, or gave it its name. `anew`: nothing is left of what was there before.
  void saw_writer(const NodePtr& node, const std::string& path, pid_t writer, bool anew = false);
  void saw_writer_in_place(const NodePtr& node, pid_t writer, bool anew);
  /// A whole Triton set got its name.
  void saw_writer_of_set(const NodePtr& directory, const std::string& path, pid_t writer);
  /// The files of a set have one writer. `place` is where they lie now, below the file system's directory.
  void mark_set(const std::string& place, const std::vector<std::string>& names, Provenance& set,
                const Verdict& verdict) const;

  /// Of a file below the file system's directory. Requires: the content's lock, and moves().
  [[nodiscard]] Provenance provenance(const Content& content, const std::string& place) const;
  /// Of a file of the view.
  [[nodiscard]] Provenance provenance_of(const std::string& path) const;
  /// Notes on each file of a set what the caller knows of it.
  void change_set(const std::string& path, const std::function<void(Provenance&)>& change);
  void keep_set_private(const std::string& path, const std::string& why);

  [[nodiscard]] Standing standing(const NodePtr& node, const std::string& path, const std::string& scope);
  [[nodiscard]] Standing standing_of_set(const NodePtr& directory, const std::string& path, const layout::Scope& scope);

 private:
  bool change_provenance(const NodePtr& node, const std::function<void(Provenance&)>& change);
  [[nodiscard]] Standing judge_writers(const NodePtr& node, const std::string& path);

  const Host& host_;
  Counters& counters_;
  RootTree& tree_;
  Lookup& lookup_;
  Marks& marks_;
  LocalTree& disk_{tree_.disk()};
  NodeTable& nodes_{tree_.nodes()};
  SharedGuarded<Moves>& moves_{tree_.moves()};
};

}  // namespace inductorfs::vfs
