// SPDX-License-Identifier: Apache-2.0
#include "file_bounds.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/fd.h"

namespace inductorfs::mount {
namespace {

/// include/uapi/linux/landlock.h of Linux 6.12, of which Debian 12 has the first line.
struct Ruleset {
  uint64_t files;
  uint64_t ports;
  uint64_t scoped;
};
constexpr uint64_t kTruncate = uint64_t{1} << 14;  // version 3
constexpr uint64_t kBindPort = 1;                  // version 4
constexpr uint64_t kDevice = uint64_t{1} << 15;    // ioctl(2) of devices: version 5
constexpr uint64_t kAbstractSockets = 1;           // version 6
constexpr long kWithRenames = 2;
constexpr long kWithTruncate = 3;
constexpr long kWithPorts = 4;
constexpr long kWithDevices = 5;
constexpr long kWithScopes = 6;

constexpr uint64_t kOfTree =
    LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR |
    LANDLOCK_ACCESS_FS_WRITE_FILE;  // its mounts are read-only but for devices without hardware
constexpr uint64_t kOfStore = kOfTree | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |
                              LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SYM |
                              LANDLOCK_ACCESS_FS_REFER;
constexpr uint64_t kOfNobody = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                               LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SOCK |
                               LANDLOCK_ACCESS_FS_MAKE_FIFO;

/// What this version of the kernel's can judge. Whatever is judged and not allowed is refused.
Ruleset judged_by(long version) {
  Ruleset all{kOfStore | kOfNobody, 0, 0};
  if (version >= kWithTruncate) all.files |= kTruncate;
  if (version >= kWithPorts) all.ports = kBindPort;
  if (version >= kWithDevices) all.files |= kDevice;
  const char* const systemd = std::getenv("NOTIFY_SOCKET");  // NOLINT(concurrency-mt-unsafe): one thread
  const bool is_abstract = systemd != nullptr && *systemd == '@';
  if (version >= kWithScopes && !is_abstract) all.scoped = kAbstractSockets;
  return all;
}

Result<void> allow(const Fd& rules, const std::string& path, uint64_t what) {
  INDUCTORFS_TRY_ASSIGN(const Fd place, open_at(AT_FDCWD, path, O_PATH | O_CLOEXEC));
  const landlock_path_beneath_attr rule{what, place.get()};
  if (::syscall(SYS_landlock_add_rule, rules.get(), LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0) {
    return fail_errno("landlock_add_rule", path);
  }
  return {};
}

}  // namespace

Result<void> stay_in_tree(const config::Settings& settings) {
  const long version = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < kWithRenames) {
    return fail(ErrorCode::kNotSupported,
                version < 0 ? std::string("landlock: ") + std::strerror(errno) : "landlock of before Linux 5.19");
  }
  const Ruleset judged = judged_by(version);
  const Fd rules(static_cast<int>(::syscall(SYS_landlock_create_ruleset, &judged, sizeof judged, 0)));
  if (!rules) return fail_errno("landlock_create_ruleset");
  INDUCTORFS_TRY(allow(rules, "/", kOfTree));
  const uint64_t of_store = kOfStore | (judged.files & kTruncate);
  INDUCTORFS_TRY(allow(rules, settings.store, of_store));
  if (const std::string tests = fail_point_directory(); !tests.empty()) INDUCTORFS_TRY(allow(rules, tests, of_store));
  if (::syscall(SYS_landlock_restrict_self, rules.get(), 0) != 0) return fail_errno("landlock_restrict_self");
  return {};
}

}  // namespace inductorfs::mount
