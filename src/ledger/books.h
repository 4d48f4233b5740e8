// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
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
  std::map<std::string, uint64_t> missed_otherwise;  ///< by the word of a later release for its reason
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
  std::string word{};       ///< of a later release for its reason; else empty
  std::string explained{};  ///< Ledger::note_explained()
};

/// What is known of one job.
struct JobAccount {
  uint64_t number = 0;  ///< by which people name it; never used again in its store
  JobName name;
  std::string command;
  std::string script;  ///< FoundJob::script
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
  uint64_t processes = 0;    ///< ever
  uint64_t cpus = 0;         ///< FoundJob::cpus
  uint64_t not_counted = 0;  ///< uses of keys beyond Books::kMostKeys: they make all figures lower bounds
  std::set<pid_t> pids;      ///< of these, as far as there is room

  /// Finds the latest miss of this path; nullptr when it is not remembered.
  [[nodiscard]] Miss* miss_at(const std::string& path);

  struct Key {
    bool found = false;
    bool missed = false;
    bool made = false;
    bool published = false;
    std::chrono::nanoseconds saved{0};  ///< the least of those whose candidates were opened
  };
  /// Misses that look alike.
  using Alike = std::pair<layout::Family, vfs::UseKind>;
  struct Found {
    uint64_t count = 0;     ///< of the misses that were asked about
    std::string explained;  ///< of the last one
  };
  std::map<Alike, uint64_t> missed;                         ///< since this worker began
  std::map<Alike, std::map<std::string, Found>> found_out;  ///< by reason
  std::set<ProcessId> living;
  std::map<uint64_t, Key> keys;  ///< by the hash of AskedKey::key; emptied when the job has been over for long
  SteadyTime dead_since{};
  bool is_changed = false;  ///< since it was kept last
};

/// What the jobs of one program of a user came to, those too that are forgotten.
struct ProgramTally {
  FamilyTally keys;
  std::chrono::nanoseconds saved{0};
  std::time_t last_use = 0;
  void add(const ProgramTally& other);
};

/// What was counted in five minutes.
struct Slice {
  int64_t number = -1;
  Tally tally;
};

/// What a store has counted since it is one.
struct Totals {
  static constexpr size_t kSlices = 12;
  std::time_t since = 0;
  Tally tally;
  std::chrono::nanoseconds saved{0};
  std::chrono::nanoseconds saved_ever{0};  ///< the most that `saved` has ever been: a counter must not fall
  std::array<Slice, kSlices> slices;
  /// By user, vfs::kAnyUser for processes that cannot be seen and for users beyond the limit, and by program_of().
  std::map<uid_t, std::map<std::string, ProgramTally>> programs;
  uint64_t last_number = 0;  ///< of a job
  uint64_t not_counted = 0;  ///< the jobs' since this worker began
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
  void note_explained(const MissQuestion& question, const std::string& reason, std::string explained);
  /// Ledger::ask_again()
  void ask_again(uint64_t job);
  /// Ends the jobs none of whose processes lives, and returns them; they stay as they are until the next change.
  [[nodiscard]] std::vector<const JobAccount*> close_ended(const std::function<bool(const ProcessId&)>& lives);

  [[nodiscard]] const Totals& totals() const { return totals_; }
  [[nodiscard]] Tally last_hour() const;
  /// The last one first.
  [[nodiscard]] std::vector<const JobAccount*> jobs() const;

  /// Goes on with what an earlier worker has counted; to be called before anything is entered.
  void restore(Totals totals) { totals_ = std::move(totals); }
  void restore(JobAccount job);
  /// No job gets a number up to this one.
  void use_no_number_to(uint64_t number) { totals_.last_number = std::max(totals_.last_number, number); }
  /// Returns copies of the jobs that have changed since the last call, and forgets those of more than a week ago.
  [[nodiscard]] std::vector<JobAccount> take_changed();
  void change_all();

  /// The processes of a job that are looked at; a job of more has ended when these have.
  static constexpr size_t kMostProcesses = 256;
  static constexpr size_t kMostPids = 64;    ///< by which people find a job
  static constexpr size_t kMostKeys = 4096;  ///< uses of further ones: JobAccount::not_counted
  static constexpr size_t kMostValues = 8;   ///< of a variable, and environments
  /// Of misses of one family for one reason the first two are asked about, and then every fourth power: most are alike.
  /// Of those that vLLM names by its settings more.
  static constexpr size_t kAskedAlike = 2;
  static constexpr size_t kMostReasons = 32;  ///< of a job, each with what was found out
  static constexpr size_t kAskedOfSettings = 10;
  static constexpr size_t kValueLimit = 64;  ///< bytes of a variable that are kept
  /// How long after its end what a job made may still be published for it.
  static constexpr std::chrono::seconds kKeysKept{60};
  static constexpr std::chrono::seconds kSlice{300};
  static constexpr size_t kMostUsers = 256;      ///< whose programs are told apart; further ones count as kAnyUser
  static constexpr size_t kProgramsOfUser = 32;  ///< of more, the one used longest ago counts as "others"
  static constexpr std::chrono::days kKept{7};

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
  [[nodiscard]] ProgramTally& program_tally_of(const JobAccount& job);

  const Clock& clock_;
  Totals totals_;
  std::map<uint64_t, JobAccount> jobs_;
  std::map<JobName, uint64_t> open_;
  std::vector<MissQuestion> questions_;
};

/// What people call the program of a job: "python /opt/job/train.py".
[[nodiscard]] std::string program_of(const JobAccount& job);

}  // namespace inductorfs::ledger
