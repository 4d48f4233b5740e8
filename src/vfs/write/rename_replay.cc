// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include "inductorfs/layout/layout.h"
#include "inductorfs/takeover/request_slots.h"
#include "vfs/tree/paths.h"
#include "vfs/write/node_places.h"
#include "vfs/write/renames.h"

namespace inductorfs::vfs {

std::optional<Result<void>> Renames::finish_begun(const Site& from, const Site& to, RenameMode mode,
                                                  const Caller& caller) {
  const auto witness = takeover::begun_effect();
  if (!witness) return std::nullopt;
  // What goes into a Triton set goes on with the set.
  const bool into_set = to.parent->key && layout::classify(to.path).family == layout::Family::kTritonKernel &&
                        layout::classify(from.path).family == layout::Family::kTemporary;
  if (!into_set) {
    INDUCTORFS_TRY_ASSIGN(const auto finished, finish_rename(from, to, mode, *witness));
    if (finished) {
      follow_up(from, to, caller);
      return Result<void>{};
    }
  }
  return mode == RenameMode::kReplace ? finish_in_set(from, to, caller) : std::nullopt;
}

/// The earlier worker may have put the file into its set: it has no name any more.
std::optional<Result<void>> Renames::finish_in_set(const Site& from, const Site& to, const Caller& caller) {
  const auto set = moves_.read([&](const Moves& moves) -> Result<std::optional<SetOwner>> {
    if (!tree_.is_at(moves, from) || !tree_.is_at(moves, to)) return std::nullopt;
    return key_sets_.put_into_set(from, to, caller);
  });
  if (!set) return fail(set.error());
  if (!*set) return std::nullopt;
  key_sets_.commit_if_complete(to.parent, parent_path(to.path), **set, caller.pid);
  changed_names_in(from.parent);
  changed_names_in(to.parent);
  return Result<void>{};
}

/// False: it has not moved on the disk.
Result<bool> Renames::finish_rename(const Site& from, const Site& to, RenameMode mode, uint64_t witness) {
  INDUCTORFS_TRY_ASSIGN(const auto there, disk_.stat(LocalTree::view(to.path)));
  if (!there || there->st_ino != witness) return false;
  const NodePtr at_source = nodes_.child(from.parent, from.name);
  NodePtr moved = nodes_.find_local(witness);
  if (!moved && at_source && at_source->inode_number == witness) moved = at_source;
  const bool node_moved = moved && nodes_.child(to.parent, to.name) == moved;
  if (mode == RenameMode::kExchange) {
    if (moved && !node_moved) finish_exchange(from, to, moved);
    removal_.hide_moved(to.path, from.path);
  } else if (moved && !node_moved) {
    finish_move(from, to, moved);
  }
  if (moved) moved->content.with([](Content& content) { content.attributes_valid = false; });
  removal_.hide_moved(from.path, to.path);
  return true;
}

void Renames::finish_move(const Site& from, const Site& to, const NodePtr& moved) {
  const bool at_source = nodes_.child(from.parent, from.name) == moved;
  const NodePtr replaced =
      at_source ? nodes_.move(from.parent, from.name, to.parent, to.name) : nodes_.detach(to.parent, to.name);
  if (!at_source) (void)nodes_.add(to.parent, to.name, moved, 0);
  if (!replaced) return;
  if (replaced->is_regular() && places_.find_place(replaced)) changed_names_in(replaced);  // its name is gone
  tree_.let_go(nodes_.release(replaced));
}

void Renames::finish_exchange(const Site& from, const Site& to, const NodePtr& moved) {
  const auto other = disk_.stat(LocalTree::view(from.path));
  NodePtr back = other && *other ? nodes_.find_local((*other)->st_ino) : nullptr;
  if (!back) back = nodes_.child(to.parent, to.name);
  (void)nodes_.detach(from.parent, from.name);  // both names go, whatever they named
  (void)nodes_.detach(to.parent, to.name);
  (void)nodes_.add(to.parent, to.name, moved, 0);
  if (!back || back == moved) return;
  (void)nodes_.add(from.parent, from.name, back, 0);
  changed_names_in(back);
}

}  // namespace inductorfs::vfs
