// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "inductorfs/base/result.h"
#include "inductorfs/config/settings.h"
#include "inductorfs/config/worker_user.h"

/// What root's worker needs to be a user of its own: a store and a log. All before the supervisor starts, by
/// who mounts, with root's rights; one thread.
namespace inductorfs::mount {

/// Makes the directory of the store, and gives it and all that it has to that user, unless they are his already. What
/// root's children have there stays root's, and what is neither root's nor a worker's is left as it is. kBusy while a
/// daemon holds the store's lock, kInvalid for a directory that is no store; nothing is changed then, nor after another
/// error, as far as it can be taken back.
[[nodiscard]] Result<void> give_store(const std::string& store, const config::WorkerUser& user);

/// Returns the path of a log that is a file, but none in the store; or an empty one.
[[nodiscard]] std::string log_elsewhere(const config::Settings& settings);
/// Makes that file when it is missing, and gives it to that user; its directory stays root's. Errors are those of
/// check_log().
[[nodiscard]] Result<void> give_log(const std::string& path, const config::WorkerUser& user);

/// Has root's mount served by config::worker_user(), to whom the store and the log are given: settings.worker. Where
/// this host, the way to the store, or a log's place does not let it, the worker stays root: settings.no_worker_user
/// says why. An error when the store is such a user's already: no process of root's is to read what another user can
/// have made.
[[nodiscard]] Result<void> choose_worker_user(config::Settings& settings);

/// Tries as that user, in a child, what its worker will do: to enter the directory, to write to the log (empty: there
/// is none), to run this program with its libraries. Answers an error of errno(3), or 0. kTimedOut: it did not end, or
/// was killed, as by another process of that user.
[[nodiscard]] Result<int> try_as(const config::WorkerUser& user, const std::string& directory, const std::string& log);

}  // namespace inductorfs::mount
