// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

/// Computes where things are: pure functions over paths and an environment. Nothing here touches a path that it is
/// given, because the path may lie in a mount whose daemon is dead.
namespace inductorfs::config {

/// Reads one variable: getenv, or a table in tests. An empty value counts as unset.
using Environment = std::function<std::optional<std::string>(const std::string&)>;
[[nodiscard]] Environment process_environment();
/// Returns all variables of this process; of two with one name the first, as getenv(3) does.
[[nodiscard]] std::map<std::string, std::string> process_variables();

/// Returns the path as an absolute one, without ".", "..", doubled and trailing slashes; symbolic links are not
/// followed. A relative path is taken from `base`.
[[nodiscard]] std::string absolute_path(std::string_view path, const std::string& base);
[[nodiscard]] std::string working_directory();
[[nodiscard]] bool is_at_or_below(std::string_view path, std::string_view directory);
/// Returns `path` relative to `directory`, empty for the directory itself; is_at_or_below() must be true.
[[nodiscard]] std::string relative_to(std::string_view path, std::string_view directory);

/// Writes a path as one file name, in the way of `systemd-escape --path`, so that the unit's %i names the same store.
[[nodiscard]] std::string escape_path(std::string_view absolute);

struct User {
  uid_t uid = 0;
  std::string name;  ///< as Python's getpass.getuser() finds it; empty when there is none
  std::string home;  ///< empty when there is none
};
[[nodiscard]] User current_user(const Environment& environment);
/// Returns a user as the user database has it. The process must have one thread.
[[nodiscard]] User user_by_id(uid_t uid);

/// The names, in a store's directory, of the catalog's file and of the directory of the mount's local files.
inline constexpr const char* kCatalogFile = "catalog.sqlite";
inline constexpr const char* kLocalFiles = "files";
inline constexpr const char* kEnvironments = "environments";
inline constexpr const char* kLedger = "ledger";

[[nodiscard]] std::string default_store(const std::string& mountpoint, const User& user, const Environment&);
/// Returns Python's tempfile.gettempdir(), except that no file is made to try the directory.
[[nodiscard]] std::string temporary_directory(const Environment&);
/// Returns the last part of torch._inductor.runtime.cache_dir_utils.default_cache_dir.
[[nodiscard]] std::string torch_directory_name(const User& user);
[[nodiscard]] std::string torch_default_directory(const User& user, const Environment&);

/// Returns the directory of the control sockets of this user's daemons.
[[nodiscard]] std::string runtime_directory(uid_t uid, const Environment&);
[[nodiscard]] std::string socket_name(const std::string& mountpoint);

/// Makes a text printable in one line: control characters and bytes that are not UTF-8 become \xNN.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace inductorfs::config
