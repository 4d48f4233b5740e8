// SPDX-License-Identifier: Apache-2.0
#include "vfs/disk/early_copy.h"

#include <atomic>
#include <utility>

#include "inductorfs/base/fail_point.h"

namespace inductorfs::vfs {
namespace {

/// A worker that was killed may have left some of these names; the next one sweeps them before it serves.
std::string next_name() {
  static std::atomic<uint64_t> made{0};
  return LocalTree::in_folder(LocalTree::kOrphanFolder, "early-" + std::to_string(made.fetch_add(1)));
}

}  // namespace

EarlyCopy::EarlyCopy(EarlyCopy&& other) noexcept
    : keep_bytes_(other.keep_bytes_),
      tree_(other.tree_),
      node_(std::move(other.node_)),
      source_(other.source_),
      copy_(std::exchange(other.copy_, std::nullopt)) {}

EarlyCopy::~EarlyCopy() {
  if (copy_) (void)tree_->unlink(copy_->name);  // what stays is swept by the next worker
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
  auto copied = copy_bytes(from, to.get(), wanted(static_cast<uint64_t>(source_.st_size)));
  if (copied) {
    copy_ = File{std::move(name), std::move(to)};
  } else {
    (void)tree_->unlink(name);  // as above
  }
  fail_point("copy.early");
  return copied;
}

std::optional<EarlyCopy::File> EarlyCopy::take(int from) {
  struct stat now {};
  const bool same = copy_ && ::fstat(from, &now) == 0 && now.st_ino == source_.st_ino && now.st_dev == source_.st_dev;
  return same ? std::exchange(copy_, std::nullopt) : std::nullopt;
}

}  // namespace inductorfs::vfs
