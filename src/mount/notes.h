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

/// What a worker has found out, or done, that the next one would else have to do again: asking the host for its facts
/// takes seconds, and a further place that is shown must not be shown twice. Immutable value.
struct Noted {
  fingerprint::Fingerprint facts;
  std::time_t learned = 0;
  std::string traces;  ///< digest of what the host looked like then; empty: not known
  std::vector<places::AlsoState> also;
};

/// Memory that the supervisor keeps open for the mount's life. One worker at a time writes; whenever it is killed, the
/// next one reads the last whole note. Needs external synchronisation.
class Notes {
 public:
  explicit Notes(Fd memory) : memory_(std::move(memory)) {}
  /// Nothing when there is none, or none that can be read.
  [[nodiscard]] std::optional<Noted> read() const;
  [[nodiscard]] Result<void> write(const Noted& noted);

 private:
  Fd memory_;
};

}  // namespace inductorfs::mount
