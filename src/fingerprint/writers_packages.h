// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/fingerprint/fingerprint.h"
#include "writers_process.h"

namespace inductorfs::fingerprint {

/// The facts of packages that writers have mapped, as the probe would state them, remembered by what the files are.
/// Safe for concurrent use.
class Packages {
 public:
  Packages(std::string cache_file, Counters& counters);

  /// The torch, triton or libc facet of the process's environment when it was read lately.
  [[nodiscard]] std::optional<Fact> known(Facet facet, const Process& process) const;
  /// As known, else reads it: seconds for a package that was never seen. Two threads do not read the same.
  [[nodiscard]] Fact read(Facet facet, const Process& process);

 private:
  struct Entry {
    bool reading = false;
    Fact fact;
    SteadyTime at;
    bool lasts = false;  ///< cannot change at its place, or cannot be looked at again
  };
  using Entries = std::map<std::string, Entry>;

  [[nodiscard]] static const Entry* usable(const Entries& entries, const std::string& name);
  [[nodiscard]] Fact compute(Facet facet, const Process& process) const;

  const std::string cache_file_;
  Counter& reads_;
  Guarded<Entries> entries_;
};

/// The package, or C library, of a process that a facet is about. Requires: torch, triton or libc.
[[nodiscard]] const Package& package_for(Facet facet, const Process& process);
/// The file of this process's own C library; empty when it cannot be told.
[[nodiscard]] std::string own_libc();
/// "2.36" from the banner in a C library's file; empty when it has none.
[[nodiscard]] std::string libc_version(const std::string& file);
/// The value of `key` in lines of key=value; empty when it is not there.
[[nodiscard]] std::string line_value(std::string_view text, std::string_view key);

}  // namespace inductorfs::fingerprint
