// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "store_fixture.h"

namespace inductorfs::store {
namespace {

using codec::digest_of;
using Crash = StoreTest;

constexpr uint64_t kLimit = 400'000;

TEST_F(Crash, WhatWasCommittedBeforeTheKillIsThere) {
  int pipe_ends[2] = {-1, -1};
  ASSERT_EQ(::pipe2(pipe_ends, O_CLOEXEC), 0);
  const Fd read_end(pipe_ends[0]);
  Fd write_end(pipe_ends[1]);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Counters counters;
    auto store = BlobStore::open({directory(), kLimit}, counters);
    if (!store || !(*store)->put("hello")) ::_exit(1);
    (void)!::write(write_end.get(), "r", 1);  // the parent sees the end of the pipe if this fails
    for (;;) ::pause();
  }
  write_end.reset();
  char ready = 0;
  ASSERT_EQ(::read(read_end.get(), &ready, 1), 1);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  boot_ = running_boot_id();
  open(kLimit);
  EXPECT_EQ(content(digest_of("hello")), "hello");
}

}  // namespace
}  // namespace inductorfs::store
