// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <future>
#include <thread>

namespace inductorfs::testing {

/// A thread of this process that only exists, so that requests can be made in its name.
class Thread {
 public:
  Thread()
      : thread_([this](const std::stop_token&) {
          id_.set_value(::gettid());
          (void)end_.get_future().wait();
        }) {
    own_id_ = id_.get_future().get();
  }
  ~Thread() { end_.set_value(); }
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;
  [[nodiscard]] pid_t id() const { return own_id_; }

 private:
  std::promise<pid_t> id_;
  std::promise<void> end_;
  pid_t own_id_ = 0;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace inductorfs::testing
