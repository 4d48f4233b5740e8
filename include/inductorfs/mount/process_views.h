// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/base/mount_paths.h"

namespace inductorfs::mount {

/// A process, and not a later one with its number. Immutable value.
struct ViewedProcess {
  pid_t pid = 0;
  uint64_t start = 0;    ///< clock ticks since boot
  bool is_ours = false;  ///< it asks for the file system (open_files.h), and has to meet the files themselves
};

/// Tells of processes. Each call may block for some seconds.
struct ViewSources {
  /// The one that a thread belongs to; empty when it has ended, or cannot be seen.
  std::function<std::optional<ViewedProcess>(pid_t thread)> process_of;
  /// Its list of mounts as the kernel writes it; empty when it has ended, or the list has more than kMostBytes.
  std::function<std::optional<std::string>(pid_t process)> mounts_of;
  /// The list of this process.
  std::function<std::vector<MountEntry>()> own_mounts;
};

/// Finds the path under which a process sees a file of the mount: a container shows the mount at a path of its own. It
/// takes that from the process's list of mounts, which the kernel makes from its own memory. What it learned of a
/// process is kept for kAge, because a process may mount later. A wrong path costs a miss of a Triton kernel.
///
/// Safe for concurrent use.
class ProcessViews {
 public:
  static constexpr size_t kMostProcesses = 1024;
  static constexpr uint64_t kMostBytes = uint64_t{256} << 10;  ///< of a list of mounts: some 1,300 mounts
  static constexpr Milliseconds kAge{5000};
  /// For so long no look is taken whether another thread has the number by now: a job asks for hundreds of kernels in a
  /// row, each look costs 30 us, and the kernel gives a number again only after all others.
  static constexpr Milliseconds kTrust{1000};

  /// `clock` must outlive this object.
  ProcessViews(std::string mountpoint, ViewSources sources, const Clock& clock = system_clock());

  /// Returns the absolute path at which a thread sees a path of the mount, which is relative to it. That is the path
  /// below the mountpoint if this path leads there for the thread, too, or if nothing is known of the thread: its
  /// number is 0, it has ended, it sees no part of the mount that holds the file, or its list is longer than
  /// kMostBytes. Empty for a process of ours.
  [[nodiscard]] std::string path_for(pid_t thread, std::string_view path);

  /// Counts the lists that were read.
  [[nodiscard]] uint64_t lists_read() const;

 private:
  using Paths = std::shared_ptr<const MountPaths>;
  struct Thread {
    ViewedProcess process;
    SteadyTime checked_at;
  };
  struct Known {
    uint64_t start = 0;
    Paths paths;  ///< nullptr: nobody could tell
    SteadyTime read_at;
  };
  struct State {
    std::map<pid_t, Thread> threads;
    std::map<pid_t, Known> processes;
    std::string device;  ///< of this mount; empty: not known yet
    uint64_t lists_read = 0;
  };
  [[nodiscard]] std::optional<ViewedProcess> process_of(pid_t thread, SteadyTime now);
  [[nodiscard]] Paths paths_of(const ViewedProcess& process, SteadyTime now);
  [[nodiscard]] std::string device();

  const std::string mountpoint_;
  const ViewSources sources_;
  const Clock& clock_;
  Guarded<State> state_;
};

}  // namespace inductorfs::mount
