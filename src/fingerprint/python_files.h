// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "facts.h"
#include "owners.h"

namespace inductorfs::fingerprint {

/// What the files of an interpreter say of it. Immutable value.
struct PythonFiles {
  /// What the interpreter would answer. Only where the files leave no doubt; else `doubt` says what is in doubt.
  std::optional<PythonFacts> facts;
  std::string doubt;
  std::vector<std::string> programs;  ///< the program, pyvenv.cfg, .pth files
  std::vector<std::string> folders;   ///< where Python looks for pyvenv.cfg and for its standard library
  std::vector<std::string> packages;  ///< where it looks for modules
};

/// Reads pyvenv.cfg, the standard library's _sysconfigdata, and the folders of packages with their .pth files, as
/// CPython 3.8 to 3.14 do at their start (Modules/getpath.py, Lib/site.py), and runs nothing: a .pth file and a
/// sitecustomize.py are code of whoever can write them. `program` is an absolute path. `home` is where the user's own
/// packages are looked for; empty when they are not.
[[nodiscard]] PythonFiles look_at_python(const std::string& program, const std::string& home);

/// All that decides what runs when the program is started.
[[nodiscard]] Result<Owners> owners_of(const PythonFiles& files);

}  // namespace inductorfs::fingerprint
