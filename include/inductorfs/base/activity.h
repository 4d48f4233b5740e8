// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

/// What the threads are at that somebody waits for: so that one that does not go on can be named. Safe for concurrent
/// use.
namespace inductorfs {

enum class AwaitedBy {
  kEnd,  ///< the end of the process alone
  kSync  ///< also who wants all to be published
};

struct AtWork {
  uint64_t number = 0;  ///< of this piece of work; no other one has it
  pid_t thread = 0;     ///< kernel id
  std::string name;     ///< of the thread
  std::string what;     ///< "seals ab/cab.py"
  AwaitedBy awaited_by = AwaitedBy::kEnd;
};

/// This thread is at something, as long as the object lives. Not while it waits for something to do.
/// Confined to the constructing thread.
class Activity {
 public:
  explicit Activity(std::string what, AwaitedBy awaited_by = AwaitedBy::kEnd);
  ~Activity();
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

 private:
  const uint64_t number_;
};

[[nodiscard]] std::vector<AtWork> threads_at_work();

}  // namespace inductorfs
