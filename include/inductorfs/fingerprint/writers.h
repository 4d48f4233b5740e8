// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/fingerprint/examiner.h"
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

/// The facts that writers are compared with. Immutable after construction.
class ExpectedFacts {
 public:
  explicit ExpectedFacts(const Fingerprint& facts);
  [[nodiscard]] const Fact& get(Facet facet) const { return facts_.get(facet); }
  [[nodiscard]] const std::map<std::string, std::string>& environment() const { return environment_; }

 private:
  Fingerprint facts_;
  std::map<std::string, std::string> environment_;
};

/// The environment that a process has by itself.
struct JobFacts {
  enum class Kind {
    kNeither,  ///< it is neither torch nor Triton, and was started by none
    kUnknown,  ///< it could not be found out before the process made something; this stays so
    kLater,    ///< it could not be found out yet
    kKnown,
  };
  Kind kind = Kind::kUnknown;
  /// Of kKnown: the facets torch, triton, engine, python, libc and environment, as probe() would state them in that
  /// process's environment. The compiler too, but only where torch would run another one in the process than the daemon
  /// has found for the host: such a compiler is identified by its files, and unknown if it cannot be.
  Fingerprint facts;
  std::string why;  ///< of kUnknown and kLater; it names no process, so that many can have the same reason
  uid_t user = 0;   ///< of kKnown: whose process it is
};

/// What a request asks of Writers::job_of().
struct JobQuestion {
  /// It makes something in the process's name: kLater is no answer to it, because what a process has made must not
  /// vanish before its eyes.
  bool makes = false;
  /// How long requests wait for the same packages to be read: all lookups together, and all that make something.
  Milliseconds patience{0};
  /// Called several times a second while the request waits.
  std::function<void()> goes_on = [] {};
};

/// Processes of one user whose environment is not known, for the same reason.
struct UnknownJobs {
  uid_t user = 0;
  std::string why;
  size_t processes = 0;  ///< those that have ended too, as long as they are remembered
};

/// Keeps the environments of jobs under short names, for as long as a process or a file has to do with one.
/// Safe for concurrent use.
class JobEnvironments {
 public:
  /// By name: the users with a living process that has the environment.
  using InUse = std::map<std::string, std::set<uid_t>, std::less<>>;
  virtual ~JobEnvironments() = default;
  /// Returns the name of these facts (JobFacts::facts), of letters and digits, and keeps them. Equal facts have equal
  /// names. When there are too many, one that `in_use` does not name is forgotten. If all are in use, it is one
  /// whose users each have more of them than `user`, who asks for this one; empty when there is none.
  [[nodiscard]] virtual std::string take(const Fingerprint& facts, uid_t user,
                                         const std::function<InUse()>& in_use) = 0;
  [[nodiscard]] virtual std::optional<Fingerprint> find(std::string_view name) const = 0;
};

/// Returns the facts of a job (JobFacts::facts) on a host: the device, the driver and the processor are the host's, and
/// what the job brings along is its own, with what follows from that for the others.
[[nodiscard]] Fingerprint with_job(const Fingerprint& host, const Fingerprint& job);

/// Examines processes through /proc, and remembers what it learned. Safe for concurrent use.
class Writers {
 public:
  virtual ~Writers() = default;

