// SPDX-License-Identifier: Apache-2.0
#include "read_as.h"

#include <grp.h>
#include <sys/fsuid.h>
#include <unistd.h>

namespace inductorfs::fingerprint {
namespace {

/// setfsuid(2): it returns what was before, and a number that is no user's changes nothing.
constexpr uid_t kNobody = static_cast<uid_t>(-1);

}  // namespace

ReadAs::ReadAs(const FileUser& user) : changes_(user.user != 0 && ::geteuid() == 0) {
  if (!changes_) return;
  // Without CAP_SETGID the groups stay, and the user's own do not count.
  (void)::setgroups(user.groups.size(), user.groups.data());
  ::setfsgid(user.group);
  // The kernel takes CAP_DAC_OVERRIDE and the like away with it (capabilities(7)).
  ::setfsuid(user.user);
}

ReadAs::~ReadAs() {
  if (!changes_) return;
  ::setfsuid(0);
  ::setfsgid(0);
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
