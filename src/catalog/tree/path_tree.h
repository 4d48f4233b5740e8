// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "catalog/tree/compact_name.h"
#include "catalog/tree/followed_scopes.h"
#include "inductorfs/codec/entry.h"

namespace inductorfs::catalog {

/// Entries by path and scope, as a tree of directories. Each directory has the number of visible leaves of each scope
/// below it, so that what is seen of it costs the path's depth and not the catalog's size. An entry costs about 250
/// bytes.
///
/// The files of a Triton set are visible together or not at all: a set is away when one of its files is lost or unfit,
/// and when all of its files are hidden. Needs external synchronisation.
class PathTree {
 public:
  /// What one scope has under one path.
  struct Leaf {
    codec::Digest digest;
    uint64_t size = 0;
    int64_t mtime_ns = 0;
    std::shared_ptr<const std::string> origin;
    ScopeIndex scope = 0;
    uint16_t mode = 0;
    bool hidden : 1 = false;
    bool lost : 1 = false;
    bool unfit : 1 = false;
    bool unnamed : 1 = false;  ///< a start list, which no root shows
    bool of_set : 1 = false;   ///< a file of a Triton set
    bool withheld : 1 = true;  ///< of_set: the set is away (Directory::withholds)
    [[nodiscard]] bool usable() const { return !hidden && !lost && !unfit; }
    [[nodiscard]] bool visible() const { return of_set ? !withheld : usable() && !unnamed; }
    [[nodiscard]] codec::Entry entry(const std::string& path) const;
  };
  struct PathNode;
  using Children = std::map<CompactName, PathNode, CompactName::Less>;
  struct Directory;
  struct PathNode {
    std::unique_ptr<Directory> directory;  ///< nullptr for a file: most nodes are files
    std::vector<Leaf> leaves;              ///< of a file: one for each scope that has it

    [[nodiscard]] bool is_file() const { return directory == nullptr; }
    [[nodiscard]] bool is_of_set() const { return !leaves.empty() && leaves.front().of_set; }
    [[nodiscard]] const Children& children() const;
    [[nodiscard]] const Leaf* leaf_of(ScopeIndex scope) const;
  };
  struct Directory {
    Children children;
    ScopeCounts visible;        ///< of the leaves below
    ScopeCounts broken;         ///< of the files of sets here: those that are lost or unfit
    ScopeCounts open;           ///< and those that are not hidden
    int64_t names_changed = 0;  ///< names_changed()

    void tally(const Leaf& leaf, bool comes);
    /// Says whether the set of this scope is away.
    [[nodiscard]] bool withholds(ScopeIndex scope) const { return broken.has(scope) || !open.has(scope); }
  };
  /// The nodes from the root to a path, as far as they exist.
  struct Trail {
    std::vector<PathNode*> nodes;
    std::vector<std::string_view> names;
    [[nodiscard]] bool whole() const { return nodes.size() == names.size() + 1; }
    [[nodiscard]] PathNode& last() const { return *nodes.back(); }
    [[nodiscard]] const Leaf* leaf_of(ScopeIndex scope) const { return whole() ? last().leaf_of(scope) : nullptr; }
    /// Says whether the path is that of a file, or of nothing yet and in no file's way.
    [[nodiscard]] bool may_be_file() const { return !names.empty() && whole() == last().is_file(); }
    [[nodiscard]] Directory& parent() const { return *nodes[names.size() - 1]->directory; }
  };
  struct Page {
    std::vector<codec::Entry> entries;
    std::optional<std::string> next;  ///< what the next page comes after; nothing behind the last page
  };
  using Visitor = std::function<bool(const std::string& path, const PathNode& node)>;  ///< false: no more

  PathTree() { root_.directory = std::make_unique<Directory>(); }

  [[nodiscard]] Trail trail_of(std::string_view path);
  [[nodiscard]] const PathNode* find(std::string_view path) const;
  /// Returns a leaf for this entry, without what this host knows of its bytes.
  [[nodiscard]] Leaf make_leaf(ScopeIndex scope, const codec::Entry& entry);
  /// Takes a leaf in, in place of its scope's last one. Requires: trail.may_be_file(). Makes the trail whole.
  void set(Trail& trail, Leaf leaf);
  /// Requires: the scope has a leaf there.
  void remove(const Trail& trail, ScopeIndex scope);
  /// Changes what this host knows of these bytes under this path, in every scope.
  void set_flags(std::string_view path, const codec::Digest& digest, const std::function<void(Leaf&)>& change);

  /// Visits the files below a directory, which may be the empty path.
  void visit_below(std::string_view directory, const Visitor& visitor) const;
  [[nodiscard]] std::vector<std::string> of_scope(ScopeIndex scope) const;
  /// Returns up to `limit` entries of a scope, visible or not, in the tree's order: those after the path `after`, which
  /// may have gone; the empty path is before all. Looks at kPageMost files at most, so a page may be empty.
  static constexpr size_t kPageMost = 16'384;
  [[nodiscard]] Page page_of(ScopeIndex scope, std::string_view after, size_t limit) const;
  /// The leaves of each scope, visible or not.
  [[nodiscard]] const ScopeCounts& known() const { return known_; }
  [[nodiscard]] const ScopeCounts& visible() const { return root_.directory->visible; }

  /// Returns when names in this directory came or went last (nanoseconds since 1970); nothing where no entry is below
  /// it. Of what was loaded it is the latest time of its entries, so that it is the same at each start.
  [[nodiscard]] std::optional<int64_t> names_changed(std::string_view directory) const;
  /// Has changes count from now on with the time at which they are made.
  void note_times() { notes_times_ = true; }
  /// What is shown changes everywhere, without a change of entries.
  void all_names_changed();
  /// Of a name that one root hides or shows again: which directories above it lose or get a name there is not counted.
  void names_changed_above(std::string_view path);

 private:
  static bool visit(const PathNode& node, std::string& path, std::string_view after, const Visitor& visitor);
  void put(const Trail& trail, ScopeIndex scope, std::optional<Leaf> next);
  void count(const Trail& trail, ScopeIndex scope, bool before, bool after);
  void note_time(Directory& directory);

  PathNode root_;
  ScopeCounts known_;
  std::unordered_map<std::string, std::shared_ptr<const std::string>> origins_;
  bool notes_times_ = false;
  int64_t loaded_time_ = 0;        ///< of the entry that is being loaded
  int64_t all_names_changed_ = 0;  ///< all_names_changed()
};

}  // namespace inductorfs::catalog
