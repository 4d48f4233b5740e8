// SPDX-License-Identifier: Apache-2.0
#include "mount/processes/file_bounds.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/text.h"
#include "inductorfs/mount/layers.h"
#include "inductorfs/mount/worker_tree.h"
#include "inductorfs/places/place.h"
#include "inductorfs/redis/url.h"

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
constexpr uint64_t kConnectPort = 2;               // the same
constexpr uint64_t kDevice = uint64_t{1} << 15;    // ioctl(2) of devices: version 5
constexpr uint64_t kAbstractSockets = 1;           // version 6
constexpr long kWithRenames = 2;
constexpr long kWithTruncate = 3;
constexpr long kWithPorts = 4;
constexpr long kWithDevices = 5;
constexpr long kWithScopes = 6;

/// Of what is allowed in a place, what a file can have.
constexpr uint64_t kOfFiles = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | kTruncate;
constexpr uint64_t kToRead = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
/// The mounts of a tree are read-only, but for devices without hardware.
constexpr uint64_t kOfTree = kToRead | LANDLOCK_ACCESS_FS_WRITE_FILE;
constexpr uint64_t kOfStore = kOfTree | kTruncate | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |
                              LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SYM |
                              LANDLOCK_ACCESS_FS_REFER;
constexpr uint64_t kOfNobody = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                               LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SOCK |
                               LANDLOCK_ACCESS_FS_MAKE_FIFO;

/// What this version of the kernel's can judge. Whatever is judged and not allowed is refused.
Ruleset judged_by(long version, bool names_ports) {
  Ruleset all{kOfStore | kOfNobody, 0, 0};
  if (version < kWithTruncate) all.files &= ~kTruncate;
  if (version >= kWithPorts) all.ports = kBindPort | (names_ports ? kConnectPort : 0);
  if (version >= kWithDevices) all.files |= kDevice;
  const char* const systemd = std::getenv("NOTIFY_SOCKET");  // NOLINT(concurrency-mt-unsafe): one thread
  const bool is_abstract = systemd != nullptr && *systemd == '@';
  if (version >= kWithScopes && !is_abstract) all.scoped = kAbstractSockets;
  return all;
}

uint64_t allowed_in(ShownPlace::Kind kind) {
  switch (kind) {
    case ShownPlace::Kind::kStore:
      return kOfStore;
    case ShownPlace::Kind::kDevice:
      return kOfTree;
    case ShownPlace::Kind::kLibraries:
    case ShownPlace::Kind::kReadOnly:
      return kToRead;
  }
  return 0;
}

struct Rule {
  std::string path;
  uint64_t what = 0;
  bool optional = false;
};

/// The directory around the store, if the tree has made it: in no other mount namespace anything lies below that, while
/// whoever makes one may mount what he wants below the store. What else is there is mounted read-only.
std::string around_store(const std::string& store) {
  struct stat root {};
  struct stat around {};
  const std::string directory = directory_of(store);
  const bool is_own =
      ::stat("/", &root) == 0 && ::stat(directory.c_str(), &around) == 0 && root.st_dev == around.st_dev;
  return is_own ? directory : store;
}

/// The directories of a log that this process opens and rotates itself, and of what it leads to by links, which need
/// not be there yet.
void add_ways_to(std::string log, bool in_store, std::vector<Rule>& rules) {
  constexpr int kMostLinks = 40;  // as the kernel has it
  // What is wrong with it says who opens it. A store that is to be made is empty until it is one.
  if (!in_store && (!check_log(log) || !make_directories(directory_of(log)))) return;
  for (int i = 0; i < kMostLinks; ++i) {
    rules.push_back({directory_of(log), kOfStore, true});
    std::array<char, PATH_MAX> end{};
    const ssize_t size = ::readlink(log.c_str(), end.data(), end.size() - 1);
    if (size <= 0) return;
    const std::string target(end.data(), static_cast<size_t>(size));
    log = target.front() == '/' ? target : directory_of(log) + "/" + target;
  }
}

