// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/common/answers.h"
#include "cli/common/mount_arguments.h"
#include "inductorfs/mount/cluster_control.h"

namespace inductorfs::cli {

/// The arguments of commands that ask all mounts of a cluster: --remote with the options that go with it, or the
/// MOUNTPOINT of a mount of this host, whose daemon then asks, so that no secret is needed.
/// Needs external synchronisation.
class ClusterArguments {
 public:
  void add_to(Words& words);
  [[nodiscard]] Result<void> check() const { return options_.check(); }
  [[nodiscard]] bool json() const { return json_; }
  /// Asks; blocks as long as the request does. `request.by` is filled in. The error is in the user's terms.
  [[nodiscard]] Result<config::Json> ask(mount::ClusterRequest request, const config::Environment& environment) const;

 private:
  MountArguments options_;
  std::string path_;
  bool json_ = false;
};

/// Adds --timeout.
void add_acknowledge_timeout(Words& words, int64_t& seconds);

/// "HOST:MOUNTPOINT" of each node that has not obeyed, or of each that has.
[[nodiscard]] std::string obedience_text(const config::Json& answer);
/// Prints one line of error when a node has not obeyed; returns the exit code.
[[nodiscard]] int obedience_code(const config::Json& answer);

}  // namespace inductorfs::cli
