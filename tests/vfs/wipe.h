// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <functional>
#include <string>
#include <vector>

#include "vfs/host.h"

namespace inductorfs::testing {

/// Puts the names of a directory into the order in which they are removed: a kernel gives them in any.
using Order = std::function<void(std::vector<std::string>&)>;

/// shutil.rmtree
inline Result<void> remove_tree(Host& host, const std::string& path, const Order& order = {}) {
  auto names = host.list(path);
  if (!names) return fail(Error(names.error()).with_context("list " + path));
  if (order) order(*names);
  for (const auto& name : *names) {
    const std::string below = path + "/" + name;
    const auto found = host.look_up(below);
    if (!found) return fail(Error(found.error()).with_context("look up " + below));
    auto gone = S_ISDIR(found->attributes.mode) ? remove_tree(host, below, order) : host.unlink(below);
    if (!gone) return fail(Error(gone.error()).with_context("remove " + below));
  }
  auto gone = host.remove_directory(path);
  if (gone) return gone;
  const auto left = host.list(path).value_or(std::vector<std::string>{"(not listed)"});
  std::string text = "rmdir " + path + ", which lists";
  for (const auto& name : left) text += " " + name;
  return fail(Error(gone.error()).with_context(text));
}

/// A kernel of Triton's by this process. All versions have a file in common.
inline Result<void> make_set(Host& host, const std::string& path, const std::string& version, pid_t process) {
  host.act_as(process);
  INDUCTORFS_TRY(host.triton_put(path, "k.ttir", "the same in all", process));
  INDUCTORFS_TRY(host.triton_put(path, "k.source", version, process));
  INDUCTORFS_TRY(host.triton_put(path, "k.json", "{\"writer\": \"" + version + "\"}", process));
  return host.triton_group(path, process);
}

}  // namespace inductorfs::testing
