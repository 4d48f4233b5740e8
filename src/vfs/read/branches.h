// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/guarded.h"
#include "vfs/read/lookup.h"
#include "vfs/tree/branch_paths.h"
#include "vfs/tree/context.h"

namespace inductorfs::vfs {

/// Answers each program for its own environment where these are learned (Host::learns()): the names that stand directly
/// in a cache root lead into the branch of the program's environment (branch_paths.h), so that all below is another
/// tree with scopes of its own, of which the kernel keeps every name and page. It keeps none of the names that lead
/// there.
///
/// A program that is neither torch's nor Triton's meets the branch that was used last and has the name, and what it
/// makes in a root is in no branch: that is everybody's, like the further places of the mount. In a directory that is
/// everybody's each environment has names of its own, as in the root itself.
///
/// Safe for concurrent use. Calls block on the local disk, and for a moment when a program is seen for the first time
/// (Host::job_of); their caller holds no lock.
class Branches : Context {
 public:
  explicit Branches(const Context& context) : Context(context) {}

  enum class Use {
    kLook,
    kMake,  ///< the kernel knows that the program sees no such name
    kRemove,
    kReplace,  ///< the target of a rename
  };
  /// Where a name that a program has asked for is. Immutable value; the directory stays known as long as it lives.
  struct Route {
    NodeId parent{};
    bool is_first = false;        ///< the kernel may not keep the name
    bool is_for_all = false;      ///< the program has no environment of its own
    std::string environment{};    ///< of the branch; empty when the name is in none
    std::shared_ptr<void> pin{};  ///< of `parent`
  };
  /// kNotFound, or kNotPermitted where it is to be made: the name is that of a branch, which nobody sees.
  [[nodiscard]] Result<Route> route(NodeId parent, std::string_view name, const Caller& caller, Use use) {
    return route(parent, name, caller, use, {});
  }
  /// The same for the target of a rename: what a program without an environment takes out of a branch goes into the
  /// branch of the same environment.
  [[nodiscard]] Result<Route> route_target(NodeId parent, std::string_view name, const Caller& caller,
                                           const Route& source) {
    return route(parent, name, caller, Use::kReplace, source.environment);
  }
  /// Returns the path of the local tree that a path of a program without an environment leads to.
  [[nodiscard]] std::string resolve(const std::string& path) const;

  [[nodiscard]] bool are_on() const { return host_.learns(); }
  /// Returns the paths of the branches of a root, the one that was used last first. It reads the root's directory.
  [[nodiscard]] std::vector<std::string> of(const std::string& root) const;
  /// Returns the directories that environments have for this one; empty when it is no common directory.
  [[nodiscard]] std::vector<std::string> directories_for(const std::string& directory) const;
  /// Says whether a program of the environment of this directory, which is a branch or in one, has made or removed a
  /// first name there while this worker lives.
  [[nodiscard]] bool has_worked(const std::string& directory) const;
  /// Checks whether the rename of what is at a path takes all with it that programs see there; else kCrossDevice, which
  /// `mv` answers by copying.
  [[nodiscard]] Result<void> check_move(const std::string& from, const std::string& to) const;
  /// Returns those of them that a program sees.
  [[nodiscard]] std::vector<std::string> seen_by(const std::string& directory, const Caller& caller);

  /// The most environments that share one root; the programs of further ones share nothing there until unused ones are
  /// removed (BranchRemoval). Of the users whose programs share nothing, as many have a directory of their own.
  static constexpr size_t kMost = 64;

 private:
  /// The directory that a program has named, and where it was then. As long as it is there, the root that it lies in is
  /// the program's; another user may have got the root's path since.
  struct Asked {
    NodePtr directory;
    std::string path;
  };
  [[nodiscard]] bool is_still(const Moves& moves, const Asked& asked) const;
  [[nodiscard]] Result<Route> route(NodeId parent, std::string_view name, const Caller& caller, Use use,
                                    const std::string& environment);
  [[nodiscard]] Result<Route> route_for_all(const Asked& asked, const CommonDirectory& common, std::string_view name,
                                            Use use, const std::string& environment, Route as_it_is);
  [[nodiscard]] bool is_everybodys(const CommonDirectory& common, std::string_view name) const;
  [[nodiscard]] bool has(const std::string& branch, std::string_view path) const;
  [[nodiscard]] std::string branch_for(const std::string& root, const Job& job, uid_t user) const;
  [[nodiscard]] std::optional<std::string> shared_branch(const CommonDirectory& common, std::string_view name);
  /// Empty where something else has the name.
  [[nodiscard]] Result<std::string> own_branch(const Asked& asked, const std::string& root, const Job& job, uid_t user);
  [[nodiscard]] bool is_full(const std::string& root, bool of_known) const;
  [[nodiscard]] Result<void> make(const std::string& root, const std::string& branch) const;
  [[nodiscard]] Result<void> make(const Asked& asked, const std::string& root, const std::string& branch) const;
  [[nodiscard]] Result<Route> into(const Asked& asked, const std::string& branch, const CommonDirectory& common) const;
  [[nodiscard]] bool make_room(const std::string& root, bool of_known) const;
  [[nodiscard]] bool remove_looked_at(const std::string& branch) const;
  void note_use(const std::string& branch, Use use);

  struct Used {
    int64_t at = 0;      ///< the number of the use
    SteadyTime noted{};  ///< when the disk was told
  };
  struct Uses {
    std::map<std::string, Used> branches;
    /// By path: the branch in which a program without an environment was shown it. What it removes is there.
    std::map<std::string, std::string> shown;
    /// Branches that found no room, by path: their programs have written elsewhere, and stay there.
    std::set<std::string> turned_away;
    /// Branches in which somebody has made or removed a first name.
    std::set<std::string> worked;
    int64_t count = 0;
  };
  mutable Guarded<Uses> uses_;
};

}  // namespace inductorfs::vfs
