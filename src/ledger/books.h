// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/layout/layout.h"
#include "inductorfs/ledger/ledger.h"
#include "inductorfs/vfs/types.h"
#include "job_finder.h"

namespace inductorfs::ledger {

/// What became of the keys of one family, each counted once for each job, and of their bytes.
struct FamilyTally {
  uint64_t local = 0;    ///< keys that were files of this host
  uint64_t cluster = 0;  ///< keys that the cluster had
  std::map<vfs::UseKind, uint64_t> missed;
  uint64_t refused = 0;    ///< of those found: keys that the program did not take and made again
  uint64_t made = 0;       ///< keys that programs made
  uint64_t published = 0;  ///< of these
  uint64_t fetched = 0;    ///< files whose bytes a request waited for
  uint64_t bytes = 0;      ///< of these
  [[nodiscard]] uint64_t misses() const;
  void add(const FamilyTally& other);
};

struct Tally {
  std::map<layout::Family, FamilyTally> families;
  std::chrono::nanoseconds waited{0};  ///< for bytes, by all requests together
  void add(const Tally& other);
};

/// The request that waited longest for bytes. The path is one that a user chose.
struct Slowest {
  std::string path;
  std::chrono::nanoseconds waited{0};
};

struct Miss {
  std::time_t at = 0;
  layout::Family family = layout::Family::kOther;
  std::string path;
  std::string place;  ///< UseNotice::place
  vfs::UseKind why = vfs::UseKind::kNothing;
  std::string explained{};  ///< Ledger::note_explained()
};

/// What is known of one job.
struct JobAccount {
  uint64_t number = 0;  ///< by which people name it; never used again while the worker lives
  JobName name;
  std::string command;
  std::time_t started = 0;
  std::time_t last_use = 0;
  std::time_t ended = 0;  ///< 0: some process of it lives
  Tally tally;
  Slowest slowest;
  std::chrono::nanoseconds saved{0};
  std::deque<Miss> misses;
  std::set<std::string> environments;
  /// The values that its processes have of each variable: threads and ranks of one job may differ.
  std::map<std::string, std::set<std::string>> variables;
  uint64_t processes = 0;  ///< ever
  std::set<pid_t> pids;    ///< of these, as far as there is room

  /// Finds the latest miss of this path; nullptr when it is not remembered.
  [[nodiscard]] Miss* miss_at(const std::string& path);

 private:
  friend class Books;
  struct Key {
    bool found = false;
    bool missed = false;
    bool made = false;
    bool published = false;
    std::chrono::nanoseconds saved{0};  ///< the least of those whose candidates were opened
  };
  std::map<std::pair<layout::Family, vfs::UseKind>, size_t>
      asked;  ///< the misses of a kind that questions were made of
  std::set<ProcessId> living;
  std::unordered_map<uint64_t, Key>
      keys;  ///< by the hash of AskedKey::key; emptied when the job has been over for long
  SteadyTime dead_since{};
};

/// The totals and the accounts of jobs. Needs external synchronisation.
class Books {
 public:
  explicit Books(const Clock& clock);

  /// Enters one notice of a job. `compiled_in` is how long the compile took whose result was opened, if that is known.
  void enter(const vfs::UseNotice& notice, const FoundJob& job, std::optional<std::chrono::nanoseconds> compiled_in);
  void enter_published(const std::string& canonical);
  /// Returns what is to be found out of the misses that were entered since the last call.
  [[nodiscard]] std::vector<MissQuestion> take_questions() { return std::exchange(questions_, {}); }
  /// Ledger::note_explained()
  void note_explained(const MissQuestion& question, std::string explained);
  /// Ends the jobs none of whose processes lives, and returns them; they stay as they are until the next change.
  [[nodiscard]] std::vector<const JobAccount*> close_ended(const std::function<bool(const ProcessId&)>& lives);

  [[nodiscard]] std::time_t since() const { return since_; }
  [[nodiscard]] const Tally& total() const { return total_; }
  [[nodiscard]] std::chrono::nanoseconds saved() const { return saved_; }
  /// The most that saved() has ever been: a counter must not fall.
  [[nodiscard]] std::chrono::nanoseconds saved_ever() const { return saved_ever_; }
  [[nodiscard]] Tally last_hour() const;
  /// The last one first.
  [[nodiscard]] std::vector<const JobAccount*> jobs() const;

 private:
  /// The processes of a job that are looked at; a job of more has ended when these have.
  static constexpr size_t kMostProcesses = 256;
  static constexpr size_t kMostPids = 64;    ///< by which people find a job
  static constexpr size_t kMostKeys = 4096;  ///< further ones count at each use
  static constexpr size_t kMostValues = 8;   ///< of a variable, and environments
  /// Of misses of one family for one reason, so many are asked about: the others are alike. Not so those that vLLM
  /// names by its settings.
  static constexpr size_t kAskedAlike = 2;
  static constexpr size_t kAskedOfSettings = 10;
  static constexpr size_t kValueLimit = 64;  ///< bytes of a variable that are kept
  /// How long after its end what a job made may still be published for it.
  static constexpr std::chrono::seconds kKeysKept{60};
  static constexpr std::chrono::seconds kSlice{300};
  static constexpr size_t kSlices = 12;
  struct Slice {
    int64_t number = -1;
    Tally tally;
  };

  [[nodiscard]] JobAccount& account_of(const FoundJob& found);
  void note_process(JobAccount& job, const FoundJob& found) const;
  void make_room(uid_t user);
  void count(JobAccount& job, layout::Family family, const std::function<void(FamilyTally&)>& change);
  void enter_key(JobAccount& job, const layout::AskedKey& asked, const vfs::UseNotice& notice);
  void enter_miss(JobAccount& job, Miss miss);
  void enter_fetch(JobAccount& job, layout::Family family, const vfs::UseNotice& notice);
  void enter_saving(JobAccount& job, const std::string& asked_key, std::chrono::nanoseconds compiled_in);
  void set_saving(JobAccount& job, JobAccount::Key& key, std::chrono::nanoseconds saving);
  [[nodiscard]] Slice& slice_of_now();

  const Clock& clock_;
  const std::time_t since_;
  Tally total_;
  std::chrono::nanoseconds saved_{0};
  std::chrono::nanoseconds saved_ever_{0};
  std::array<Slice, kSlices> slices_;
  std::map<uint64_t, JobAccount> jobs_;
  std::map<JobName, uint64_t> open_;
  std::vector<MissQuestion> questions_;
  uint64_t last_number_ = 0;
};

}  // namespace inductorfs::ledger
