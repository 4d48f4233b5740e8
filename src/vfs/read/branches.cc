// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/branches.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "inductorfs/base/log.h"
#include "inductorfs/base/own_user.h"
#include "vfs/tree/paths.h"

namespace inductorfs::vfs {
namespace {

/// How exactly the disk tells which branch was used last, for the next worker.
constexpr std::chrono::seconds kNoteAgain{60};
/// Uses that are remembered: of a mount's roots some at once, of each some.
constexpr size_t kUsesKept = 4096;

}  // namespace

/// Says whether a branch has something at this path in it, or shows the cluster's.
bool Branches::has(const std::string& branch, std::string_view below) const {
  const std::string path = join(branch, below);
  const auto status = disk_.stat(LocalTree::view(path));
  if (status && *status) return true;
  const auto entry = layout::name_of(path);
  return known_roots_.lists_cluster(entry) && (catalog_.has_directory(entry) || catalog_.find(entry));
}

std::vector<std::string> Branches::of(const std::string& root) const {
  struct One {
    int64_t used = 0;
    int64_t changed = 0;
    std::string path;
  };
  std::vector<One> found;
  for (const auto& item : disk_.list(LocalTree::view(root)).value_or(std::vector<LocalTree::Item>{})) {
    if (!is_branch_name(item.name) || item.type != S_IFDIR) continue;
    One one{0, 0, join(root, item.name)};
    const auto status = disk_.stat(LocalTree::view(one.path));
    if (status && *status) one.changed = (*status)->st_mtim.tv_sec;
    found.push_back(std::move(one));
  }
  uses_.with([&](const Uses& uses) {
    for (One& one : found) {
      const auto known = uses.branches.find(one.path);
      if (known != uses.branches.end()) one.used = known->second.at;
    }
  });
  std::ranges::sort(found, [](const One& a, const One& b) {
    return std::tie(b.used, b.changed, a.path) < std::tie(a.used, a.changed, b.path);
  });
  std::vector<std::string> paths;
  paths.reserve(found.size());
  for (One& one : found) paths.push_back(std::move(one.path));
  return paths;
}

std::vector<std::string> Branches::directories_for(const std::string& directory) const {
  std::vector<std::string> found;
  for (const CommonDirectory& common : common_readings(directory)) {
    for (const auto& branch : of(common.root)) found.push_back(common.in(branch));
  }
  return found;
}

bool Branches::has_worked(const std::string& directory) const {
  const size_t begin = directory.find(branch_name(""));
  if (begin == std::string::npos) return false;
  const std::string branch = directory.substr(0, directory.find('/', begin));
  return uses_.with([&](const Uses& uses) { return uses.worked.contains(branch); });
}

Result<void> Branches::check_move(const std::string& from, const std::string& to) const {
  if (!are_on()) return {};
  const auto status = disk_.stat(LocalTree::view(from));
  if (!status || !*status || !S_ISDIR((*status)->st_mode)) return {};
  const size_t slash = to.rfind('/');
  const bool is_below = slash != std::string::npos;
  // A root in a directory of a layout is none.
  const bool ends_root =
      common_directory(is_below ? to.substr(0, slash) : std::string(), to.substr(is_below ? slash + 1 : 0)).has_value();
  for (const CommonDirectory& common : common_readings(from)) {
    for (const auto& branch : of(common.root)) {
      const std::string place = LocalTree::view(common.in(branch));
      const auto there = disk_.stat(place);
      const bool stays = !common.below.empty() && there && *there && !disk_.is_empty(place);
      if (common.below.empty() ? ends_root : stays) {
        return fail(ErrorCode::kCrossDevice, from + ": programs of several environments have names of their own in it");
      }
    }
  }
  return {};
}

std::vector<std::string> Branches::seen_by(const std::string& directory, const Caller& caller) {
  auto all = directories_for(directory);
  if (all.empty()) return all;
  const Job job = host_.job_of(caller.pid, false);
  if (job.kind == Job::Kind::kNone) return all;
  if (job.kind == Job::Kind::kLater) return {};
  std::vector<std::string> own;
  for (const CommonDirectory& common : common_readings(directory)) {
    own.push_back(common.in(branch_for(common.root, job, caller.uid)));
  }
  std::erase_if(all, [&](const std::string& one) { return std::ranges::find(own, one) == own.end(); });
  return all;
}

/// Of a program whose branch found no room it is the one that all such programs of its user have.
std::string Branches::branch_for(const std::string& root, const Job& job, uid_t user) const {
  std::string of_user = join(root, branch_name(unknown_environment(user)));
  return uses_.with([&](const Uses& uses) {
    if (job.kind == Job::Kind::kKnown) {
      std::string branch = join(root, branch_name(job.environment));
      if (!uses.turned_away.contains(branch)) return branch;
    }
    return uses.turned_away.contains(of_user) ? join(root, branch_name(kUnknownEnvironment)) : std::move(of_user);
  });
}

std::optional<std::string> Branches::shared_branch(const CommonDirectory& common, std::string_view name) {
  const auto all = of(common.root);
  const std::string below = common.path_of(name);
  const std::string path = join(common.root, below);
  // Who has deleted all that is in a directory goes on with that directory, although another branch has one too.
  const std::string shown = uses_.with([&](const Uses& uses) {
    const auto known = uses.shown.find(path);
    return known == uses.shown.end() ? std::string() : known->second;
  });
  if (std::ranges::find(all, shown) != all.end() && !has(shown, below) && nodes_.find(join(shown, below))) {
    return shown;
  }
  for (const auto& branch : all) {
    if (!has(branch, below)) continue;
    uses_.with([&](Uses& uses) {
      if (uses.shown.size() >= kUsesKept) uses.shown.clear();
      uses.shown.insert_or_assign(path, branch);
    });
    return branch;
  }
  return std::nullopt;
}

bool Branches::is_still(const Moves& /*moves*/, const Asked& asked) const {
  return nodes_.path_of(*asked.directory) == asked.path;
}

Result<void> Branches::make(const Asked& asked, const std::string& root, const std::string& branch) const {
  return moves_.read(
      [&](const Moves& moves) { return is_still(moves, asked) ? make(root, branch) : fail(ErrorCode::kNotFound); });
}

Result<void> Branches::make(const std::string& root, const std::string& branch) const {
  INDUCTORFS_TRY_ASSIGN(const auto status, disk_.stat(LocalTree::view(root)));
  if (!status) return fail(ErrorCode::kNotFound);
  const std::string place = LocalTree::view(branch);
  const auto made = disk_.make_directory(place);
  if (!made) return made.error().code() == ErrorCode::kExists ? Result<void>{} : made;
  // What is made there gets the group that it would have got in the root.
  return disk_.give_to(place, {own_uid(), status->st_gid, status->st_mode});
}

bool Branches::is_full(const std::string& root, bool of_known) const {
  const auto all = of(root);
  const auto is_known = [](const std::string& branch) {
    return !environment_in(branch).starts_with(kUnknownEnvironment);
  };
  return static_cast<size_t>(std::ranges::count(all, of_known, is_known)) >= kMost;
}

/// Removes a branch that has nothing on this host, or only directories in which nobody has made anything: a mere look
/// makes these, so that anybody who may read the root could fill it.
bool Branches::make_room(const std::string& root, bool of_known) const {
  auto all = of(root);
  std::ranges::reverse(all);  // the one that was not used for longest first
  for (const auto& branch : all) {
    if (environment_in(branch).starts_with(kUnknownEnvironment) == of_known) continue;
    if (moves_.read([&](const Moves&) { return remove_looked_at(branch); })) return true;
  }
  return false;
}

bool Branches::remove_looked_at(const std::string& branch) const {
  const auto items = disk_.list(LocalTree::view(branch)).value_or(std::vector<LocalTree::Item>{});
  const bool is_mere_look = !has_worked(branch) && std::ranges::all_of(items, [&](const auto& item) {
    return item.type == S_IFDIR && !tree_.has_something(join(branch, item.name));
  });
  for (const auto& item : is_mere_look ? items : std::vector<LocalTree::Item>{}) {
    (void)tree_.remove_directory(join(branch, item.name));  // else the branch stays
  }
  return tree_.remove_directory(branch).has_value();
}

Result<std::string> Branches::own_branch(const Asked& asked, const std::string& root, const Job& job, uid_t user) {
  std::string branch = branch_for(root, job, user);
  INDUCTORFS_TRY_ASSIGN(const auto status, disk_.stat(LocalTree::view(branch)));
  // Under another policy anybody may make such a name. What make() has made is the daemon's.
  if (status) return S_ISDIR(status->st_mode) && status->st_uid == own_uid() ? branch : std::string();
  const auto environment = environment_in(branch);
  const bool is_known = !environment.starts_with(kUnknownEnvironment);
  const auto finds_room = [&](const Moves& moves) { return is_still(moves, asked) && make_room(root, is_known); };
  if (environment != kUnknownEnvironment && is_full(root, is_known) && !moves_.read(finds_room)) {
    uses_.with([&](Uses& uses) {
      if (uses.turned_away.size() >= kUsesKept) uses.turned_away.clear();
      uses.turned_away.insert(branch);
    });
    counters_.get("view.too_many_environments").add();
    log::write_limited(log::Level::kWarning, "view.too_many_environments", {{"root", root}, {"most", kMost}});
    return own_branch(asked, root, job, user);
  }
  INDUCTORFS_TRY(make(asked, root, branch));
  return branch;
}

void Branches::note_use(const std::string& branch, Use use) {
  const auto now = std::chrono::steady_clock::now();
  const bool is_due = uses_.with([&](Uses& uses) {
    if (use != Use::kLook) {
      if (uses.worked.size() >= kUsesKept) uses.worked.clear();
      uses.worked.insert(branch);
    }
    if (uses.branches.size() >= kUsesKept && !uses.branches.contains(branch)) uses.branches.clear();
    const auto [used, is_new] = uses.branches.try_emplace(branch);
    used->second.at = ++uses.count;
    if (!is_new && now - used->second.noted < kNoteAgain) return false;
    used->second.noted = now;
    return true;
  });
  if (is_due) (void)disk_.set_times(LocalTree::view(branch), nullptr);
}

Result<Branches::Route> Branches::into(const Asked& asked, const std::string& branch,
                                       const CommonDirectory& common) const {
  const std::string directory = common.in(branch);
  auto node = lookup_.pin_path(directory);
  if (!node && node.error().code() == ErrorCode::kNotFound && directory != branch) {
    INDUCTORFS_TRY(moves_.read([&](const Moves& moves) {
      return is_still(moves, asked) ? tree_.make_view_directories(directory) : fail(ErrorCode::kNotFound);
    }));
    node = lookup_.pin_path(directory);
  }
  if (!node) return fail(std::move(node).error());
  const bool belongs =
      moves_.read([&](const Moves& moves) { return is_still(moves, asked) && nodes_.path_of(**node) == directory; });
  if (!belongs) {
    tree_.unpin(*node);
    return fail(ErrorCode::kNotFound);
  }
  return Route{(*node)->id, true, false, std::string(environment_in(branch)),
               std::shared_ptr<void>(node->get(), [this, pinned = *node](void*) { tree_.unpin(pinned); })};
}

/// The further places are for all programs of a host, like torch's default directory that they stand for.
bool Branches::is_everybodys(const CommonDirectory& common, std::string_view name) const {
  const std::string below = common.path_of(name);
  const auto leads_to = [&](const std::string& place) { return place == below || place.starts_with(below + "/"); };
  if (common.root.empty() && std::ranges::any_of(options_.further_places, leads_to)) return true;
  const auto status = disk_.stat(LocalTree::view(join(common.root, below)));
  return status && *status;
}

Result<Branches::Route> Branches::route(NodeId parent, std::string_view name, const Caller& caller, Use use,
                                        const std::string& environment) {
  Route as_it_is{parent};
  const bool is_made = use == Use::kMake || use == Use::kReplace;
  // Under each policy: the next mount may be one that learns.
  if (is_branch_name(name)) return fail(is_made ? ErrorCode::kNotPermitted : ErrorCode::kNotFound);
  if (!are_on()) return as_it_is;
  const NodePtr directory = nodes_.find(parent);
  const auto path = directory ? nodes_.path_of(*directory) : std::nullopt;
  const auto common = path ? common_directory(*path, name) : std::nullopt;
  if (!common) {
    if (path) as_it_is.environment = environment_in(*path);
    if (path && as_it_is.environment.empty() && use == Use::kLook) host_.expect_job(caller.pid);
    return as_it_is;
  }
  as_it_is.is_first = true;
  const bool is_there = is_everybodys(*common, name);
  if (is_there && use != Use::kRemove) return as_it_is;
  const Job job = host_.job_of(caller.pid, is_made);
  as_it_is.is_for_all = job.kind == Job::Kind::kNone;
  if (is_there) return as_it_is;
  // A miss that the kernel does not keep: the next lookup may find that the environment is known.
  if (job.kind == Job::Kind::kLater) return fail(ErrorCode::kNotFound);
  const Asked asked{directory, *path};
  if (as_it_is.is_for_all) return route_for_all(asked, *common, name, use, environment, std::move(as_it_is));
  auto branch = own_branch(asked, common->root, job, caller.uid);
  // A disk that is full must not keep a program from its miss.
  if (!branch && use == Use::kLook) return as_it_is;
  if (!branch) return fail(std::move(branch).error());
  if (branch->empty()) return as_it_is;
  note_use(*branch, use);
  return into(asked, *branch, *common);
}

Result<Branches::Route> Branches::route_for_all(const Asked& asked, const CommonDirectory& common,
                                                std::string_view name, Use use, const std::string& environment,
                                                Route as_it_is) {
  if (use == Use::kMake) return as_it_is;
  auto branch = shared_branch(common, name);
  if (!branch && use == Use::kReplace && !environment.empty()) {
    branch = join(common.root, branch_name(environment));
    INDUCTORFS_TRY(make(asked, common.root, *branch));
  }
  if (!branch) return as_it_is;
  INDUCTORFS_TRY_ASSIGN(auto found, into(asked, *branch, common));
  found.is_for_all = true;
  return found;
}

std::string Branches::resolve(const std::string& path) const {
  if (!are_on()) return path;
  const size_t slash = path.rfind('/');
  const bool is_below = slash != std::string::npos;
  const std::string name = path.substr(is_below ? slash + 1 : 0);
  const auto common = common_directory(is_below ? path.substr(0, slash) : std::string(), name);
  if (!common || name.empty()) return path;
  const auto in_root = disk_.stat(LocalTree::view(path));
  if (in_root && *in_root) return path;
  const std::string below = common->path_of(name);
  const auto all = of(common->root);
  // The whole path may be in one that was not used last.
  for (const std::string& wanted : {below, below.substr(0, below.find('/'))}) {
    for (const auto& branch : all) {
      if (has(branch, wanted)) return join(branch, below);
    }
  }
  return path;
}

}  // namespace inductorfs::vfs
