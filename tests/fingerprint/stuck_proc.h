// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "inductorfs/base/fd.h"

namespace inductorfs::fingerprint::testing {

/// A /proc in which the `maps` of process kStuck is a FIFO: who opens it waits, as who reads the maps of a process that
/// holds its memory map's lock. Needs external synchronisation.
class StuckProc {
 public:
  static constexpr pid_t kStuck = 7;
  /// Makes it in the folder `proc`.
  explicit StuckProc(std::string proc);
  ~StuckProc() { let_go(""); }
  StuckProc(const StuckProc&) = delete;
  StuckProc& operator=(const StuckProc&) = delete;
  /// Adds a process without `maps`, of root, with our root.
  void add(pid_t pid, pid_t parent = 1) const;
  /// Makes it one that has so much mapped.
  void set_size(pid_t pid, pid_t parent, uint64_t bytes) const;
  /// The lock is free once: whoever waits for the maps gets these. False: nobody waits.
  bool let_go(const std::string& maps) const;  // NOLINT(modernize-use-nodiscard): often nobody does
  /// As let_go(), and nobody who looks from now on waits. False: nothing has changed.
  [[nodiscard]] bool unlock(const std::string& maps) const;
  [[nodiscard]] const std::string& path() const { return proc_; }

 private:
  [[nodiscard]] Fd who_waits() const;

  const std::string proc_;
  const std::string maps_;
};

}  // namespace inductorfs::fingerprint::testing