std::vector<Rule> rules_for(const config::Settings& settings) {
  if (!settings.store_root.empty()) {
    std::vector<Rule> rules{{"/", kOfTree}, {around_store(settings.store), kOfStore}};
    if (std::string tests = fail_point_directory(); !tests.empty()) rules.push_back({std::move(tests), kOfStore});
    return rules;
  }
  std::vector<Rule> rules{{"/proc", kToRead}};
  for (ShownPlace& place : shown_places(settings)) {
    rules.push_back({std::move(place.path), allowed_in(place.kind), place.optional});
  }
  // Whoever is the user who has mounted opens and rotates a log itself.
  const std::string log = settings.worker ? std::string() : log_path(settings);
  if (!log.empty()) add_ways_to(log, log_is_in_store(settings), rules);
  return rules;
}

Result<void> add(const Fd& rules, const Rule& wanted, uint64_t judged) {
  const auto place = open_at(AT_FDCWD, wanted.path, O_PATH | O_CLOEXEC);
  if (!place && wanted.optional) return {};
  struct stat found {};
  if (!place || ::fstat(place->get(), &found) != 0) return fail_errno("open", wanted.path);
  const uint64_t what = wanted.what & judged & (S_ISDIR(found.st_mode) ? ~uint64_t{0} : kOfFiles);
  const landlock_path_beneath_attr rule{what, place->get()};
  if (::syscall(SYS_landlock_add_rule, rules.get(), LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0) {
    return fail_errno("landlock_add_rule", wanted.path);
  }
  return {};
}

/// The TCP ports that this worker connects to: the server's, and that of who resolves its name. None: the server names
/// others, as a Sentinel does and a Redis Cluster.
std::optional<std::vector<uint16_t>> ports_of(const std::string& remote) {
  constexpr uint16_t kNameService = 53;
  if (remote.empty()) return std::vector<uint16_t>();
  const auto server = redis::parse_url(remote);
  if (!server || server->sentinels || !server->cluster.empty()) return std::nullopt;
  if (!server->socket_path.empty()) return std::vector<uint16_t>();
  return std::vector<uint16_t>{server->port, kNameService};
}

Result<void> add(const Fd& rules, uint16_t port) {
  struct {
    uint64_t what;
    uint64_t port;
  } const rule{kConnectPort, port};
  constexpr int kPortRule = 2;  // LANDLOCK_RULE_NET_PORT
  if (::syscall(SYS_landlock_add_rule, rules.get(), kPortRule, &rule, 0) == 0) return {};
  return fail_errno("landlock_add_rule", "port " + std::to_string(port));
}

/// Nobody else may lead root to where it is made.
Result<void> have_store(const std::string& path) {
  constexpr mode_t kStoreMode = 0700;
  if (::access(path.c_str(), F_OK) == 0) return {};
  INDUCTORFS_TRY(places::check_own_place(path));
  return make_directories(path, kStoreMode);
}

}  // namespace

Result<void> stay_in_places(const config::Settings& settings) {
  const long version = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < kWithRenames) {
    return fail(ErrorCode::kNotSupported,
                version < 0 ? std::string("landlock: ") + std::strerror(errno) : "landlock of before Linux 5.19");
  }
  const auto ports = ports_of(settings.remote);
  const Ruleset judged = judged_by(version, ports.has_value());
  // A kernel takes a longer one than it knows as long as what it does not know is 0.
  const Fd rules(static_cast<int>(::syscall(SYS_landlock_create_ruleset, &judged, sizeof judged, 0)));
  if (!rules) return fail_errno("landlock_create_ruleset");
  INDUCTORFS_TRY(have_store(settings.store));
  for (const Rule& rule : rules_for(settings)) INDUCTORFS_TRY(add(rules, rule, judged.files));
  if ((judged.ports & kConnectPort) != 0) {
    for (const uint16_t port : *ports) INDUCTORFS_TRY(add(rules, port));
  }
  if (::syscall(SYS_landlock_restrict_self, rules.get(), 0) != 0) return fail_errno("landlock_restrict_self");
  return {};
}

}  // namespace inductorfs::mount
