// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "cli/common/answers.h"
#include "cli/common/command.h"

namespace inductorfs::cli {

/// One question to the daemon of one mount, and its answer as JSON or as text.
class QueryCommand : public Subcommand {
 public:
  void add_to(Words& words) override;
  [[nodiscard]] int run(const config::Environment& environment) override;

 protected:
  /// Asks the mount, which may take more than one question; returns the answer that is shown.
  [[nodiscard]] virtual Result<std::string> ask(const Located& mount, const config::Environment& environment) const = 0;
  [[nodiscard]] virtual std::string text(std::string_view json) const = 0;

 private:
  std::string path_;
  bool json_ = false;
};

/// What people read of a reason in the answer of a daemon, which may be of another version: why a key was missed.
[[nodiscard]] std::string reason_text(const std::string& word);
/// Returns who ran a job: its number, name, command, user and times, in one line without its end.
[[nodiscard]] std::string job_title(const config::Json& job);

}  // namespace inductorfs::cli
