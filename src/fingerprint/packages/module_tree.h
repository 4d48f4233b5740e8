// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fingerprint/common/in_root.h"
#include "inductorfs/base/result.h"

namespace inductorfs::fingerprint {

/// One module of a package folder, as Python's pkgutil.iter_modules lists it. Immutable value.
struct Module {
  std::string name;
  std::string file;    ///< the file that its loader would read; for a package its __init__ file
  std::string folder;  ///< the folder of a package; else empty
};

/// The suffixes that make a file a module, in the order in which importlib tries them: extensions (they differ by
/// Python version and are given), source, bytecode. Immutable after construction.
class ModuleSuffixes {
 public:
  explicit ModuleSuffixes(std::vector<std::string> extensions);
  /// Does what inspect.getmodulename does: returns the name without its longest matching suffix; empty when none
  /// matches.
  [[nodiscard]] std::string_view module_name(std::string_view file_name) const;
  [[nodiscard]] const std::vector<std::string>& all() const { return suffixes_; }

 private:
  std::vector<std::string> suffixes_;
};

enum class WalkOrder { kFileName, kModuleName };

/// Returns the modules directly in `folder`, as pkgutil._iter_file_finder_modules (CPython Lib/pkgutil.py) finds them.
[[nodiscard]] Result<std::vector<Module>> modules_in(const InRoot& root, const std::string& folder,
                                                     const ModuleSuffixes& suffixes, WalkOrder order);

/// Returns all modules below `folder`, a package before its members, with dotted names. `folder`'s own __init__ is not
/// included. kModuleName is the order of torch._inductor.codecache.build_code_hash, kFileName that of
/// pkgutil.walk_packages (which also imports each package; a package that cannot be imported would keep its row and
/// lose its members).
[[nodiscard]] Result<std::vector<Module>> walk_modules(const InRoot& root, const std::string& folder,
                                                       const ModuleSuffixes& suffixes, WalkOrder order);

/// Returns the value of a top-level `NAME = 'text'` or `NAME: annotation = "text"` of Python source. `None` is an empty
/// text; kNotFound when there is no such line.
[[nodiscard]] Result<std::string> assigned_text(std::string_view source, std::string_view name);

}  // namespace inductorfs::fingerprint
