// SPDX-License-Identifier: Apache-2.0
#include "vfs/read/branches.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "inductorfs/base/log.h"
#include "vfs/tree/paths.h"

namespace inductorfs::vfs {
namespace {

/// How exactly the disk tells which branch was used last, for the next worker.
constexpr std::chrono::seconds kNoteAgain{60};
/// Uses that are remembered: of a mount's roots some at once, of each some.
constexpr size_t kUsesKept = 4096;

}  // namespace

bool Branches::has(const std::string& branch, std::string_view name) const {
  const std::string path = join(branch, std::string(name));
  const auto status = disk_.stat(LocalTree::view(path));
  if (status && *status) return true;
  const auto entry = layout::name_of(path);
  return tree_.lists_cluster(entry) && (catalog_.has_directory(entry) || catalog_.find(entry));
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

std::vector<std::string> Branches::seen_by(const std::string& root, const Caller& caller) {
  auto all = of(root);
  if (all.empty()) return all;
  const Job job = host_.job_of(caller.pid);
  if (job.kind == Job::Kind::kNone) return all;
  const std::string own = branch_for(root, job);
  std::erase_if(all, [&](const std::string& one) { return one != own; });
  return all;
}

/// Of a program whose branch found no room it is the one that all such programs have.
std::string Branches::branch_for(const std::string& root, const Job& job) const {
  const std::string unknown = join(root, branch_name(kUnknownEnvironment));
  if (job.kind != Job::Kind::kKnown) return unknown;
  std::string branch = join(root, branch_name(job.environment));
  return uses_.with([&](const Uses& uses) { return uses.turned_away.contains(branch) ? unknown : std::move(branch); });
}

std::optional<std::string> Branches::shared_branch(const std::string& root, std::string_view name, Use use) {
  const auto all = of(root);
  const std::string path = join(root, name);
  // Who has deleted all that is in a directory goes on with that directory, although another branch has one too.
  const std::string shown = uses_.with([&](const Uses& uses) {
    const auto known = uses.shown.find(path);
    return known == uses.shown.end() ? std::string() : known->second;
  });
  if (std::ranges::find(all, shown) != all.end() && !has(shown, name) &&
      tree_.nodes().walk(join(shown, name)).missing.empty()) {
    return shown;
  }
  for (const auto& branch : all) {
    if (!has(branch, name)) continue;
    uses_.with([&](Uses& uses) {
      if (uses.shown.size() >= kUsesKept) uses.shown.clear();
      uses.shown.insert_or_assign(path, branch);
    });
    return branch;
  }
  return use == Use::kMake && !all.empty() ? std::optional(all.front()) : std::nullopt;
}

Result<void> Branches::make(const std::string& root, const std::string& branch) const {
  INDUCTORFS_TRY_ASSIGN(const auto status, disk_.stat(LocalTree::view(root)));
  if (!status) return fail(ErrorCode::kNotFound);
  const std::string place = LocalTree::view(branch);
  if (::mkdirat(disk_.fd(), place.c_str(), 0700) != 0) {
    if (errno == EEXIST) return {};
    return fail_errno("mkdir", place);
  }
  // What is made there gets the group that it would have got in the root.
  if (::geteuid() == 0 && ::fchownat(disk_.fd(), place.c_str(), 0, status->st_gid, AT_SYMLINK_NOFOLLOW) != 0) {
    return fail_errno("chown", place);
  }
  if (::fchmodat(disk_.fd(), place.c_str(), status->st_mode & 07777, 0) != 0) return fail_errno("chmod", place);
  return {};
}

Result<std::string> Branches::own_branch(const std::string& root, const Job& job) {
  std::string branch = branch_for(root, job);
  INDUCTORFS_TRY_ASSIGN(const auto status, disk_.stat(LocalTree::view(branch)));
  // Under another policy anybody may make such a name. What make() has made is the daemon's.
  if (status) return S_ISDIR(status->st_mode) && status->st_uid == ::geteuid() ? branch : std::string();
  const std::string unknown = join(root, branch_name(kUnknownEnvironment));
  if (branch != unknown && of(root).size() >= kMost) {
    uses_.with([&](Uses& uses) {
      if (uses.turned_away.size() >= kUsesKept) uses.turned_away.clear();
      uses.turned_away.insert(branch);
    });
    counters_.get("view.too_many_environments").add();
    log::write_limited(log::Level::kWarning, "view.too_many_environments", {{"root", root}, {"most", kMost}});
    return own_branch(root, job);
  }
  INDUCTORFS_TRY(make(root, branch));
  return branch;
}

void Branches::note_use(const std::string& branch) {
  const auto now = std::chrono::steady_clock::now();
  const bool is_due = uses_.with([&](Uses& uses) {
    if (uses.branches.size() >= kUsesKept && !uses.branches.contains(branch)) uses.branches.clear();
    const auto [used, is_new] = uses.branches.try_emplace(branch);
    used->second.at = ++uses.count;
    if (!is_new && now - used->second.noted < kNoteAgain) return false;
    used->second.noted = now;
    return true;
  });
  if (is_due) (void)::utimensat(disk_.fd(), LocalTree::view(branch).c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

Result<Branches::Route> Branches::into(const std::string& branch) const {
  INDUCTORFS_TRY_ASSIGN(auto node, lookup_.pin_path(branch));
  const NodeId id = node->id;
  return Route{id, true, false, std::shared_ptr<void>(node.get(), [this, node](void*) { tree_.unpin(node); })};
}

Result<Branches::Route> Branches::route(NodeId parent, std::string_view name, const Caller& caller, Use use) {
  Route as_it_is{parent};
  if (!are_on()) return as_it_is;
  if (is_branch_name(name)) return fail(use == Use::kMake ? ErrorCode::kNotPermitted : ErrorCode::kNotFound);
  const NodePtr directory = tree_.nodes().find(parent);
  const auto root = directory ? tree_.nodes().path_of(*directory) : std::nullopt;
  if (!root || !is_first_name(*root, name)) return as_it_is;
  as_it_is.is_first = true;
  const auto in_root = disk_.stat(LocalTree::view(join(*root, std::string(name))));
  if (in_root && *in_root) return as_it_is;
  const Job job = host_.job_of(caller.pid);
  if (job.kind == Job::Kind::kNone) {
    as_it_is.is_for_all = true;
    const auto branch = shared_branch(*root, name, use);
    if (!branch) return as_it_is;
    INDUCTORFS_TRY_ASSIGN(auto found, into(*branch));
    found.is_for_all = true;
    return found;
  }
  auto branch = own_branch(*root, job);
  // A disk that is full must not keep a program from its miss.
  if (!branch && use == Use::kLook) return as_it_is;
  if (!branch) return fail(std::move(branch).error());
  if (branch->empty()) return as_it_is;
  note_use(*branch);
  return into(*branch);
}

std::string Branches::resolve(const std::string& path) const {
  if (!are_on()) return path;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string directory = begin == 0 ? std::string() : path.substr(0, begin - 1);
    const std::string name = path.substr(begin, end - begin);
    if (!is_first_name(directory, name)) {
      begin = end + 1;
      continue;
    }
    const auto in_root = disk_.stat(LocalTree::view(join(directory, name)));
    if (in_root && *in_root) return path;
    const auto all = of(directory);
    // The whole path may be in one that was not used last.
    for (const bool whole : {true, false}) {
      for (const auto& branch : all) {
        if (has(branch, whole ? path.substr(begin) : name)) return join(branch, path.substr(begin));
      }
    }
    return path;
  }
  return path;
}

}  // namespace inductorfs::vfs
