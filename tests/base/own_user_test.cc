// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/own_user.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>

#include "inductorfs/base/fd.h"
#include "support/lacks.h"

namespace inductorfs {
namespace {

constexpr uid_t kUid = 60957;
constexpr gid_t kGid = 60958;
constexpr gid_t kFurther = 60959;

/// What a child that becomes that user says: the number of the first condition that does not hold, or 0.
int said_by_child(const std::function<int()>& check) {
  const pid_t child = ::fork();
  if (child == 0) {
    const std::array<gid_t, 1> groups{kFurther};
    ::_exit(become_user(kUid, kGid, groups) ? check() : 99);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

uint64_t effective() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
  if (::syscall(SYS_capget, &header, sets.data()) != 0) return ~uint64_t{0};
  return sets[0].effective | sets[0].permitted | uint64_t{sets[1].effective | sets[1].permitted} << 32U;
}

TEST(OwnUser, IsThisProcessUntilItBecomesAnother) {
  EXPECT_EQ(own_uid(), ::geteuid());
  EXPECT_EQ(own_gid(), ::getegid());
}

TEST(OwnUser, StaysWhoeverTheProcessBecomesForGood) {
  if (::geteuid() != 0) INDUCTORFS_LACKS("root");
  EXPECT_EQ(said_by_child([] {
              std::array<gid_t, 8> groups{};
              if (own_uid() != 0 || own_gid() != 0) return 1;
              if (::geteuid() != kUid || ::getuid() != kUid || ::getegid() != kGid) return 2;
              if (::getgroups(groups.size(), groups.data()) != 1 || groups[0] != kFurther) return 3;
              if (effective() != 0) return 4;
              if (::prctl(PR_GET_DUMPABLE) != 0) return 5;
              if (::setresuid(0, 0, 0) == 0 || ::setgid(0) == 0) return 6;
              return Fd(::open("/proc/self/fd", O_RDONLY)) ? 0 : 7;
            }),
            0);
}

}  // namespace
}  // namespace inductorfs
