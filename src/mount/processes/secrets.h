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
  using Files = std::map<std::string, std::string>;  ///< paths by their names

  /// Returns the paths of the options' files. Pure.
  [[nodiscard]] static Files files_of(const config::Settings& settings);
  /// Returns what a mounter does for these files, by the names of its tasks, of which each file has its own. A child
  /// reads the file with root's rights, but only what nobody else could have written (base/trusted_file.h), and sends
  /// memory with it, or why not, at the descriptor of its question.
  [[nodiscard]] static std::map<std::string, fingerprint::ExaminerTask, std::less<>> tasks(const Files& files);

  /// `mounter`: Supervision::mounter(). `stands_still` is called when the mounter takes no words.
  Secrets(const config::Settings& settings, int mounter, std::function<void()> stands_still);

  /// Reads the files anew, all at once, and shows what they have together; of one that cannot be read, or is empty by
  /// now, what is known stays, and of all when they are just being exchanged. Returns whether something is known of
  /// each. Blocks until the deadline, or until `cancelled` says true.
  bool renew(Deadline deadline, const std::function<bool()>& cancelled = {});
  /// Returns what the file with that path had when it was read last; an error says why it never was, and is
  /// kUnavailable where nobody has answered yet.
  [[nodiscard]] Result<std::string> read(const std::string& path) const;

 private:
  static constexpr const char* kNotYet = "it was not read yet";
  struct Known {
    std::optional<std::string> text;
    Error why{ErrorCode::kUnavailable, kNotYet};
  };
  struct Asked;
  using Found = std::map<std::string, Result<std::string>>;  ///< by their paths
  [[nodiscard]] Found ask(const Files& names, Deadline deadline, const std::function<bool()>& cancelled) const;
  [[nodiscard]] Asked begin(const std::string& name) const;
  [[nodiscard]] bool is_news(const Found& found) const;
  [[nodiscard]] bool take(Found found);

  const Files names_;  ///< by their paths
  const fingerprint::ExaminerLink link_;
  Guarded<std::map<std::string, Known>> known_;  ///< by their paths
};

}  // namespace inductorfs::mount
