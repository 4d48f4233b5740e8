// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/read_bounds.h"

#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "inductorfs/base/fd.h"

namespace inductorfs {
namespace {

constexpr uint64_t kToRead = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
/// All that the first version of the kernel's knows.
constexpr uint64_t kJudged = (uint64_t{LANDLOCK_ACCESS_FS_MAKE_SYM} << 1) - 1;

}  // namespace

Result<void> bound_reading(int directory) {
  // A filter of an older container says EPERM to a call that it does not know.
  if (::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) < 1) {
    return fail(ErrorCode::kNotSupported, "the kernel has no Landlock, or the container allows none");
  }
  const landlock_ruleset_attr judged{kJudged};
  const Fd rules(static_cast<int>(::syscall(SYS_landlock_create_ruleset, &judged, sizeof judged, 0)));
  if (!rules) return fail_errno("landlock_create_ruleset");
  const landlock_path_beneath_attr rule{kToRead, directory};
  if (::syscall(SYS_landlock_add_rule, rules.get(), LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0) {
    return fail_errno("landlock_add_rule");
  }
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno("prctl");
  if (::syscall(SYS_landlock_restrict_self, rules.get(), 0) != 0) return fail_errno("landlock_restrict_self");
  return {};
}

}  // namespace inductorfs
