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

/// Whether the process that wrote an artefact has the environment whose facts the mount publishes under.
namespace inductorfs::fingerprint {

/// What was seen of a writing process; stays true after it ended. Immutable after construction.
class Writer;

enum class Fit {
  kFits,     ///< every facet asked for is that of the mount
  kDiffers,  ///< some facet is another
  kUnknown,  ///< the process cannot be looked at (another pid namespace, gone, no right), or is no torch or Triton
  kLater,    ///< not known yet: a package has to be read first; judge() has that done
};
struct Judgement {
  Fit fit = Fit::kUnknown;
  std::string why;  ///< for all but kFits: which facet or variable differs or is not known, and the remedy
};

/// Looks at processes through /proc. Safe for concurrent use.
class Writers {
 public:
  virtual ~Writers() = default;

  /// The process that the thread `tid` belongs to; a compiler or linker speaks for the process that started it (the
  /// nearest ancestor that has torch or Triton mapped). Reads only /proc, once per process; nullptr when it cannot be
  /// looked at.
  /// Its environment is what it has set by now, not what it was started with; the latter only where there is no right
  /// to read its memory (counter writers.start_environment).
  [[nodiscard]] virtual std::shared_ptr<const Writer> identify(pid_t tid) = 0;
  /// Each facet asked for against the mount's; an environment variable counts where it matters to a family with these
  /// facets (variables.h). From what is known already: never reads a package; kLater when that would be needed. For a
  /// job's own thread.
  [[nodiscard]] virtual Judgement glance(const Writer* writer, std::span<const Facet> facets) = 0;
  /// As glance, but has a child process read what is not known (seconds for a package that was never seen, then it is
  /// remembered). Never blocks: kLater until that is done, at most for WritersOptions::package_deadline; then kUnknown.
  [[nodiscard]] virtual Judgement judge(const Writer* writer, std::span<const Facet> facets) = 0;
  /// The mount's facts have changed.
  virtual void set_facts(const Fingerprint& facts) = 0;
};

struct WritersOptions {
  std::string proc = "/proc";
  std::string cache_file;       ///< as ProbeOptions
  size_t process_limit = 4096;  ///< processes remembered
  /// The program that is run as `package_reader package-facts` and calls run_package_reader(); empty: this program.
  std::string package_reader;
  /// What was not read by then is not known: its file system may not answer.
  Milliseconds package_deadline{30'000};
  /// A process's environment, and whether it has loaded torch by now, is looked at again when older than this.
  Milliseconds environment_age{1000};
};
[[nodiscard]] std::unique_ptr<Writers> open_writers(const WritersOptions& options, const Fingerprint& facts,
                                                    Counters& counters);

/// The body of the short-lived process that reads one package for Writers and prints its fact. It is a process of its
/// own because another user chose the files: one that cannot be read in time is given up with the process.
[[nodiscard]] int run_package_reader();

}  // namespace inductorfs::fingerprint
