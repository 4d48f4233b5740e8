// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "catalog/tree/compact_name.h"
#include "catalog/tree/followed_scopes.h"
#include "inductorfs/catalog/catalog.h"
#include "inductorfs/layout/start_list.h"

namespace inductorfs::catalog {

/// All known entries as a tree of directories. Each directory has the number of visible leaves of each scope below it,
/// so that find, has_directory and list cost the path's depth and not the catalog's size. An entry costs about 250
/// bytes.
///
/// Several scopes may hold the same path: each entry is kept. A cache root shows the one of the scope whose id sorts
/// first among the scopes that are shown there, whatever the order in which they came. A scope that is no longer
/// followed is invisible at once; its entries are removed later, one by one.
///
/// The files of a Triton set are shown together or not at all, and those of one scope only: a
/// set is away when one of its files is lost or unfit, and when all of its files are hidden. So a set that was deleted
/// stays away when another one with some equal files is made, and one that came in its place is shown as a whole. Needs
/// external synchronisation.
class EntryTree {
 public:
  EntryTree(const std::vector<remote::ScopeId>& scopes, uint64_t entry_limit);

  Following follow(const std::vector<remote::ScopeId>& scopes) { return scopes_.follow(scopes); }
  [[nodiscard]] std::vector<FollowedScope> followed() const { return scopes_.all(); }
  [[nodiscard]] std::optional<ScopeIndex> scope_index(const remote::ScopeId& scope) const {
    return scopes_.index_of(scope);
  }

  /// FollowedScopes::show(); returns the paths of the entries that came to the root or went from it.
  std::vector<std::string> show(const std::string& root, const std::vector<remote::ScopeId>& scopes);
  void forget_shown(std::string_view root) { scopes_.forget_shown(root); }

  enum class Change {
    kNone,     ///< the tree already had it
    kHidden,   ///< it was taken in, and no root can show it
    kVisible,  ///< an entry that some root may show came, changed, or went because it is hidden now
    kRefused,  ///< over the limit, or it would make one name a file and a directory
    kGone,     ///< the scope is no longer followed
  };
  Change set(ScopeIndex scope, const codec::Entry& entry);
  /// Removes an entry. Returns true when some root may have shown it. Entries that other scopes have
  /// set stay.
  bool remove(ScopeIndex scope, std::string_view path);

  [[nodiscard]] std::optional<KnownEntry> find(const layout::Name& name) const;
  /// Finds an entry of this scope, even if it is hidden or behind another scope's, but none whose bytes were lost.
  /// Says whether there is an entry that this root would show if nothing were hidden; lost bytes count for none.
  [[nodiscard]] bool knows(const layout::Name& name) const;
  [[nodiscard]] std::optional<codec::Entry> find_known(const remote::ScopeId& scope, std::string_view path) const;
  /// Catalog::start_list().
  [[nodiscard]] std::optional<KnownEntry> start_list(const std::string& root, std::string_view key) const;
  /// Finds an entry that the cluster has in this scope and that this host does not use, for instance because it was
  /// deleted here.
  [[nodiscard]] std::optional<codec::Digest> find_unused(const remote::ScopeId& scope, std::string_view path) const;
  using Files = std::vector<std::pair<std::string, codec::Digest>>;  ///< paths and bytes
  /// Returns what the root's scopes have under this path, or will have when the tail brings it, without what was lost:
  /// of a file of a Triton set all files of all sets in its directory.
  [[nodiscard]] Files files_of(const layout::Name& name) const;
  [[nodiscard]] bool has_directory(const layout::Name& directory) const;
  [[nodiscard]] std::vector<Child> list(const layout::Name& directory) const;
  [[nodiscard]] std::vector<KnownEntry> entries_in(const layout::Name& directory) const;
  [[nodiscard]] std::vector<KnownEntry> newest(size_t limit) const;

  struct Candidate {
    std::string path;
    bool lost = false;
  };
  /// Returns when names in this directory came or went last (nanoseconds since 1970); nothing where no entry is below
  /// it. Of what was loaded it is the latest time of its entries, so that it is the same at each start.
  [[nodiscard]] std::optional<int64_t> names_changed(const layout::Name& directory) const;
  /// Has changes count from now on with the time at which they are made.
  void note_times() { notes_times_ = true; }
  /// What is shown changes everywhere, without a change of entries.
  void all_names_changed();

