// SPDX-License-Identifier: Apache-2.0
#include "mount/processes/asked_processes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "inductorfs/base/fd.h"
#include "support/emulator.h"
#include "support/forked_examiner.h"

namespace inductorfs::mount {
namespace {

constexpr Milliseconds kLong{20'000};
constexpr uint64_t kMost = 1U << 20;

/// Each child says the same as whoever may make all system calls.
TEST(AskedProcesses, AreLookedAtByChildrenThatOnlyRead) {
  INDUCTORFS_NEEDS_OWN_PROC();
  const fingerprint::ExaminerTask job = job_task();
  const fingerprint::ExaminerTask mounts = mounts_task();
  EXPECT_TRUE(job.only_reads && mounts.only_reads);
  const testing::ForkedExaminer examiner({{kJobTask, job}, {kMountsTask, mounts}});
  const auto ask = [&examiner](const char* task) {
    return examiner.link()->ask(task, {}, Deadline::after(kLong), -1, ::getpid()).value_or("");
  };
  const auto signs = ledger::read_job_signs("/proc", ::getpid());
  ASSERT_TRUE(signs);
  EXPECT_EQ(ask(kJobTask), ledger::to_text(*signs));
  EXPECT_EQ(ask(kMountsTask), read_file(AT_FDCWD, "/proc/self/mountinfo", kMost).value_or("none"));
}

}  // namespace
}  // namespace inductorfs::mount
