// SPDX-License-Identifier: Apache-2.0
#include "read_as.h"

#include <grp.h>
#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace inductorfs::fingerprint {
namespace {

/// setfsuid(2): it returns what was before, and a number that is no user's changes nothing.
constexpr uid_t kNobody = static_cast<uid_t>(-1);
constexpr uint64_t kReadAll = uint64_t{1} << CAP_DAC_OVERRIDE | uint64_t{1} << CAP_DAC_READ_SEARCH;
constexpr unsigned kWordBits = 32;

/// Keeps those of this thread's effective capabilities that are in `kept`; returns what it had. The others can be taken
/// up again.
uint64_t keep_capabilities(uint64_t kept) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  if (::syscall(SYS_capget, &header, data) != 0) return 0;
  const uint64_t had = data[0].effective | static_cast<uint64_t>(data[1].effective) << kWordBits;
  data[0].effective = data[0].permitted & static_cast<uint32_t>(kept);
  data[1].effective = data[1].permitted & static_cast<uint32_t>(kept >> kWordBits);
  (void)::syscall(SYS_capset, &header, data);
  return had;
}

}  // namespace

ReadAs::ReadAs(const FileUser& user) : changes_(::geteuid() == 0) {
  if (!changes_) return;
  if (user.user != 0 || !user.reads_all) {
    // Without CAP_SETGID the groups stay, and the user's own do not count.
    (void)::setgroups(user.groups.size(), user.groups.data());
    ::setfsgid(user.group);
    // The kernel takes CAP_DAC_OVERRIDE and the like away with it (capabilities(7)).
    ::setfsuid(user.user);
  }
  had_ = keep_capabilities(user.user == 0 && user.reads_all ? kReadAll : 0);
}

ReadAs::~ReadAs() {
  if (!changes_) return;
  ::setfsuid(0);
  ::setfsgid(0);
  (void)keep_capabilities(had_);
}

ReadAsSelf::ReadAsSelf() {
  if (::geteuid() != 0) return;
  user_ = static_cast<uid_t>(::setfsuid(kNobody));
  group_ = static_cast<gid_t>(::setfsgid(kNobody));
  ::setfsuid(0);
  ::setfsgid(0);
}

ReadAsSelf::~ReadAsSelf() {
  if (::geteuid() != 0) return;
  ::setfsgid(group_);
  ::setfsuid(user_);
}

}  // namespace inductorfs::fingerprint
