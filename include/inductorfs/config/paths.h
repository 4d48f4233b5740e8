// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Where things are: pure functions over paths and an environment. Nothing here touches a path that it is given,
/// because the path may lie in a mount whose daemon is dead.
namespace inductorfs::config {

/// getenv, or a table in tests. An empty value counts as unset.
using Environment = std::function<std::optional<std::string>(const std::string&)>;
[[nodiscard]] Environment process_environment();

/// Absolute, without ".", "..", doubled and trailing slashes; symbolic links are not followed. Paths that are relative
/// are taken from `base`.
[[nodiscard]] std::string absolute_path(std::string_view path, const std::string& base);
[[nodiscard]] std::string working_directory();
[[nodiscard]] bool is_at_or_below(std::string_view path, std::string_view directory);
/// `path` relative to `directory`, empty for the directory itself. Requires: is_at_or_below.
[[nodiscard]] std::string relative_to(std::string_view path, std::string_view directory);

/// A path as one file name, in the way of `systemd-escape --path`, so that the unit's %i names the same store.
[[nodiscard]] std::string escape_path(std::string_view absolute);

struct User {
  uid_t uid = 0;
  std::string name;  ///< as Python's getpass.getuser() finds it; empty when there is none
  std::string home;  ///< empty when there is none
};
[[nodiscard]] User current_user(const Environment& environment);
/// As the user database has it. Requires: one thread.
[[nodiscard]] User user_by_id(uid_t uid);

[[nodiscard]] std::string default_store(const std::string& mountpoint, const User& user, const Environment&);
/// Python's tempfile.gettempdir(), except that no file is made to try it.
[[nodiscard]] std::string temporary_directory(const Environment&);
/// torch._inductor.runtime.cache_dir_utils.default_cache_dir; the name is its last part
[[nodiscard]] std::string torch_directory_name(const User& user);
[[nodiscard]] std::string torch_default_directory(const User& user, const Environment&);

/// Where the control sockets of this user's daemons are.
[[nodiscard]] std::string runtime_directory(uid_t uid, const Environment&);
[[nodiscard]] std::string socket_name(const std::string& mountpoint);

/// For one line of text: control characters and bytes that are no UTF-8 as \xNN.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace inductorfs::config
