// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/guarded.h"
#include "inductorfs/fingerprint/fingerprint.h"

namespace inductorfs::host {

/// The environments that were learned from processes of this host, by vfs::Job::environment. They are kept in files,
/// for the next worker and the next mount: a process that still uses the mount is not asked again by then. Blocks on
/// the local disk. Safe for concurrent use.
class LearnedEnvironments {
 public:
  /// Reads what is kept in this directory, which is made when it is missing. What cannot be read is learned again.
  explicit LearnedEnvironments(std::string directory);

  /// Returns the id of these facts (fingerprint::JobFacts::facts), and keeps them. Equal facts have equal ids.
  [[nodiscard]] std::string take(const fingerprint::Fingerprint& facts);
  [[nodiscard]] std::optional<fingerprint::Fingerprint> find(std::string_view id) const;

  /// The most that are kept; of more, the one that was learned first goes.
  static constexpr size_t kMost = 64;

 private:
  struct Known {
    fingerprint::Fingerprint facts;
    uint64_t number = 0;  ///< rises with each one that is learned
  };
  struct State {
    std::map<std::string, Known, std::less<>> environments;
    uint64_t last = 0;
  };
  void write(const std::string& id, const fingerprint::Fingerprint& facts) const;

  const std::string directory_;
  Guarded<State> state_;
};

}  // namespace inductorfs::host
