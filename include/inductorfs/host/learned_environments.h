// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/fingerprint/fingerprint.h"
#include "inductorfs/fingerprint/writers.h"

namespace inductorfs::host {

/// The environments that were learned from processes of this host, by vfs::Job::environment. They are kept in files,
/// for the next worker and the next mount: a process that still uses the mount is not asked again by then. Blocks on
/// the local disk. Safe for concurrent use.
class LearnedEnvironments final : public fingerprint::JobEnvironments {
 public:
  /// Reads what is kept in this directory, which is made when it is missing. What cannot be read is learned again.
  explicit LearnedEnvironments(std::string directory);

  [[nodiscard]] std::string take(const fingerprint::Fingerprint& facts, uid_t user,
                                 const std::function<InUse()>& in_use) override;
  [[nodiscard]] std::optional<fingerprint::Fingerprint> find(std::string_view id) const override;

  /// The most that are kept. Of more, the one goes that was not used for longest and that no living process has, or
  /// one of users who each have more than the one who comes.
  static constexpr size_t kMost = 64;

 private:
  struct Known {
    fingerprint::Fingerprint facts;
    uint64_t used = 0;   ///< rises with each use
    SteadyTime noted{};  ///< when the disk was told of a use
  };
  struct State {
    std::map<std::string, Known, std::less<>> environments;
    uint64_t uses = 0;
  };
  [[nodiscard]] bool use(const std::string& id);
  [[nodiscard]] std::string path_of(const std::string& id) const;
  [[nodiscard]] static std::string least_needed(const State& state, uid_t user, const InUse& in_use);
  void write(const std::string& id, const fingerprint::Fingerprint& facts) const;

  const std::string directory_;
  Guarded<State> state_;
};

}  // namespace inductorfs::host
