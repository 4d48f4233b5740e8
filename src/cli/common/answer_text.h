// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <string>
#include <string_view>

#include "inductorfs/config/json_forward.h"
#include "inductorfs/config/settings.h"

/// Makes text from the daemon's answers, which are JSON and may be another version's. Each function is defined with its
/// command.
namespace inductorfs::cli {

/// How full the server is, of mount::server_part(); empty where it is not known.
[[nodiscard]] std::string server_text(const config::Json& server);

[[nodiscard]] std::string status_text(std::string_view json);
[[nodiscard]] std::string stats_text(std::string_view json);
[[nodiscard]] std::string jobs_text(std::string_view json);
[[nodiscard]] std::string misses_text(std::string_view json);
/// Returns the variables that put compile caches below this directory, as `env` prints them.
[[nodiscard]] std::string variables_text(const std::string& root, std::string_view format,
                                         const std::string& name_for_user = {});
/// Returns the command of a shell that takes all these variables but USER away.
[[nodiscard]] std::string unset_text();
/// Returns the figures in these answers for Prometheus and node_exporter, in the text format 0.0.4.
[[nodiscard]] std::string metrics_text(const config::Json& mounts);
/// Returns two or three lines for each of these answers; `error` of one says why there is no answer.
[[nodiscard]] std::string mounts_text(const config::Json& mounts);
/// Returns a configuration file with these options; those that nobody gave stand in comments, with their defaults.
[[nodiscard]] std::string configuration_text(const config::Settings& settings, bool origin);
/// Returns a table of the cluster's mounts; `now` is the time of this host.
[[nodiscard]] std::string nodes_text(const config::Json& answer, std::time_t now);
/// Returns what a purge found, or did, and which mounts have obeyed.
[[nodiscard]] std::string purge_text(const config::Json& answer);
[[nodiscard]] std::string explanation_text(std::string_view json);
/// Returns what a `sync` waits for, by the daemon's status; empty where it has not to wait for the server.
[[nodiscard]] std::string awaited_text(const config::Json& status);
/// Returns "published 23 groups; kept 4 artefacts on this host: why; why"; empty for another version's answer without
/// numbers.
[[nodiscard]] std::string sync_text(const config::Json& report);
/// Returns the error of a `sync` after which nothing that was written is shared, with the first reason.
[[nodiscard]] std::string nothing_shared_text(const config::Json& report, const std::string& mountpoint);
/// Returns how far `warm` is, in one line: counts, bytes, rate and the estimated time left. `seconds`: since it began.
[[nodiscard]] std::string warm_progress_text(const config::Json& report, double seconds);
/// Returns what a `warm` did, in one or two lines.
[[nodiscard]] std::string warm_text(const config::Json& report);
/// Returns what jobs would find here if the server ended now, in two to four lines.
[[nodiscard]] std::string without_server_text(const config::Json& report);
/// Returns the same of a server that does not answer, in three lines, from what `status` has. `why`: it does not.
[[nodiscard]] std::string server_away_text(const config::Json& status, const std::string& why);
/// Returns the error of a `warm` that did not fetch everything, with the reasons.
[[nodiscard]] std::string not_complete_text(const config::Json& report, const std::string& mountpoint);

}  // namespace inductorfs::cli
