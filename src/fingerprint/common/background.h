// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace inductorfs::fingerprint {

/// Runs work that looks at what other users chose, and may therefore block for ever in the kernel, on threads that
/// nobody joins. Each user gets a few of the threads, so that one user's trouble does not delay the work for another
/// user. The destructor does not wait: work that is running goes on until it ends. Safe for concurrent use.
class Background {
 public:
  /// `name` is that of the threads, at most 15 characters; `of_one` is how many threads one user may occupy.
  Background(std::string name, size_t threads, size_t of_one);
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  /// Runs `work` when a thread is free for this user. Returns false when so much work of this user waits already that
  /// `work` is not taken. `work` must own, or share, everything that it touches.
  [[nodiscard]] bool run(uid_t user, std::function<void()> work);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace inductorfs::fingerprint
