// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/config/settings.h"

namespace inductorfs::mount {

/// A place of the host that a tree shows, at the same path. Immutable value.
struct ShownPlace {
  std::string path;
  enum class Kind { kStore, kLibraries, kReadOnly, kDevice } kind = Kind::kReadOnly;
  bool optional = true;  ///< a host need not have it
};

/// Returns what of this host's files the worker of such a mount sees: its store, the libraries that this program needs,
/// /etc, and what the links there that the resolver and TLS follow lead to. Pure but for what it asks the disk.
[[nodiscard]] std::vector<ShownPlace> shown_places(const config::Settings& settings);

/// Makes a mount namespace whose tree has the shown places and nothing else, without set-id bits, devices and, except
/// in libraries, programs; and a /proc of processes alone. Returns a descriptor of it, for setns(2), and sets
/// settings.store_root. It takes CAP_SYS_ADMIN and CAP_SYS_CHROOT, and a child; this process stays where it is. The
/// worker's user tries it there. Blocks as long as a place's disk does not answer. kNotSupported, with what this host
/// lacks. This process may have no further threads.
[[nodiscard]] Result<Fd> make_tree(config::Settings& settings);

/// Makes the tree of a mount whose worker is a user of its own, and puts it into `tree`. Where this host does not allow
/// it, settings.no_worker_tree says why, and `tree` stays empty.
void choose_worker_tree(config::Settings& settings, Fd& tree);

/// Says why a worker that is a user of its own has no tree; empty: it has one, or needs none. Pure.
[[nodiscard]] std::string worker_tree_warning(const config::Settings& settings);

}  // namespace inductorfs::mount
