// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "inductorfs/base/fd.h"
#include "inductorfs/fingerprint/fingerprint.h"
#include "inductorfs/places/also.h"

namespace inductorfs::mount {

/// What a worker has found out, or done, that the next worker would otherwise have to do again: asking the host for its
/// facts takes seconds, and a further place that is shown must not be shown twice. Immutable value.
struct Note {
  fingerprint::Fingerprint facts;
  std::time_t learned = 0;
  std::string traces;  ///< digest of the host's traces at that time; empty: not known
  std::vector<places::AlsoState> also;
};

/// The notes of one worker for the next, in memory that the supervisor keeps open for the mount's life. One worker at a
/// time writes; at whatever moment it is killed, the next worker reads the last whole note.
/// Needs external synchronisation.
class NoteMemory {
 public:
  explicit NoteMemory(Fd memory) : memory_(std::move(memory)) {}
  /// Reads the last whole note; empty when there is none, or none that can be read.
  [[nodiscard]] std::optional<Note> read() const;
  [[nodiscard]] Result<void> write(const Note& noted);

 private:
  Fd memory_;
};

}  // namespace inductorfs::mount
