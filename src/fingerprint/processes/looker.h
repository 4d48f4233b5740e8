// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fingerprint/processes/package_reader.h"
#include "fingerprint/processes/writers_process.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/fingerprint/examiner.h"

namespace inductorfs::fingerprint {

/// An answer of Looker. Immutable value.
template <typename T>
struct Looked {
  /// Nobody can tell now: what is looked at blocks, or who looks is away. Whoever asks may ask again.
  bool is_late = false;
  std::optional<T> found{};  ///< empty: it cannot be examined, or has ended
};

/// What a process says of its environment. Immutable value.
struct Variables {
  LiveEnvironment environment;
  std::vector<NamedFile> files;
  Told named{};  ///< as Process::named
};

/// Looks at processes, which needs the rights of their users or of root. Each call may block until a deadline. Safe for
/// concurrent use.
class Looker {
 public:
  virtual ~Looker() = default;
  /// As ProcReader::look_at(), with Process::memory.
  [[nodiscard]] virtual Looked<Process> look_at(pid_t pid, const ProcessIdentity& identity) = 0;
  /// Returns what the process is now: whoever looks knows that although the look itself takes long. Blocks for a
  /// quarter of a second at most; nothing when nobody can tell.
  [[nodiscard]] virtual std::optional<ProcessIdentity> identity_of(pid_t pid) = 0;
  /// As ProcReader::environment_of() and files_of().
  [[nodiscard]] virtual Looked<Variables> variables_of(const Process& process) = 0;
  /// As ProcReader::hold(). Blocks for a quarter of a second at most.
  [[nodiscard]] virtual Looked<std::shared_ptr<const Held>> hold(const Process& process) = 0;
  /// As have_package_read(). Empty: nobody has read it, and whoever asks may ask again.
  [[nodiscard]] virtual std::optional<Fact> read_package(const PackageRequest& request) = 0;
};

/// Has the examiner look. An answer is waited for as long as `patience`; a question that was cut off is asked again
/// until then.
[[nodiscard]] std::unique_ptr<Looker> make_far_looker(std::shared_ptr<const ExaminerLink> examiner,
                                                      Milliseconds patience);

}  // namespace inductorfs::fingerprint
