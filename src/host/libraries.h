// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/fingerprint/libstdcxx.h"

namespace inductorfs::host {

/// Reads the loader's cache (ld.so(8), glibc's elf/cache.c) as soname -> path, for this machine's kind. Empty for bytes
/// that are no such cache.
[[nodiscard]] std::map<std::string, std::string, std::less<>> parse_loader_cache(std::string_view bytes);

using fingerprint::newest_version;

/// Returns the directories, in addition to the loader's own, in which jobs of this interpreter find libraries: those of
/// torch, of NVIDIA's packages beside it, of the interpreter, and LD_LIBRARY_PATH. Either argument may be empty.
[[nodiscard]] std::vector<std::string> library_directories(const std::string& torch, const std::string& python);

/// Finds shared libraries as the loader of this host's jobs does. A library that was found stays found; one that was
/// not is looked for again after some seconds, because it may be installed meanwhile. Blocks on local directories only.
/// Safe for concurrent use.
class Libraries {
 public:
  static constexpr Milliseconds kLookAgain{5000};
  explicit Libraries(std::vector<std::string> directories, std::string cache_file = "/etc/ld.so.cache",
                     Milliseconds look_again = kLookAgain);
  /// Looks at directories of a user in place of this process: returns the file that a soname means there, or an empty
  /// string. It is asked for sonames that the loader's own directories do not have, and for paths.
  using Elsewhere = std::function<std::string(const std::string& soname)>;
  Libraries(std::vector<std::string> directories, Elsewhere elsewhere) : Libraries(std::move(directories)) {
    elsewhere_ = std::move(elsewhere);
  }

  /// Returns the file that a soname means; empty when there is none.
  [[nodiscard]] std::string find(std::string_view soname) const;
  /// Says whether find() finds a file; true also for the libraries of the CUDA driver, whose presence is a fact of its
  /// own (the cuda facet).
  [[nodiscard]] bool resolves(std::string_view soname) const;
  /// Returns the newest version GLIBCXX_ or CXXABI_ that this host's libstdc++.so.6 defines; empty when there is no
  /// such library. The file's bytes are searched: libstdc++ needs no such version itself, so it defines every one that
  /// it names.
  [[nodiscard]] std::string newest_of_libstdcxx(std::string_view prefix) const;

 private:
  struct Answer {
    std::string path;
    SteadyTime again;  ///< when to look again, while there is no path
  };
  using Cache = std::map<std::string, std::string, std::less<>>;
  struct State {
    std::shared_ptr<const Cache> cache = std::make_shared<const Cache>();
    timespec cache_time{};
    std::map<std::string, Answer, std::less<>> answers;
  };
  [[nodiscard]] std::shared_ptr<const Cache> current_cache() const;
  [[nodiscard]] std::string search(const std::string& soname) const;

  std::vector<std::string> directories_;
  std::string cache_file_;
  Elsewhere elsewhere_;
  Milliseconds look_again_;
  mutable Guarded<State> state_;
};

}  // namespace inductorfs::host
