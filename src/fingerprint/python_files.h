// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "facts.h"
#include "owners.h"

namespace inductorfs::fingerprint {

/// What the files of an interpreter tell about it. Immutable value.
struct PythonFiles {
  /// What the interpreter would answer. Set only if the files leave no doubt; otherwise `doubt` says what is in doubt.
  std::optional<PythonFacts> facts;
  std::string doubt;
  std::vector<std::string> programs;  ///< the program, pyvenv.cfg, .pth files
  std::vector<std::string> folders;   ///< the folders in which Python looks for pyvenv.cfg and its standard library
  std::vector<std::string> packages;  ///< the folders in which it looks for modules
};

/// Reads pyvenv.cfg, the standard library's _sysconfigdata, and the folders of packages with their .pth files, as
/// CPython 3.8 to 3.14 do at their start (Modules/getpath.py, Lib/site.py). It runs nothing, because a .pth file and a
/// sitecustomize.py are code of any user who can write them. `program` is an absolute path. `home` is the directory in
/// which the user's own packages are looked for; empty when they are not looked for.
[[nodiscard]] PythonFiles look_at_python(const std::string& program, const std::string& home);

/// Returns the owners of everything that decides what runs when the program is started.
[[nodiscard]] Result<Owners> owners_of(const PythonFiles& files);

}  // namespace inductorfs::fingerprint
