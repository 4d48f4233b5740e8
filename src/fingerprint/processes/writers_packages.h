// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "fingerprint/common/background.h"
#include "fingerprint/processes/looker.h"
#include "fingerprint/processes/writers_process.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/fingerprint/fingerprint.h"

namespace inductorfs::fingerprint {

/// The facts of packages that writers have mapped, as the probe would state them, and of the files that their variables
/// name, remembered by the identity of the files. Child processes read them; only await() blocks. Safe for concurrent
/// use.
class Packages {
 public:
  /// `deadline` is WritersOptions::package_deadline.
  Packages(Milliseconds deadline, std::shared_ptr<Looker> looker) : deadline_(deadline), looker_(std::move(looker)) {}

  /// Returns the torch, triton, engine, libc or compiler facet of the process's environment if it was read recently,
  /// and since the process began: a package may have been changed before a new process loads it;
  /// for the environment facet what Process::files mean (named_files_fact()), for the compiler facet what
  /// compiler_fact() says.
  [[nodiscard]] std::optional<Fact> known(Facet facet, const Process& process) const;
  /// Returns what known() returns. If that is empty it has the facet read, once for all callers, and is empty until it
  /// is read; an unknown fact when that takes longer than the deadline.
  [[nodiscard]] std::optional<Fact> ask(Facet facet, const Process& process) {
    std::shared_ptr<const Held> held;
    return ask(facet, process, held);
  }
  /// Does what ask() does, and waits for the answer until `until`.
  [[nodiscard]] std::optional<Fact> await(Facet facet, const Process& process, SteadyTime until);
  /// Begins to read what is missing of all that this process's environment depends on. What is read goes on when the
  /// process ends.
  void begin(const Process& process);
  [[nodiscard]] uint64_t reads() const { return reads_; }

 private:
  /// What was read, and when that began, in nanoseconds since boot: it says what a process loads that began before.
  struct Reading {
    Fact fact;
    uint64_t begun = 0;
  };
  struct CachedFact {
    bool reading = false;
    Reading last;                      ///< while it is being read, only when that began
    SteadyTime at;                     ///< when it was read; while it is being read, when it was asked for
    bool lasts = false;                ///< it cannot change at its place
    uid_t user = 0;                    ///< the user for whose process it was first read
    std::optional<Reading> earlier{};  ///< while it is being read: what was known before
  };
  using CachedFacts = std::map<std::string, CachedFact>;
  /// A package is read in two seconds; each user may have two of them read at once.
  static constexpr size_t kReaders = 8;
  static constexpr size_t kReadersOfOne = 2;

  [[nodiscard]] static const CachedFact* usable(const CachedFacts& facts, const std::string& name,
                                                const Process& process);
  static void forget_one(CachedFacts& facts);
  static void keep(Guarded<CachedFacts>& facts, const std::string& name, const PackageRequest& request,
                   Reading reading);

  [[nodiscard]] std::optional<Fact> kept(const std::string& name, const Process& process) const;
  /// `held` is that of this process, or is set when it is needed.
  [[nodiscard]] std::optional<Fact> ask(Facet facet, const Process& process, std::shared_ptr<const Held>& held);
  /// `fact`: why it was not read; empty to keep nothing.
  static void not_read(Guarded<CachedFacts>& facts, const std::string& name, std::optional<Fact> fact);

  const Milliseconds deadline_;
  const std::shared_ptr<Looker> looker_;
  std::atomic<uint64_t> reads_{0};
  std::shared_ptr<Guarded<CachedFacts>> facts_ = std::make_shared<Guarded<CachedFacts>>();
  Background readers_{"package-read", kReaders, kReadersOfOne};
};

/// Returns the package, or C library, of a process that a facet is about; the facet must be torch, triton or libc.
[[nodiscard]] const Package& package_for(Facet facet, const Process& process);
/// Returns the path that a facet of this process is read from: the package's, the first of Process::files for the
/// environment facet, the folder that torch lies in for the engine facet, or the command of the compiler. Empty when
/// there is nothing to read.
[[nodiscard]] std::string path_for(Facet facet, const Process& process);
/// Returns the file of this process's own C library; empty when it cannot be told.
[[nodiscard]] std::string own_libc();
/// Returns "2.36" from the banner in a C library's file; empty when it has none.
[[nodiscard]] std::string libc_version(const InRoot& root, const std::string& file);

}  // namespace inductorfs::fingerprint
