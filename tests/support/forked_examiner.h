// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <map>
#include <memory>
#include <string>

#include "inductorfs/base/fd.h"
#include "inductorfs/fingerprint/examiner.h"

namespace inductorfs::testing {

/// A real examiner with these tasks, a child of this process, which must have one thread when it is made.
class ForkedExaminer {
 public:
  explicit ForkedExaminer(std::map<std::string, fingerprint::ExaminerTask, std::less<>> tasks) {
    std::array<int, 2> ends{-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
    worker_end_.reset(ends[0]);
    const Fd own_end(ends[1]);
    pid_ = ::fork();
    if (pid_ != 0) {
      link_ = std::make_shared<const fingerprint::ExaminerLink>(worker_end_.get(), [] {});
      return;
    }
    worker_end_.reset();
    fingerprint::ExaminerOptions options;
    options.tasks = std::move(tasks);
    options.reading = fingerprint::filter_of_reading().value_or(std::nullopt);
    fingerprint::run_examiner(own_end.get(), options);
    ::_exit(0);
  }
  ~ForkedExaminer() {
    if (pid_ <= 0) return;
    (void)::kill(pid_, SIGKILL);
    (void)::waitpid(pid_, nullptr, 0);
  }
  ForkedExaminer(const ForkedExaminer&) = delete;
  ForkedExaminer& operator=(const ForkedExaminer&) = delete;

  [[nodiscard]] const std::shared_ptr<const fingerprint::ExaminerLink>& link() const { return link_; }
  [[nodiscard]] int socket() const { return worker_end_.get(); }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  Fd worker_end_;
  pid_t pid_ = -1;
  std::shared_ptr<const fingerprint::ExaminerLink> link_;
};

/// A task that answers this, whatever it is asked.
inline fingerprint::ExaminerTask says(const std::string& text) {
  fingerprint::ExaminerTask task;
  task.answer = [text](const fingerprint::ExaminerCall&) { return text; };
  return task;
}

}  // namespace inductorfs::testing
