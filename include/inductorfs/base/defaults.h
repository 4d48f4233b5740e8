// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "inductorfs/base/clock.h"

/// Defaults that the options of several modules share. Each stands here alone: the option structs, the settings of a
/// mount and the help text take it from here. A default of one module alone stands in that module's option struct.
namespace inductorfs::defaults {

/// Redis is a miss after this time without data: `--lookup-patience`.
inline constexpr Milliseconds kLookupPatience{250};
/// A file that is written in place is complete after this time without a write: `--quiet-time`.
inline constexpr Milliseconds kQuietTime{2000};
/// Between two reads of the cluster's log: `--poll-interval`.
inline constexpr Milliseconds kPollInterval{1000};
/// A larger artefact stays on this host: `--artefact-limit`.
inline constexpr uint64_t kLargestArtefact = 512ULL << 20;
/// Fetched in the background after the mount: `--prefetch`.
inline constexpr uint64_t kPrefetchBytes = 512ULL << 20;
/// Of blobs on the local disk: `--store-limit`.
inline constexpr uint64_t kStoreBytes = 20ULL << 30;
/// Groups that wait to be published: `--queue-limit`.
inline constexpr uint64_t kQueuedGroups = 100'000;
/// What one user may have of private bytes, and of files: `--user-bytes`, `--user-files`.
inline constexpr uint64_t kHalfOfDisk = UINT64_MAX;
inline constexpr uint64_t kUserFiles = 1'000'000;
/// Entries that this host holds in memory, of one scope and of all of them.
inline constexpr uint64_t kEntriesInMemory = 2'000'000;
/// Begins every key of the remote: `--prefix`.
inline constexpr std::string_view kPrefix = "ifs1";

}  // namespace inductorfs::defaults
