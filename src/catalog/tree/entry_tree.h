// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "catalog/tree/echoes.h"
#include "catalog/tree/followed_scopes.h"
#include "catalog/tree/hidden_marks.h"
#include "catalog/tree/path_tree.h"
#include "inductorfs/catalog/catalog.h"

namespace inductorfs::catalog {

/// What this host knows of the cluster's entries, and what each root shows of them. find, has_directory and list cost
/// the path's depth and not the catalog's size.
///
/// Several scopes may hold the same path: each entry is kept. A cache root shows the one of the scope whose id sorts
/// first among the scopes that are shown there, whatever the order in which they came. A scope that is no longer
/// followed is invisible at once; its entries are removed later, one by one.
///
/// The files of a Triton set are shown together or not at all, and those of one scope only. So a set that was deleted
/// stays away when another one with some equal files is made, and one that came in its place is shown as a whole. Needs
/// external synchronisation.
class EntryTree {
 public:
  EntryTree(const std::vector<remote::ScopeId>& scopes, uint64_t entry_limit);

  Following follow(const std::vector<remote::ScopeId>& scopes) { return scopes_.follow(scopes); }
  [[nodiscard]] const FollowedScopes& scopes() const { return scopes_; }
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
  /// What is known, whoever is shown it.
  [[nodiscard]] const PathTree& paths() const { return paths_; }
  /// PathTree::note_times()
  void note_times() { paths_.note_times(); }
  void all_names_changed() { paths_.all_names_changed(); }

  // ---- What a root shows

  [[nodiscard]] std::optional<KnownEntry> find(const layout::Name& name) const;
  /// Says whether there is an entry that this root would show if nothing were hidden; lost bytes count for none.
  [[nodiscard]] bool knows(const layout::Name& name) const;
  /// Catalog::start_list().
  [[nodiscard]] std::optional<KnownEntry> start_list(const std::string& root, std::string_view key) const;
  using Files = std::vector<std::pair<std::string, codec::Digest>>;  ///< paths and bytes
  /// Returns what the root's scopes have under this path, or will have when the tail brings it, without what was lost:
  /// of a file of a Triton set all files of all sets in its directory.
  [[nodiscard]] Files files_of(const layout::Name& name) const;
  [[nodiscard]] bool has_directory(const layout::Name& directory) const;
  [[nodiscard]] std::vector<Child> list(const layout::Name& directory) const;
  [[nodiscard]] std::vector<KnownEntry> entries_in(const layout::Name& directory) const;
  [[nodiscard]] std::vector<KnownEntry> newest(size_t limit) const;

  // ---- What a scope has

  /// Finds an entry of this scope, even if it is hidden or behind another scope's, but none whose bytes were lost.
  [[nodiscard]] std::optional<codec::Entry> find_known(const remote::ScopeId& scope, std::string_view path) const;
  /// Finds an entry that the cluster has in this scope and that this host does not use, for instance because it was
  /// deleted here.
  [[nodiscard]] std::optional<codec::Digest> find_unused(const remote::ScopeId& scope, std::string_view path) const;
  struct Candidate {
    std::string path;
    bool lost = false;
  };
  /// Lists all entries of one scope below a directory, visible or not.
  [[nodiscard]] std::vector<Candidate> candidates(const remote::ScopeId& scope, std::string_view directory) const;

  // ---- What is not shown

  /// Hides bytes of a path, which is a HiddenMarks::path_of(), from its root; in the mountpoint from all roots, as far
  /// as they are of the mountpoint's scopes. Returns a mark that was given up; the caller forgets it on disk too.
  std::optional<HiddenMark> mark_hidden(const std::string& path, const codec::Digest& digest);
  void unmark_hidden(const std::string& path, const codec::Digest& digest);
  /// Forgets the marks of this root and of the roots below it; returns them.
  std::vector<HiddenMark> unmark_root(std::string_view root);
  [[nodiscard]] const HiddenMarks& marks() const { return marks_; }
  /// Hides lost bytes until the cluster sets the entry again, which may bring its bytes back.
  void mark_lost(std::string_view path, const codec::Digest& digest);
  /// Hides bytes that this host cannot use. One digest of a path is remembered, also for when the entry comes again.
  /// Over a limit one of them is forgotten and checked anew. No effect when no scope has these bytes under this path.
  void mark_unfit(const std::string& path, const codec::Digest& digest, const std::string& why);
  /// Returns why the entry that would be visible otherwise is unfit; empty when it is not.
  [[nodiscard]] std::string why_unfit(const layout::Name& name) const;
  /// Catalog::why_absent(), without the freeze and what was not read.
  [[nodiscard]] Absence why_absent(const layout::Name& name) const;
  /// Forgets all such marks; returns the paths that became visible.
  [[nodiscard]] std::vector<std::string> unmark_unfit();

  /// files_of() includes what is awaited, although the leaf may still show an earlier entry.
  [[nodiscard]] Echoes& echoes() { return echoes_; }
  /// Returns the paths of those awaited that the scope, or any, shows as they were published.
  [[nodiscard]] std::set<std::string> awaited_of(std::optional<ScopeIndex> scope = std::nullopt) const;

  /// Returns how many entries there are, those of all followed scopes together.
  [[nodiscard]] uint64_t known() const { return scopes_.total(paths_.known()); }
  /// Returns how many of these some root may show.
  [[nodiscard]] uint64_t visible() const { return scopes_.total(paths_.visible()); }
  /// Returns how many of these are start lists. Costs the number of their names.
  [[nodiscard]] uint64_t start_lists() const;

 private:
  struct Unfit {
    codec::Digest digest;
    std::string why;
  };
  [[nodiscard]] KnownEntry known_of(const std::string& path, const PathTree::Leaf& leaf) const;
  [[nodiscard]] bool is_of_mountpoint(const PathTree::Leaf& leaf) const {
    return scopes_.is_in(scopes_.shown_in({}), leaf.scope);
  }
  void note_removed(ScopeIndex scope, std::string_view path);
  void judge_set_again(const PathTree::Trail& trail, std::string_view path, ScopeIndex scope);

  FollowedScopes scopes_;
  uint64_t entry_limit_;
  PathTree paths_;
  HiddenMarks marks_;
  std::unordered_map<std::string, Unfit> unfit_;
  /// Keys of which an entry was removed: hash and scope. Over a limit the oldest are forgotten.
  std::set<std::pair<uint64_t, ScopeIndex>> removed_;
  std::deque<std::pair<uint64_t, ScopeIndex>> removed_order_;
  Echoes echoes_;
};

}  // namespace inductorfs::catalog
