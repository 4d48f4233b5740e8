// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "inductorfs/base/counters.h"
#include "inductorfs/base/guarded.h"

namespace inductorfs::vfs {

/// The most recent refusals, for `status`. Safe for concurrent use.
class Refusals {
 public:
  explicit Refusals(Counters& counters) : counters_(counters) {}

  /// Adds a file that is not sealed or not published, and writes it to the log. A path has one line, which comes last
  /// again with each refusal; it is counted when it is new or has another reason.
  void add(const std::string& path, const std::string& why);
  /// Adds anything else that an operator should know; a line that is there already is not added again.
  void note(const std::string& text);
  [[nodiscard]] std::vector<std::string> lines() const;

 private:
  struct Line {
    std::string path;  ///< empty for a note
    std::string text;
  };

  Counters& counters_;
  Guarded<std::vector<Line>> lines_;
};

}  // namespace inductorfs::vfs
