// SPDX-License-Identifier: Apache-2.0
#include "read_as.h"

#include <grp.h>
#include <linux/capability.h>
#include <unistd.h>

#include "inductorfs/base/capabilities.h"

namespace inductorfs::fingerprint {
namespace {

constexpr int kReadAll[] = {CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH};

}  // namespace

Result<void> become(const FileUser& user) {
  if (::geteuid() != 0) return {};
  if (user.user == 0 && user.reads_all) return keep_capabilities(kReadAll);
  // Without CAP_SETGID the groups stay, and the user's own do not count; without CAP_SETUID the number does.
  (void)::setgroups(user.groups.size(), user.groups.data());
  (void)!::setresgid(user.group, user.group, user.group);
  (void)!::setresuid(user.user, user.user, user.user);
  return keep_capabilities({});
}

}  // namespace inductorfs::fingerprint
