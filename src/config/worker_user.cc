// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/config/worker_user.h"

#include <grp.h>
#include <pwd.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "inductorfs/base/handle.h"

namespace inductorfs::config {
namespace {

constexpr std::string_view kName = "inductorfs";
constexpr size_t kMostGroups = 63;  // one more may come to them (src/supervisor/user.h)

using File = Handle<FILE, std::fclose>;

}  // namespace

Result<WorkerUser> worker_user() {
  WorkerUser user{kUnusedNumber, kUnusedNumber, {}};
  const File users(std::fopen("/etc/passwd", "re"));
  bool is_named = false;
  for (const passwd* one = nullptr; users && !is_named && (one = ::fgetpwent(users.get())) != nullptr;) {
    is_named = one->pw_name == kName;
    if (is_named) user = {one->pw_uid, one->pw_gid, {}};
    if (one->pw_uid == user.uid && (!is_named || user.uid == 0)) {
      return fail(ErrorCode::kInvalid, "/etc/passwd gives the number " + std::to_string(user.uid) + " to " +
                                           one->pw_name + ": make a system user inductorfs");
    }
  }
  const File groups(std::fopen("/etc/group", "re"));
  for (const group* one = nullptr; is_named && groups && (one = ::fgetgrent(groups.get())) != nullptr;) {
    for (char** member = one->gr_mem; *member != nullptr; ++member) {
      if (*member == kName && user.groups.size() < kMostGroups) user.groups.push_back(one->gr_gid);
    }
  }
  return user;
}

bool is_worker_user(uid_t uid) {
  if (uid == kUnusedNumber) return true;
  const auto user = worker_user();
  return user && uid == user->uid;
}

}  // namespace inductorfs::config
