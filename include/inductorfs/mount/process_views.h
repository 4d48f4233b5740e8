// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/base/mount_paths.h"

namespace inductorfs::mount {

/// Finds the path under which a process sees a file of the mount: a container shows the mount at a path of its own. It
/// reads the process's list of mounts in /proc, which the kernel makes from its own memory: no file system, and nothing
/// of the process, is touched. What it learned of a thread is kept for kAge, because a process may mount later. A
/// wrong path costs a miss of a Triton kernel. Safe for concurrent use.
class ProcessViews {
 public:
  static constexpr size_t kMostProcesses = 1024;
  static constexpr uint64_t kMostBytes = uint64_t{1} << 20;  ///< of a list of mounts: some 5,000 mounts
  static constexpr Milliseconds kAge{5000};
  /// For so long no look is taken whether another thread has the number by now: a job asks for hundreds of kernels in a
  /// row, each look costs 15 us, and the kernel gives a number again only after all others.
  static constexpr Milliseconds kTrust{1000};

  /// `clock` must outlive this object.
  ProcessViews(std::string mountpoint, pid_t own_process, std::string proc = "/proc",
               const Clock& clock = system_clock());

  /// Returns the absolute path at which a thread sees a path of the mount, which is relative to it. That is the path
  /// below the mountpoint if this path leads there for the thread, too, or if nothing is known of the thread: its
  /// number is 0, it has ended, it sees no part of the mount that holds the file, or its list is longer than
  /// kMostBytes. Empty for a child of `own_process`: it asks for the file system (OpenFiles), and has to meet the
  /// files themselves.
  [[nodiscard]] std::string path_for(pid_t thread, std::string_view path);

  /// Counts the lists that were read.
  [[nodiscard]] uint64_t lists_read() const;

 private:
  struct Known {
    uint64_t start = 0;  ///< of the thread: another one may get its number
    std::shared_ptr<const MountPaths> paths;
    SteadyTime read_at;
    SteadyTime checked_at;  ///< when the start was compared
  };
  struct State {
    std::map<pid_t, Known> threads;
    std::string device;  ///< of this mount; empty: not known yet
    uint64_t lists_read = 0;
  };
  /// Without a start: what was checked a moment ago.
  [[nodiscard]] std::shared_ptr<const MountPaths> recall(pid_t thread, std::optional<uint64_t> start, SteadyTime now);
  [[nodiscard]] std::shared_ptr<const MountPaths> paths_of(pid_t thread);
  [[nodiscard]] std::shared_ptr<const MountPaths> read_paths(const std::string& thread);
  [[nodiscard]] std::string device();

  const std::string mountpoint_;
  const pid_t own_process_;
  const std::string proc_;
  const Clock& clock_;
  /// Stands for the paths of this process's children.
  const std::shared_ptr<const MountPaths> own_children_ =
      std::make_shared<const MountPaths>(std::vector<MountEntry>(), std::string());
  Guarded<State> state_;
};

}  // namespace inductorfs::mount
