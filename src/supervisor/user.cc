// SPDX-License-Identifier: Apache-2.0
#include "user.h"

#include <grp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "inductorfs/base/number.h"

namespace inductorfs::supervisor {

bool parse_user(std::string_view text, WorkerIds& user) {
  const size_t first = text.find(':');
  const size_t second = text.find(':', first + 1);
  if (first == std::string_view::npos || second == std::string_view::npos) return false;
  if (!parse_number(text.substr(0, first), user.uid)) return false;
  if (!parse_number(text.substr(first + 1, second - first - 1), user.gid)) return false;
  user.group_count = 0;
  for (text.remove_prefix(second + 1); !text.empty();) {
    const std::string_view group = text.substr(0, text.find(','));
    if (user.group_count == user.groups.size()) return false;
    if (!parse_number(group, user.groups.at(user.group_count++))) return false;
    text.remove_prefix(group.size() < text.size() ? group.size() + 1 : text.size());
  }
  return user.uid != 0;
}

bool become(const WorkerIds& user) {
  if (user.uid == 0) return true;
  return ::setgroups(user.group_count, user.groups.data()) == 0 && ::setresgid(user.gid, user.gid, user.gid) == 0 &&
         ::setresuid(user.uid, user.uid, user.uid) == 0 && ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0;
}

}  // namespace inductorfs::supervisor
