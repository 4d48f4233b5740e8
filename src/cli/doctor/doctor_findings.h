// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/config/json_forward.h"
#include "inductorfs/layout/user_caches.h"

namespace inductorfs::remote {
struct ServerExamination;
}  // namespace inductorfs::remote

/// What `doctor` finds: a line for each thing that it has looked at. These functions look at no daemon and at no mount.
namespace inductorfs::cli {

struct Diagnosis {
  enum class Kind {
    kGood,
    kNote,     ///< nothing is wrong, but it may surprise
    kWarning,  ///< something is not shared, or slower than it could be
    kBad,      ///< it does not work
  };
  Kind kind = Kind::kGood;
  std::string what;
  std::string remedy;  ///< empty for kGood
  bool operator==(const Diagnosis&) const = default;
};
[[nodiscard]] std::string_view to_string(Diagnosis::Kind kind);

/// Returns two lines for each finding that has a remedy, one for each other, and how many are bad.
[[nodiscard]] std::string findings_text(const std::vector<Diagnosis>& findings);

/// Findings about one mount, of its answer to `status`; `error` of it says why there is none. `user` is the one who
/// asks.
[[nodiscard]] std::vector<Diagnosis> findings_of_mount(const config::Json& status, uid_t user);

/// A variable of this process; empty when it is not set.
using GetVariable = std::function<std::optional<std::string>(const char* name)>;
/// Returns the mountpoint of the inductorfs mount that a path lies in; empty when it lies in none.
using MountOf = std::function<std::string(const std::string& path)>;
/// Findings about the variables that torch and Triton read. `mountpoint` is one that the remedies name.
[[nodiscard]] std::vector<Diagnosis> findings_of_variables(const GetVariable& variable, const MountOf& mount_of,
                                                           const std::string& mountpoint);

/// Findings about the caches that torch, Triton and serving engines make in the user's directories, if they lie in no
/// mount: one line with the size of each, as the user sees it. Sizes are those found until the deadline; a file system
/// that does not answer costs no more.
[[nodiscard]] std::vector<Diagnosis> findings_of_caches(const GetVariable& variable, const MountOf& mount_of,
                                                        const std::string& home, const std::string& torch_directory,
                                                        Deadline deadline);
/// Returns where a cache is: by its variable, else where the program puts it. Empty when that is below another cache.
[[nodiscard]] std::string place_of(const layout::UserCache& cache, const GetVariable& variable,
                                   const std::string& home);
/// Findings about the caches of serving engines: variables that lead into no mount or to where they may not write, and
/// on which files of its cache root vLLM ends with an error. A file system that does not answer costs no more than the
/// deadline.
[[nodiscard]] std::vector<Diagnosis> findings_of_engines(const GetVariable& variable, const MountOf& mount_of,
                                                         const std::string& mountpoint, const std::string& home,
                                                         Deadline deadline);
/// The inductorfs mount that a path of this user lies in, by the list of mounts; empty without one.
[[nodiscard]] std::string mount_around(const std::string& path);
/// Whether torch's default directory shows the precompiled headers of a mount.
[[nodiscard]] std::optional<Diagnosis> finding_of_headers(const MountOf& mount_of, const std::string& torch_directory);

/// `release` is that of uname(2).
[[nodiscard]] Diagnosis finding_of_kernel(const std::string& release);
/// Whether a user other than root may mount with --allow-other; `configuration` is /etc/fuse.conf.
[[nodiscard]] std::optional<Diagnosis> finding_of_allow_other(bool wanted, uid_t user,
                                                              const std::string& configuration);
/// `table` is the text of /proc/self/mountinfo.
[[nodiscard]] std::optional<Diagnosis> finding_of_propagation(const std::string& table, const std::string& mountpoint);
/// `daemon` is /proc/PID of the worker that serves the mount.
[[nodiscard]] std::optional<Diagnosis> finding_of_pid_namespace(const std::string& daemon,
                                                                const std::string& mountpoint);
/// Whether this user may write there: to a mountpoint, or to where a variable leads. The mount must have answered.
[[nodiscard]] std::optional<Diagnosis> finding_of_access(const std::string& directory,
                                                         const std::string& variable = {});
/// Returns the size of the disk of a store, which may not be made yet. Blocks on that disk.
[[nodiscard]] std::optional<uint64_t> size_of_disk(const std::string& directory);
/// Whether the disk of a store is smaller than its limit.
[[nodiscard]] std::optional<Diagnosis> finding_of_disk(const std::string& directory, uint64_t limit, uint64_t size);

/// Returns the paths of the stores in this directory that no mount has, each with a zero byte behind it: those of ended
/// mounts, which stay. Blocks on their disk.
[[nodiscard]] std::string stores_without_a_mount(const std::string& directory);
[[nodiscard]] std::optional<Diagnosis> finding_of_stores(std::string_view paths);

/// Findings about a server that answered, and about one that did not (`error` names it).
[[nodiscard]] std::vector<Diagnosis> findings_of_server(const remote::ServerExamination& server);
[[nodiscard]] Diagnosis finding_of_no_server(const std::string& error);

/// Findings about the device /dev/fuse at this path, and the program that mounts for ordinary users.
[[nodiscard]] Diagnosis finding_of_device(const std::string& path);
[[nodiscard]] Diagnosis finding_of_helper(const std::string& search);
/// Whether one job would fill a store with this limit; 0: not known. `store` begins the line.
[[nodiscard]] std::optional<Diagnosis> finding_of_limit(const std::string& store, uint64_t limit);
/// `type` is that of the file system which the store lies on, as the table of mounts has it.
[[nodiscard]] Diagnosis finding_of_store(const std::string& directory, std::string_view type);

}  // namespace inductorfs::cli
