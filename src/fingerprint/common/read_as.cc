// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/common/read_as.h"

#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "inductorfs/base/own_user.h"
#include "inductorfs/base/read_bounds.h"

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

Result<void> confine(const FileUser& user, int root, const CallFilter* filter) {
  const pid_t parent = ::getppid();
  INDUCTORFS_TRY(become(user));
  const Result<void> inside = root < 0 ? Result<void>() : bound_reading(root);
  if (!inside && inside.error().code() != ErrorCode::kNotSupported) return fail(inside.error());
  // With the other user the kernel has forgotten it: whoever waits for this process may end.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) ::_exit(EXIT_FAILURE);
  return filter != nullptr ? filter->apply() : Result<void>();
}

}  // namespace inductorfs::fingerprint
