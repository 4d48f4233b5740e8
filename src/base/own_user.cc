// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/own_user.h"

#include <grp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <optional>

#include "inductorfs/base/capabilities.h"

namespace inductorfs {
namespace {

struct Ids {
  uid_t uid;
  gid_t gid;
};

/// Written once, before there are threads.
std::optional<Ids>& before() {
  static std::optional<Ids> ids;
  return ids;
}

}  // namespace

uid_t own_uid() { return before() ? before()->uid : ::geteuid(); }
gid_t own_gid() { return before() ? before()->gid : ::getegid(); }

void act_for(uid_t uid, gid_t gid) { before() = {uid, gid}; }

Result<void> become_user(uid_t uid, gid_t gid, std::span<const gid_t> groups) {
  const Ids ids{own_uid(), own_gid()};
  if (::setgroups(groups.size(), groups.data()) != 0) return fail_errno("setgroups");
  if (::setresgid(gid, gid, gid) != 0) return fail_errno("setresgid");
  if (::setresuid(uid, uid, uid) != 0) return fail_errno("setresuid");
  INDUCTORFS_TRY(keep_capabilities({}));
  // As the kernel leaves it, unless fs.suid_dumpable says something else.
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return fail_errno("prctl");
  before() = ids;
  return {};
}

}  // namespace inductorfs