  /// Identifies the process that the thread `tid` belongs to. For a compiler or linker it identifies the process that
  /// started it: the nearest ancestor that has torch or Triton mapped. Reads only /proc, once for each process; nullptr
  /// when the process cannot be examined.
  ///
  /// The process's environment is the one that it has now, not the one that it was started with. Where there is no
  /// right to read its memory (counter writers.start_environment), the environment facet is not known.
  [[nodiscard]] virtual std::shared_ptr<const Writer> identify(pid_t tid) = 0;
  /// Compares each facet that is asked for with what is expected; an environment variable counts where it matters to a
  /// family with these facets (variables.h). It uses only what is known already and never reads a package: kLater when
  /// that would be needed. A job's own thread may call it.
  [[nodiscard]] virtual Judgement glance(const Writer* writer, std::span<const Facet> facets,
                                         const ExpectedFacts& expected) = 0;
  /// Compares as glance() does, but has a child process read what is not known. That takes seconds for a package that
  /// was never seen, and is then remembered. Never blocks: answers kLater until the child is done, for at most
  /// WritersOptions::package_deadline; then kUnknown.
  [[nodiscard]] virtual Judgement judge(const Writer* writer, std::span<const Facet> facets,
                                        const ExpectedFacts& expected) = 0;
  /// Learns the environment of the process that the thread `tid` belongs to, and keeps to the answer for as long as
  /// that process lives, whatever it changes of its environment: what it has written must not vanish before its eyes. A
  /// process that such a process has started with the same packages and its variables of now has the same answer. Where
  /// WritersOptions::jobs_file is set, the next Writers keep to the answers too.
  ///
  /// Blocks for JobQuestion::patience at most, while child processes read packages that were never seen, and as long
  /// when the process cannot be looked at. All requests that wait for the same do it together, from the first one on,
  /// so that a package that is not read holds its processes up once, and once a minute. What is not known then is
  /// kLater, until the process asks again and it is known, or until it makes something: then it is kUnknown for good.
  /// At most 16 requests of one user wait so, and at most 32 of those that make something.
  ///
  /// An answer changes in two cases only. kNeither counts until the process, or one that has started it, maps more. And
  /// a process that had Triton loaded and no torch has another environment as soon as it has torch.
  [[nodiscard]] virtual JobFacts job_of(pid_t tid, const JobQuestion& question) = 0;
  /// Returns those variables of the process that the thread `tid` belongs to which name the job that it is a part of
  /// (a batch system's, a launcher's) and its number of threads, as the process had them when it was observed last;
  /// empty when it was not observed. Does not block.
  [[nodiscard]] virtual std::map<std::string, std::string> job_variables(pid_t /*tid*/) { return {}; }
  /// Says whether the process that the thread `tid` belongs to runs torch or Triton, or was started by one that does,
  /// as it was observed last; empty when it was not observed. Does not block.
  [[nodiscard]] virtual std::optional<bool> runs_torch(pid_t /*tid*/) { return {}; }
  /// Returns a number that is another one once the process of this thread has become another program; 0 when nobody can
  /// tell, because the process is gone or was not looked at. Does not block.
  [[nodiscard]] virtual uint64_t program_of(pid_t /*tid*/) const { return 0; }
  /// Begins to read what job_of() will need to know of this process, which has been seen and may ask soon. Blocks for a
  /// look at the process only; settles nothing.
  virtual void expect(pid_t tid) = 0;
  /// Returns why processes have no answer of job_of(), 20 reasons at most, those of each user that most processes have
  /// first.
  [[nodiscard]] virtual std::vector<UnknownJobs> unknown_jobs() const = 0;
  /// Returns the names (JobEnvironments) of the environments of processes that live.
  [[nodiscard]] virtual JobEnvironments::InUse environments_in_use() const = 0;
};

struct WritersOptions {
  std::shared_ptr<const ExaminerLink> examiner;  ///< looks at processes
  /// Says whether a process asks for this very mount, as a child of the examiner does: it is none of a job, and nobody
  /// looks at it. It may block for a quarter of a second. Empty: none does.
  std::function<bool(pid_t process)> is_ours{};
  std::string proc = "/proc";
  size_t process_limit = 4096;  ///< the most processes that are remembered
  /// A package that was not read by then counts as not known: its file system may not answer.
  Milliseconds package_deadline{30'000};
  /// After this time a process's environment is read again, and whether it has loaded torch, if it maps more by then.
  Milliseconds environment_age{1000};
  /// Names the environments of jobs; it outlives the Writers. nullptr: nobody needs names.
  JobEnvironments* environments = nullptr;
  /// Keeps the answers of job_of() for the next Writers, by the names of `environments`; empty: they are not kept.
  std::string jobs_file;
};
[[nodiscard]] std::unique_ptr<Writers> open_writers(const WritersOptions& options, Counters& counters);

/// Runs the body of the short-lived process that reads one package for Writers and prints its fact. It is a process of
/// its own because another user chose the files: if a file cannot be read in time, the process is given up with it.
[[nodiscard]] int run_package_reader();

}  // namespace inductorfs::fingerprint
