// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

/// What those threads are doing that some caller waits for, so that a thread that does not go on can be named.
/// Safe for concurrent use.
namespace inductorfs {

enum class AwaitedBy {
  kEnd,  ///< only the end of the process waits for it
  kSync  ///< a caller that waits until everything is published waits for it too
};

struct AtWork {
  uint64_t number = 0;  ///< of this piece of work; no other piece has the same
  pid_t thread = 0;     ///< the thread's id in the kernel
  std::string name;     ///< the thread's name
  std::string what;     ///< "seals ab/cab.py"
  AwaitedBy awaited_by = AwaitedBy::kEnd;
};

/// Says that the constructing thread is working at `what` for as long as the object lives. A thread that waits for work
/// has none. Confined to the constructing thread.
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
