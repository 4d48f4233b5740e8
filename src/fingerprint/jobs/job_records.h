// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fingerprint/processes/writers_process.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/base/result.h"

namespace inductorfs::fingerprint {

/// What a process was told about its environment. Immutable value.
struct JobRecord {
  pid_t pid = 0;
  ProcessIdentity identity;
  std::string environment;  ///< a name of JobEnvironments; empty: it is not known, and stays so
  bool operator==(const JobRecord&) const = default;
};

/// The answers of Jobs in a file, so that the next worker gives a process the answer that it had from this one. The
/// first line of the file names the boot, since process ids mean nothing after another one. Each further line is a
/// record; of two records with one process id the later one counts. Nothing is flushed to the disk: the file has to
/// outlive this process, not the host.
///
/// Blocks on the local disk. Safe for concurrent use.
class JobRecords {
 public:
  /// Reads the file, and writes it anew with the records of processes that still live. `proc` is the /proc directory.
  /// At most `limit` records are kept; of more, the first ones go. An empty `file` keeps nothing.
  JobRecords(std::string file, const std::string& proc, size_t limit);
  /// Returns what the file said of processes that still lived at the start, the oldest first.
  [[nodiscard]] std::vector<JobRecord> earlier() const;
  /// Keeps a record. When it returns, the record outlives a kill -9 of this process.
  void add(const JobRecord& record);

  /// The most lines of the file for each record that is kept; then it is written anew.
  static constexpr size_t kLinesOfOne = 2;

 private:
  struct Kept {
    JobRecord record;
    uint64_t number = 0;
  };
  struct State {
    std::map<pid_t, Kept> records;
    uint64_t last = 0;
    size_t lines = 0;
    Fd file;  ///< open for appending; not open: the file has to be written anew
  };
  [[nodiscard]] static std::vector<JobRecord> in_order(const State& state);
  void take(State& state, const JobRecord& record) const;
  void drop_ended(State& state) const;
  [[nodiscard]] Result<void> write_anew(State& state) const;
  [[nodiscard]] Result<void> append(State& state, const JobRecord& record) const;

  const std::string path_;
  const ProcReader reader_;
  const std::string boot_;
  const size_t limit_;
  Guarded<State> state_;
};

/// Returns the records in the text of such a file, in its order; none when it is of another boot. A line that is no
/// record is left out, and so is one without an end: its write was cut off.
[[nodiscard]] std::vector<JobRecord> parse_job_records(std::string_view text, std::string_view boot);

}  // namespace inductorfs::fingerprint
