// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

/// The compile caches that programs keep for a user, each with the variable that says where: what `env` prints, and
/// what `doctor` looks for. Everything is immutable; safe for concurrent use.
namespace inductorfs::layout {

struct UserCache {
  std::string_view program;
  const char* variable;
  /// The directory below the cache root that `env` gives the variable; empty: the cache root itself. Nothing when the
  /// variable is better left alone.
  const char* below;
  /// Where the cache is without the variable: begins with "~/" or, for programs that follow XDG_CACHE_HOME, with
  /// "~/.cache/" and `follows_xdg`. Empty when it lies below another cache of this table.
  std::string_view usual;
  bool follows_xdg;
  /// What the program itself appends to the value of the variable.
  std::string_view appended;
  /// Whether a mount shares anything in it.
  bool shared;
  /// Whether a program ends with an error if it may not write there.
  bool dies_read_only;
  /// What a mount does with it; or why the variable is not set.
  std::string_view why;
};

[[nodiscard]] std::span<const UserCache> user_caches();

}  // namespace inductorfs::layout
