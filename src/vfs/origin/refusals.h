// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "inductorfs/base/counters.h"
#include "inductorfs/base/guarded.h"
#include "vfs/disk/local_tree.h"

namespace inductorfs::vfs {

/// The most recent refusals, for `status`. If there are too many lines, the user with the most of them loses one, so
/// that no user pushes out the lines of others. Safe for concurrent use.
class Refusals {
 public:
  explicit Refusals(Counters& counters) : counters_(counters) {}

  /// Adds a file that is not sealed or not published, and writes it to the log. A path has one line, which comes last
  /// again with each refusal; it is counted when it is new or has another reason. `owner` is the owner of the file;
  /// lines without a known owner count as those of one more user.
  void add(const std::string& path, const std::string& why, std::optional<uid_t> owner);
  /// Adds anything else that an operator should know; a line that is there already is not added again. `owner` is the
  /// user who caused it.
  void note(const std::string& text, std::optional<uid_t> owner);
  /// Says of a directory that is made below one with a name of tempfile's form (layout::hidden_root), and that nobody
  /// made with tempfile.mkdtemp, why it is not shared.
  void note_if_hidden(const std::string& path, const LocalTree& disk);
  [[nodiscard]] std::vector<std::string> lines() const;
  /// Returns why this path was refused last; empty if it was not, or if later refusals have pushed its line out.
  [[nodiscard]] std::string why_refused(const std::string& path) const;

 private:
  struct Line {
    std::string path;  ///< empty for a note
    std::string text;
    std::string why;  ///< of a path
    std::optional<uid_t> owner;
  };

  Counters& counters_;
  Guarded<std::vector<Line>> lines_;
};

}  // namespace inductorfs::vfs