  /// Lists all entries of one scope below a directory, visible or not.
  [[nodiscard]] std::vector<Candidate> candidates(const remote::ScopeId& scope, std::string_view directory) const;
  [[nodiscard]] std::vector<std::string> paths_of(ScopeIndex scope) const;
  struct Page {
    std::vector<codec::Entry> entries;
    std::optional<std::string> next;  ///< what the next page comes after; nothing behind the last page
  };
  /// Returns up to `limit` entries of a scope, visible or not, in the tree's order: those after the path `after`, which
  /// may have gone; the empty path is before all. Looks at kPageMost files at most, so a page may be empty.
  static constexpr size_t kPageMost = 16'384;
  [[nodiscard]] Page page_of(ScopeIndex scope, std::string_view after, size_t limit) const;

  /// Returns under which path the marks of a name are: that of the file in the mount, without a device's index.
  [[nodiscard]] static std::string marked_path(const layout::Name& name);
  /// Hides bytes of a path, which is a marked_path(), from its root; in the mountpoint from all roots, as far as they
  /// are of the mountpoint's scopes. The mark outlives the entry: a path that was deleted here stays
  /// away when the cluster sends it again.
  void mark_hidden(const std::string& path, const codec::Digest& digest);
  void unmark_hidden(const std::string& path, const codec::Digest& digest);
  [[nodiscard]] bool hidden_by_mark(const std::string& path, const codec::Digest& digest) const;
  /// Forgets the marks of this root and of the roots below it; returns them.
  std::vector<std::pair<std::string, codec::Digest>> unmark_root(std::string_view root);
  /// Returns marks that were given up, the oldest ones of a path that was deleted often; the caller forgets them on
  /// disk too.
  [[nodiscard]] std::vector<std::pair<std::string, codec::Digest>> take_dropped_marks();
  /// Hides lost bytes until the cluster sets the entry again, which may bring its bytes back.
  void mark_lost(std::string_view path, const codec::Digest& digest);

  /// Hides bytes that this host cannot use. One digest of a path is remembered, also for when the entry comes again.
  /// Over a limit one of them is forgotten and checked anew. No effect when no scope has these bytes under this path.
  void mark_unfit(const std::string& path, const codec::Digest& digest, const std::string& why);
  /// Returns why the entry that would be visible otherwise is unfit; empty when it is not.
  [[nodiscard]] std::string why_unfit(const layout::Name& name) const;
  /// Forgets all such marks; returns the paths that became visible.
  [[nodiscard]] std::vector<std::string> unmark_unfit();

  /// Remembers from now on which of these paths are set (and to what) or removed, because a publish that returns late
  /// must not put its entries over newer ones that the tail has brought meanwhile.
  void watch(const std::vector<std::string>& paths);
  [[nodiscard]] std::map<std::string, std::vector<codec::Digest>> end_watch();
  /// Remembers an entry that this host published and that has not been read back from the log yet. files_of() must
  /// include it, although the leaf may still show an earlier entry. Over a limit the oldest ones are forgotten.
  void await_echo(const std::string& path, const codec::Digest& digest);
  /// Returns the paths of those that the scope shows as they were published; and ends the wait for some.
  [[nodiscard]] std::set<std::string> awaited_of(ScopeIndex scope) const;
  void stop_awaiting(const std::set<std::string>& paths);
  [[nodiscard]] bool awaits() const;  ///< any, in whatever scope

  /// Returns how many entries there are, those of all followed scopes together.
  [[nodiscard]] uint64_t known() const { return known_.total(is_followed()); }
  /// Returns how many of these some root may show.
  [[nodiscard]] uint64_t visible() const { return root_.directory->visible.total(is_followed()); }
  /// Returns how many of these are start lists. Costs the number of their names.
  [[nodiscard]] uint64_t start_lists() const;
  [[nodiscard]] uint64_t marks() const { return marks_.size(); }

