// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/config/json_forward.h"
#include "inductorfs/layout/layout.h"
#include "inductorfs/ledger/job_processes.h"
#include "inductorfs/vfs/types.h"

/// Keeps account of what programs ask a mount for and make in it: in all, in the last hour, and for each job. The
/// kernel answers by itself what it has kept, so that the figures are of first uses: a name that is asked for again may
/// not count. They go on with the next worker, where they have a directory.
namespace inductorfs::ledger {

/// A miss whose reason is to be found out while it is fresh.
struct MissQuestion {
  uint64_t job = 0;
  std::string path;   ///< as programs see it, relative to the mount
  std::string place;  ///< UseNotice::place
  layout::Family family = layout::Family::kOther;
  vfs::UseKind why = vfs::UseKind::kNothing;
};

class Books;
class History;
class JobFinder;
class JobStarts;

struct LedgerOptions {
  JobProcesses processes = processes_in("/proc");
  std::string directory;         ///< keeps the books for the next worker; empty: they begin anew
  Counters* counters = nullptr;  ///< gets the totals as "keys.local" and so on
  const Clock& clock = system_clock();
  /// Returns the variables of a thread's process that name its job (fingerprint::Writers::job_variables).
  std::function<std::map<std::string, std::string>(pid_t thread)> variables;
  /// Says whether a thread's process runs torch or Triton (fingerprint::Writers::runs_torch). Of whom that is not known
  /// it counts whether it runs Python, or works for somebody who does. What is neither is no job, and counts nowhere.
  std::function<std::optional<bool>(pid_t thread)> runs_torch;
  /// Returns how long the compile took whose result, of this family, has these bytes; empty when they are not here or
  /// do not say it. Asked for the families of layout::compile_time_of. May block on the local disk.
  std::function<std::optional<std::chrono::nanoseconds>(layout::Family family, const codec::Digest& digest)>
      compile_time;
  /// Receives a start of a job when that has ended or is quiet; returns false when it is to be told again in a second
  /// (vfs::FileSystem::note_start). May block on the local disk. If there is none, starts are not noted.
  std::function<bool(const vfs::JobStart&)> start_ended;
  /// Returns in a few words what the name of an environment stands for.
  std::function<std::string(const std::string& environment)> environment_text;
};

/// Takes notices from request threads, and enters them by a thread of its own, `ledger`. At most kMostWaiting notices
/// wait; further ones are dropped and counted. Safe for concurrent use.
class Ledger {
 public:
  static constexpr size_t kMostWaiting = 65'536;
  /// The jobs that are remembered, for a week; of those that have ended the oldest go first, and each user has a share.
  static constexpr size_t kMostJobs = 256;
  static constexpr size_t kMostJobsOfOne = 64;
  static constexpr size_t kMissesOfJob = 64;  ///< the last ones, with their paths
  static constexpr size_t kMostQuestions = 256;

  explicit Ledger(LedgerOptions options);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  /// Reads the totals, and starts the thread, which reads the jobs. To be called once.
  void start();
  /// Ends it; what waits then is dropped. Idempotent.
  void stop();

  /// Never blocks.
  void note(vfs::UseNotice&& notice);
  /// Says that artefacts with these canonical paths are in the cluster now.
  void note_published(const std::vector<std::string>& paths);
  /// Waits until all earlier notices are entered, so that a query shows them.
  [[nodiscard]] bool settle(Deadline deadline);

  /// Waits for misses whose reason is to be found out, and returns them: at most kMostQuestions. Returns none when
  /// stop_asking() was called. For one thread.
  [[nodiscard]] std::vector<MissQuestion> await_questions();
  /// Keeps what was found out with the miss: an object of JSON (explain_miss() in mount/misses.h has its members).
  void note_explained(const MissQuestion& question, const config::Json& explained);
  /// Asks again about those misses of a job, chosen as by misses(), of whose kind nothing was found out: a worker may
  /// have ended before.
  void ask_again(uint64_t job, std::optional<uid_t> user);
  /// Waits until what await_questions() returned so far, and would return now, is explained.
  [[nodiscard]] bool settle_questions(Deadline deadline);
  void stop_asking();
  /// Returns how many of them had no reason that is known (kUnexplained): a defect.
  [[nodiscard]] uint64_t unexplained() const;
  /// Returns why what is kept for the next worker could not be written when that was last tried; empty if it was.
  /// Never blocks.
  [[nodiscard]] std::string history_trouble() const;
  static constexpr const char* kUnexplained = "unexplained";  ///< "reason" of such a miss

  /// Returns the totals: {"since", "all": totals, "hour": totals, "saved_s", "users", "dropped", "not_counted"};
  /// "users" has what the programs of this user, or of all, came to.
  [[nodiscard]] config::Json stats(std::optional<uid_t> user) const;
  /// Returns the jobs of this user, or of all, the last one first.
  [[nodiscard]] config::Json jobs(std::optional<uid_t> user) const;
  /// Returns the last misses of a job; 0: of the last job that missed something.
  [[nodiscard]] config::Json misses(uint64_t job, std::optional<uid_t> user) const;

 private:
  struct Queue {
    std::vector<vfs::UseNotice> waiting;
    std::vector<std::string> published;
    uint64_t dropped = 0;
    uint64_t taken = 0;    ///< notices and published paths ever
    uint64_t entered = 0;  ///< of these
    bool loaded = false;   ///< what an earlier worker has kept
    bool stopping = false;
  };
  struct Questions {
    std::vector<MissQuestion> open;
    uint64_t asked = 0;
    uint64_t explained = 0;
    uint64_t unexplained = 0;  ///< of these
    bool stopped = false;
  };
  void pass_questions_on();
  void wake();
  void keep();
  void enter_all();
  void enter(const std::vector<vfs::UseNotice>& notices, const std::vector<std::string>& published);
  void count();
  void close_ended();

  const LedgerOptions options_;
  Guarded<Queue> queue_;
  Guarded<Questions> questions_;
  const std::unique_ptr<JobFinder> finder_;  ///< confined to the thread
  const std::unique_ptr<JobStarts> starts_;  ///< too; nullptr: starts are not noted
  const std::unique_ptr<Guarded<Books>> books_;
  const std::unique_ptr<History> history_;  ///< confined to the thread; nullptr: nothing is kept
  std::jthread thread_;
};

}  // namespace inductorfs::ledger
