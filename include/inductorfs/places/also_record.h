// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "inductorfs/places/also.h"

/// The record of what a daemon has put at further places, a file beside its control socket. After kill -9 the next
/// start, or the unmount of the dead mount, uses it to remove those places.
namespace inductorfs::places {

struct AlsoRecord {
  std::string mountpoint;
  std::vector<AlsoState> places;  ///< those that were bound or linked, or for which directories were made
};

/// Returns the path of the record that belongs to a control socket.
[[nodiscard]] std::string also_record_path(const std::string& socket);
/// Writes the record, or removes it when it has no places.
[[nodiscard]] Result<void> write_also_record(const std::string& path, const AlsoRecord& record);
/// Reads the record; empty when there is none, or none that can be read.
[[nodiscard]] std::optional<AlsoRecord> read_also_record(const std::string& path);

/// Removes, for a mount that is gone, the places that the record names, the directories that were made for them, and
/// the record itself.
void take_back_recorded(const std::string& path);

}  // namespace inductorfs::places
