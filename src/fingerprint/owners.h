// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "child.h"
#include "inductorfs/base/result.h"

namespace inductorfs::fingerprint {

/// Finds out which users could change what a program runs. A user who owns a file or a directory on the way to the
/// program, or may write to one, decides what runs in the end; so root must run a program only if that user is root
/// alone. It examines names and never opens a file. Blocks on the file systems of the paths.
/// Needs external synchronisation.
class Owners {
 public:
  /// Counts every component of an absolute path from / on, and those of the links in it. kNotFound when there is no
  /// such file.
  [[nodiscard]] Result<void> add(const std::string& path);
  /// Counts as add() does, for a directory in which a program looks for code: nobody else may create names in it
  /// either.
  [[nodiscard]] Result<void> add_folder(const std::string& path);
  /// Counts as add_folder() does, and also every entry of the directory.
  [[nodiscard]] Result<void> add_entries(const std::string& path);

  /// Returns the one user other than root to whom something belongs; root when everything is root's. kNotPermitted when
  /// several could change it (a member of a group, anybody, or two users), because whichever user it ran as, another
  /// could make it run.
  [[nodiscard]] Result<uid_t> only() const;

 private:
  void judge(const std::string& path, const struct stat& status, bool is_folder);
  [[nodiscard]] Result<void> follow(const std::string& path, bool is_folder);

  std::map<uid_t, std::string> found_;  ///< users other than root, each with a path of theirs
  std::string open_;                    ///< why other users could change something
};

/// Runs an interpreter or a compiler to ask it about itself. Root runs it bare (ChildOptions) and as the only user to
/// whom its files belong; `environment` holds further NAME=value for it. Other users run it as themselves, as they
/// would in a job.
[[nodiscard]] Result<ChildAnswer> run_as_owner(const std::vector<std::string>& command, const Owners& owners,
                                               Milliseconds deadline, const std::vector<std::string>& environment = {});

}  // namespace inductorfs::fingerprint
