// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <span>
#include <string>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/base/result.h"
#include "inductorfs/fingerprint/fingerprint.h"

/// Finds out whether the process that wrote an artefact has the environment whose facts the mount publishes under.
namespace inductorfs::fingerprint {

/// What was observed of a writing process; it stays true after the process ended. Immutable after construction.
class Writer;

enum class Match {
  kMatches,  ///< every facet that was asked for is that of the mount
  kDiffers,  ///< some facet is another
  kUnknown,  ///< the process cannot be examined (other pid namespace, gone, no right), or is not one of torch or Triton
  kLater,    ///< not known yet, because a package has to be read first; judge() starts that
};
struct Judgement {
  Match match = Match::kUnknown;
  std::string why;  ///< empty for kMatches; else which facet or variable differs or is not known, and the remedy
};

/// Examines processes through /proc, and remembers what it learned. Safe for concurrent use.
class Writers {
 public:
  virtual ~Writers() = default;

  /// Identifies the process that the thread `tid` belongs to. For a compiler or linker it identifies the process that
  /// started it: the nearest ancestor that has torch or Triton mapped. Reads only /proc, once for each process; nullptr
  /// when the process cannot be examined.
  ///
  /// The process's environment is the one that it has now, not the one that it was started with; only where there is no
  /// right to read its memory it is the latter (counter writers.start_environment).
  [[nodiscard]] virtual std::shared_ptr<const Writer> identify(pid_t tid) = 0;
  /// Compares each facet that is asked for with the mount's; an environment variable counts where it matters to a
  /// family with these facets (variables.h). It uses only what is known already and never reads a package: kLater when
  /// that would be needed. A job's own thread may call it.
  [[nodiscard]] virtual Judgement glance(const Writer* writer, std::span<const Facet> facets) = 0;
  /// Compares as glance() does, but has a child process read what is not known. That takes seconds for a package that
  /// was never seen, and is then remembered. Never blocks: answers kLater until the child is done, for at most
  /// WritersOptions::package_deadline; then kUnknown.
  [[nodiscard]] virtual Judgement judge(const Writer* writer, std::span<const Facet> facets) = 0;
  /// Replaces the mount's facts, which have changed.
  virtual void set_facts(const Fingerprint& facts) = 0;
};

struct WritersOptions {
  std::string proc = "/proc";
  std::string cache_file;       ///< as ProbeOptions::cache_file
  size_t process_limit = 4096;  ///< the most processes that are remembered
  /// The program that is run as `package_reader package-facts` and calls run_package_reader(); empty: this program.
  std::string package_reader;
  /// A package that was not read by then counts as not known: its file system may not answer.
  Milliseconds package_deadline{30'000};
  /// After this time a process's environment, and whether the process has loaded torch, is read again.
  Milliseconds environment_age{1000};
};
[[nodiscard]] std::unique_ptr<Writers> open_writers(const WritersOptions& options, const Fingerprint& facts,
                                                    Counters& counters);

/// Runs the body of the short-lived process that reads one package for Writers and prints its fact. It is a process of
/// its own because another user chose the files: if a file cannot be read in time, the process is given up with it.
[[nodiscard]] int run_package_reader();

}  // namespace inductorfs::fingerprint
