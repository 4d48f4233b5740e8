// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "inductorfs/places/also.h"

/// What a daemon has put at further places, written down beside its control socket: after kill -9 the next start, or
/// the unmount of what it left, takes it back.
namespace inductorfs::places {

struct AlsoRecord {
  std::string mountpoint;
  std::vector<AlsoState> places;  ///< those that were bound or linked, or for which directories were made
};

/// The record that belongs to a control socket.
[[nodiscard]] std::string also_record_path(const std::string& socket);
/// Removes the record when there is nothing to tell.
[[nodiscard]] Result<void> write_also_record(const std::string& path, const AlsoRecord& record);
/// Nothing when there is none, or none that can be read.
[[nodiscard]] std::optional<AlsoRecord> read_also_record(const std::string& path);

/// For a mount that is gone: takes away what it shows elsewhere, the directories that were made for that, and the
/// record.
void take_back_recorded(const std::string& path);

}  // namespace inductorfs::places