 private:
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
  };
  struct PathNode;
  using Children = std::map<CompactName, PathNode, CompactName::Less>;
  struct Directory;
  struct PathNode {
    std::unique_ptr<Directory> directory;  ///< nullptr for a file: most nodes are files
    std::vector<Leaf> leaves;              ///< of a file: one for each scope that has it

    [[nodiscard]] bool is_file() const { return directory == nullptr; }
    [[nodiscard]] const Children& children() const;
    [[nodiscard]] const Leaf* leaf_of(ScopeIndex scope) const;
    [[nodiscard]] bool shows(const std::function<bool(ScopeIndex)>& is_wanted) const;
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
  };
  struct Unfit {
    codec::Digest digest;
    std::string why;
  };
  using Visitor = std::function<bool(const std::string& path, const PathNode& node)>;  ///< false: no more

  [[nodiscard]] std::function<bool(ScopeIndex)> is_followed() const {
    return [this](ScopeIndex scope) { return scopes_.contains(scope); };
  }
  [[nodiscard]] bool has_entries(ScopeIndex scope) const {
    return known_.any_of([scope](ScopeIndex one) { return one == scope; });
  }
  [[nodiscard]] Trail trail_of(std::string_view path);
  [[nodiscard]] const PathNode* node_of(std::string_view path) const;
  [[nodiscard]] const Leaf* first_leaf(const PathNode& node, const std::function<bool(const Leaf&)>& counts) const;
  [[nodiscard]] static codec::Entry entry_of(const std::string& path, const Leaf& leaf);
  [[nodiscard]] KnownEntry known_of(const std::string& path, const Leaf& leaf) const;
  [[nodiscard]] std::shared_ptr<const std::string> shared_origin(const std::string& origin);
  [[nodiscard]] bool has_marks(const std::string& root) const { return !root.empty() && marked_roots_.contains(root); }
  [[nodiscard]] const Leaf* seen_set(const std::string& root, const std::string& directory, const PathNode& node) const;
  [[nodiscard]] const Leaf* seen_leaf(const std::string& root, const std::string& path, const PathNode& file,
                                      const Leaf* set) const;
  [[nodiscard]] bool shows_any(const std::string& root, const std::string& directory, const PathNode& node) const;
  [[nodiscard]] bool may_show(const std::string& root, const PathNode& node) const;
  [[nodiscard]] bool is_unfit(const std::string& path, const codec::Digest& digest) const;
  void count(const Trail& trail, ScopeIndex scope, bool before, bool after);
  void change_leaf(const Trail& trail, ScopeIndex scope, const std::function<void(std::vector<Leaf>&)>& change);
  void judge_set_again(const Trail& trail, std::string_view path, ScopeIndex scope);
  void note_time(Directory& directory);
  void note_times_above(std::string_view path);
  static bool visit(const PathNode& node, std::string& path, std::string_view after, const Visitor& visitor);
  void set_flags(std::string_view path, const codec::Digest& digest, const std::function<void(Leaf&)>& change);
  [[nodiscard]] bool is_shown_in_mountpoint(const Leaf& leaf) const {
    return scopes_.is_in(scopes_.shown_in({}), leaf.scope);
  }
  void note(std::string_view path, const codec::Digest* digest);

  bool notes_times_ = false;
  int64_t loaded_time_ = 0;        ///< of the entry that is being loaded
  int64_t all_names_changed_ = 0;  ///< all_names_changed()
  FollowedScopes scopes_;
  uint64_t entry_limit_;
  PathNode root_;
  ScopeCounts known_;  ///< the leaves, visible or not, also of scopes that are still to be removed
  std::unordered_map<std::string, std::vector<codec::Digest>> marks_;
  std::map<std::string, uint64_t, std::less<>> marked_roots_;  ///< the paths in `marks_` of each root but the empty one
  std::vector<std::pair<std::string, codec::Digest>> dropped_marks_;
  std::unordered_map<std::string, Unfit> unfit_;
  std::unordered_map<std::string, std::shared_ptr<const std::string>> origins_;
  std::set<std::string, std::less<>> watched_;
  std::map<std::string, std::vector<codec::Digest>> touched_;
  std::unordered_map<std::string, std::vector<codec::Digest>> awaited_;  ///< by path, the oldest first
  std::deque<std::string> awaited_order_;
};

}  // namespace inductorfs::catalog
