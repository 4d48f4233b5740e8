// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/base/result.h"
#include "inductorfs/config/settings.h"
#include "inductorfs/fingerprint/examiner.h"

namespace inductorfs::mount {

/// The password and the files of TLS that a mount's options name, as a worker has them: its mounter reads them, because
/// the worker may not (docs/decisions/0041). No word of a worker has a path. Safe for concurrent use.
class Secrets {
 public:
  static constexpr const char* kTask = "secret";  ///< of a mounter; the request is one of the names

  /// Returns the paths of the options' files by their names. Pure.
  [[nodiscard]] static std::map<std::string, std::string> files_of(const config::Settings& settings);
  /// What a mounter does when it is asked for one of `files`: its child reads it with root's rights, but only what
  /// nobody else could have written (base/trusted_file.h).
  [[nodiscard]] static fingerprint::ExaminerTask task(std::map<std::string, std::string> files);

  /// `mounter`: Supervision::mounter(). `stands_still` is called when the mounter takes no words.
  Secrets(const config::Settings& settings, int mounter, std::function<void()> stands_still);

  /// Reads the files anew, and shows them all at once; of one that cannot be read what is known stays. Returns whether
  /// something is known of each. Blocks until the deadline, or until `cancelled` says true.
  bool renew(Deadline deadline, const std::function<bool()>& cancelled = {});
  /// Returns what the file with that path had when it was read last; an error says why it never was.
  [[nodiscard]] Result<std::string> read(const std::string& path) const;
  [[nodiscard]] bool has_files() const { return !names_.empty(); }

 private:
  static constexpr const char* kNotYet = "it was not read yet";
  struct Known {
    std::optional<std::string> text;
    Error why{ErrorCode::kUnavailable, kNotYet};
  };
  [[nodiscard]] Result<std::string> ask(const std::string& name, Deadline deadline,
                                        const std::function<bool()>& cancelled) const;

  const std::map<std::string, std::string> names_;  ///< by their paths
  const fingerprint::ExaminerLink link_;
  Guarded<std::map<std::string, Known>> known_;  ///< by their paths
};

}  // namespace inductorfs::mount
