// SPDX-License-Identifier: Apache-2.0
#include "vfs/disk/early_copy.h"

#include <sys/xattr.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <utility>

#include "inductorfs/base/fail_point.h"

namespace inductorfs::vfs {
namespace {

/// A worker that was killed may have left some of these names; the next one sweeps them before it serves.
std::string next_name() {
  static std::atomic<uint64_t> made{0};
  return LocalTree::in_folder(LocalTree::kOrphanFolder, "early-" + std::to_string(made.fetch_add(1)));
}

/// A mark of ours that cannot be read is an error: without it the copy would be another's, or shared.
Result<void> copy_xattrs(int from, int to) {
  std::array<char, LocalTree::kXattrLimit> names{};
  const ssize_t length = ::flistxattr(from, names.data(), names.size());
  std::string value(LocalTree::kXattrLimit, '\0');
  for (ssize_t at = 0; at < length;) {
    const std::string name(names.data() + at);
    at += static_cast<ssize_t>(name.size()) + 1;
    if (name == kSealMark || name == kEntryMark) continue;
    const ssize_t size = ::fgetxattr(from, name.c_str(), value.data(), value.size());
    if (size < 0 && errno != ENODATA && name.starts_with("user.inductorfs.")) return fail_errno("getxattr", name);
    if (size < 0) continue;
    // What the disk refuses on a copy (security labels, say) it would have refused to the program itself.
    (void)::fsetxattr(to, name.c_str(), value.data(), static_cast<size_t>(size), 0);
  }
  return {};
}

}  // namespace

EarlyCopy::~EarlyCopy() {
  if (copy_ && copy_->file) (void)tree_->unlink(copy_->name);  // what stays is swept by the next worker
  if (node_) node_->content.notify_with([](Content& content) { content.copying = false; });
}

void EarlyCopy::begin(const LocalTree& tree, NodePtr node, Content& content) {
  content.copying = true;
  tree_ = &tree;
  node_ = std::move(node);
}

Result<void> EarlyCopy::fill(int from) {
  if (::fstat(from, &source_) != 0) return fail_errno("stat");
  std::string name = next_name();
  (void)tree_->unlink(name);  // it may be left by a worker that was killed
  INDUCTORFS_TRY_ASSIGN(auto to, tree_->create_file(name));
  const auto copied = copy_bytes(bytes_of(from), to.get(), wanted(static_cast<uint64_t>(source_.st_size)));
  if (copied) {
    copy_ = File{std::move(name), std::move(to)};
  } else {
    (void)tree_->unlink(name);  // as above
  }
  fail_point("copy.early");
  return copied ? Result<void>{} : fail(copied.error());
}

std::optional<EarlyCopy::File> EarlyCopy::take(int from) {
  struct stat now {};
  const bool same = copy_ && ::fstat(from, &now) == 0 && now.st_ino == source_.st_ino && now.st_dev == source_.st_dev;
  return same ? std::exchange(copy_, std::nullopt) : std::nullopt;
}

Result<void> EarlyCopy::unshare(const LocalTree& tree, const std::string& path) {
  INDUCTORFS_TRY_ASSIGN(const auto from, tree.open_file(path, false));
  INDUCTORFS_TRY_ASSIGN(const auto status, status_of(from.get()));
  // Beside the other nameless files, so that the copy never shows in the view.
  auto made = take(from.get());
  const bool copied = made.has_value();
  const std::string copy =
      copied ? made->name : LocalTree::in_folder(LocalTree::kOrphanFolder, "copy-" + std::to_string(status.st_ino));
  if (!copied) (void)tree.unlink(copy);  // left by a copy that failed
  INDUCTORFS_TRY_ASSIGN(auto to, copied ? Result<Fd>(std::move(made->file)) : tree.create_file(copy));
  const auto undo = [&](Error error) -> Result<void> {
    (void)tree.unlink(copy);  // the error that is reported came first
    return fail(std::move(error));
  };
  const uint64_t rest = copied ? 0 : wanted(static_cast<uint64_t>(status.st_size));
  if (auto written = copy_bytes(bytes_of(from.get()), to.get(), rest); !written) return undo(written.error());
  if (auto marked = copy_xattrs(from.get(), to.get()); !marked) return undo(marked.error());
  mark_changed(to.get(), status.st_ino);
  if (auto given = tree.charges().give_copy(to.get(), {status.st_uid, status.st_gid, status.st_mode}, status.st_ino);
      !given) {
    return undo(given.error());
  }
  const struct timespec times[2] = {status.st_atim, status.st_mtim};
  (void)::futimens(to.get(), times);  // the write that follows changes them anyway
  fail_point("unshare.copied");
  if (auto renamed = tree.rename(copy, path); !renamed) return undo(renamed.error());
  fail_point("unshare.renamed");
  return {};
}

}  // namespace inductorfs::vfs
