// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/fd.h"
#include "inductorfs/fingerprint/fingerprint.h"

namespace inductorfs::mount {

/// What a worker has found out, or done, that the next worker would otherwise have to do again: asking the host for its
/// facts takes seconds, and a further place that is shown must not be shown twice. Immutable value.
struct Note {
  fingerprint::Fingerprint facts;
  std::time_t learned = 0;
  std::string traces;             ///< digest of the host's traces at that time; empty: not known
  std::vector<std::string> also;  ///< the state of each further place, as it was shown
  std::string left_over;          ///< what jobs wrote below the mount before (places::move_left_over()), for people
};

/// Bytes that one process leaves for the next one of its kind, in memory that the supervisor keeps open for the mount's
/// life. One process at a time writes; at whatever moment it is killed, the next one reads the last whole bytes.
/// Needs external synchronisation.
class KeptMemory {
 public:
  explicit KeptMemory(Fd memory) : memory_(std::move(memory)) {}
  /// Reads the last whole bytes; empty when there are none.
  [[nodiscard]] std::optional<std::string> read() const;
  [[nodiscard]] Result<void> write(std::string_view bytes);

 private:
  Fd memory_;
};

/// The notes of one worker for the next. Needs external synchronisation.
class NoteMemory {
 public:
  explicit NoteMemory(Fd memory) : memory_(std::move(memory)) {}
  /// Reads the last whole note; empty when there is none, or none that can be read.
  [[nodiscard]] std::optional<Note> read() const;
  [[nodiscard]] Result<void> write(const Note& noted);

 private:
  KeptMemory memory_;
};

}  // namespace inductorfs::mount
