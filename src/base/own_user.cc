// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/own_user.h"

#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <optional>

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

Result<void> keep_capabilities(std::span<const int> kept) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
  if (::syscall(SYS_capget, &header, sets.data()) != 0) return fail_errno("capget");
  std::array<uint32_t, _LINUX_CAPABILITY_U32S_3> masks{};
  for (const int capability : kept) masks.at(CAP_TO_INDEX(capability)) |= CAP_TO_MASK(capability);
  for (size_t i = 0; i < sets.size(); ++i) {
    sets.at(i).permitted &= masks.at(i);
    sets.at(i).effective = sets.at(i).permitted;
    sets.at(i).inheritable = 0;
  }
  if (::syscall(SYS_capset, &header, sets.data()) != 0) return fail_errno("capset");
  return {};
}

}  // namespace inductorfs
