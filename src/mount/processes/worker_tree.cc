// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/worker_tree.h"

#include <fcntl.h>
#include <link.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "inductorfs/base/fail_point.h"
#include "inductorfs/base/host_files.h"
#include "inductorfs/base/message.h"
#include "inductorfs/base/mount_table.h"
#include "inductorfs/base/text.h"
#include "inductorfs/mount/worker_user.h"
#include "inductorfs/places/mountpoint.h"
#include "inductorfs/redis/prepare.h"

#ifndef MOUNT_ATTR_NOSYMFOLLOW
#define MOUNT_ATTR_NOSYMFOLLOW 0x00200000  // Linux 5.14
#endif

namespace inductorfs::mount {
namespace {

using Kind = ShownPlace::Kind;

/// A directory that each host has. What is mounted there hides it from the child alone.
constexpr const char* kBase = "/usr";
constexpr mode_t kDirectoryMode = 0755;
constexpr mode_t kFileMode = 0644;
constexpr unsigned long kPlain = MS_NOSUID | MS_NODEV | MS_NOEXEC;
constexpr uint64_t kTableLimit = uint64_t{64} << 20;

/// What the loader searches without asking (ld.so(8)), for libraries that are opened later, too.
constexpr std::array kLibraries = {"/usr/lib", "/usr/lib64", "/usr/lib32", "/usr/local/lib"};
/// Where the file systems are not merged these are directories, else links into the ones above.
constexpr std::array kShortNames = {"/lib", "/lib64", "/lib32"};
constexpr std::array kDevices = {"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"};
/// Links in /etc that may lead out of it.
constexpr std::array kNamed = {"/etc/resolv.conf", "/etc/hosts",       "/etc/nsswitch.conf",
                               "/etc/passwd",      "/etc/group",       "/etc/localtime",
                               "/etc/machine-id",  "/etc/ld.so.cache", "/etc/ssl/openssl.cnf"};
/// Certificates of authorities, to which links below /etc lead, and time zones.
constexpr std::array kShared = {"/usr/share/ca-certificates", "/usr/local/share/ca-certificates",
                                "/var/lib/ca-certificates", "/usr/share/crypto-policies", "/usr/share/zoneinfo"};

/// Where modules of nsswitch.conf(5) ask for names.
constexpr std::array kNameServices = {"/run/avahi-daemon", "/run/systemd/resolve", "/var/lib/sss/pipes", "/run/nscd"};

bool is_link(const std::string& path) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0 && S_ISLNK(found.st_mode);
}

bool is_below(const std::string& path, const ShownPlace& place) {
  return path == place.path || path.starts_with(place.path + "/");
}

void add(std::vector<ShownPlace>& places, const std::string& path, Kind kind) {
  const bool is_there = std::ranges::any_of(places, [&](const ShownPlace& one) { return is_below(path, one); });
  if (!is_there) places.push_back({path, kind});
}

/// Without links; empty: it is not there.
std::string real_path(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  return real == nullptr ? std::string() : std::string(real.get());
}

/// Where a link leads that is replaced by another one as a whole: its directory is shown, so that the next one is seen.
void add_target(std::vector<ShownPlace>& places, const std::string& link) {
  const std::string real = real_path(link);
  if (real.empty() || real == link) return;
  const std::string directory = directory_of(real);
  const bool is_wide = std::ranges::count(directory, '/') < 2;  // as /run
  add(places, is_wide ? real : directory, Kind::kReadOnly);
}

/// What the loader has loaded, this program's own libraries, as it named them.
int note_object(dl_phdr_info* object, size_t, void* noted) {
  auto& places = *static_cast<std::vector<ShownPlace>*>(noted);
  const std::string path = object->dlpi_name == nullptr ? "" : object->dlpi_name;
  if (!path.starts_with('/')) return 0;
  // By way of /lib, which may be a link.
  const std::string directory = real_path(directory_of(path));
  const bool is_there = std::ranges::any_of(places, [&](const ShownPlace& one) { return is_below(directory, one); });
  if (!is_there) add(places, path, Kind::kLibraries);
  return 0;
}

/// Makes the directories above a path, and a file or a directory at it.
bool make_target(const std::string& path, bool is_directory) {
  for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    if (::mkdir(path.substr(0, at).c_str(), kDirectoryMode) != 0 && errno != EEXIST) return false;
  }
  if (is_directory) return ::mkdir(path.c_str(), kDirectoryMode) == 0 || errno == EEXIST;
  if (::access(path.c_str(), F_OK) == 0) return true;  // in a place that is shown already
  return static_cast<bool>(Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kFileMode)));
}

/// Takes rights from what is mounted at a path, and from all below it where the kernel can (Linux 5.12).
bool restrict_mount(const std::string& path, Kind kind) {
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_NOSUID;
  if (kind != Kind::kDevice) attributes.attr_set |= MOUNT_ATTR_NODEV;
  if (kind != Kind::kLibraries) attributes.attr_set |= MOUNT_ATTR_NOEXEC;
  if (kind == Kind::kStore) attributes.attr_set |= MOUNT_ATTR_NOSYMFOLLOW;
  if (kind == Kind::kLibraries || kind == Kind::kReadOnly) attributes.attr_set |= MOUNT_ATTR_RDONLY;
  const auto set = [&] {
    return ::mount_setattr(AT_FDCWD, path.c_str(), AT_RECURSIVE, &attributes, sizeof attributes) == 0;
  };
  if (set()) return true;
  attributes.attr_set &= ~uint64_t{MOUNT_ATTR_NOSYMFOLLOW};
  if (errno == EINVAL && set()) return true;
  struct statvfs now {};
  if (::statvfs(path.c_str(), &now) != 0) return false;
  unsigned long flags = MS_BIND | MS_REMOUNT | MS_NOSUID;
  const std::array<std::pair<unsigned long, unsigned long>, 6> kept{{{ST_RDONLY, MS_RDONLY},
                                                                     {ST_NODEV, MS_NODEV},
                                                                     {ST_NOEXEC, MS_NOEXEC},
                                                                     {ST_NOATIME, MS_NOATIME},
                                                                     {ST_NODIRATIME, MS_NODIRATIME},
                                                                     {ST_RELATIME, MS_RELATIME}}};
  for (const auto& [has, keep] : kept) flags |= (now.f_flag & has) != 0 ? keep : 0;
  if (kind != Kind::kDevice) flags |= MS_NODEV;
  if (kind != Kind::kLibraries) flags |= MS_NOEXEC;
  if (kind == Kind::kLibraries || kind == Kind::kReadOnly) flags |= MS_RDONLY;
  return ::mount(nullptr, path.c_str(), nullptr, flags, nullptr) == 0;
}

/// A place of the host, held from before the tree hides it.
struct Source {
  ShownPlace place;
  Fd fd;
  bool is_directory = false;
};

Result<std::vector<Source>> open_sources(const std::vector<ShownPlace>& places) {
  std::vector<Source> sources;
  for (const ShownPlace& place : places) {
    Source source{place, Fd(::open(place.path.c_str(), O_PATH | O_CLOEXEC)), false};
    struct stat found {};
    if (!source.fd && place.optional) continue;
    if (!source.fd || ::fstat(source.fd.get(), &found) != 0) {
      return fail(ErrorCode::kNotSupported, "show " + place.path + ": " + std::strerror(errno));
    }
    source.is_directory = S_ISDIR(found.st_mode);
    sources.push_back(std::move(source));
  }
  // What lies in another place comes after it.
  std::ranges::sort(sources, {}, [](const Source& one) { return one.place.path; });
  return sources;
}

bool show(const Source& source) {
  const std::string target = kBase + source.place.path;
  const std::string way = "/proc/self/fd/" + std::to_string(source.fd.get());
  return make_target(target, source.is_directory) &&
         ::mount(way.c_str(), target.c_str(), nullptr, MS_BIND | MS_REC, nullptr) == 0 &&
         restrict_mount(target, source.place.kind);
}

/// Of processes alone where the kernel has that (Linux 5.8). A container may have a /proc with places that are covered,
/// and then no other one.
bool show_processes() {
  const std::string target = std::string(kBase) + "/proc";
  constexpr unsigned long kFlags = kPlain | MS_RDONLY;
  if (!make_target(target, true)) return false;
  if (::mount("proc", target.c_str(), "proc", kFlags, "subset=pid") == 0) return true;
  if (::mount("proc", target.c_str(), "proc", kFlags, nullptr) == 0) return true;
  return ::mount("/proc", target.c_str(), nullptr, MS_BIND | MS_REC, nullptr) == 0 &&
         restrict_mount(target, Kind::kReadOnly);
}

/// The kernel's own file: CPUs may be switched on and off.
bool show_cpus(const Fd& file) {
  const std::string target = std::string(kBase) + kShownCpuInfo;
  const std::string way = "/proc/self/fd/" + std::to_string(file.get());
  return make_target(target, false) && ::mount(way.c_str(), target.c_str(), nullptr, MS_BIND, nullptr) == 0 &&
         restrict_mount(target, Kind::kReadOnly);
}

bool write_boot_id(const std::string& id) {
  const Fd file(::open((std::string(kBase) + kBootIdCopy).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, kFileMode));
  return file && ::write(file.get(), id.data(), id.size()) == static_cast<ssize_t>(id.size());
}

/// The links of the host's root that stand for directories of the tree.
bool copy_links() {
  return std::ranges::all_of(kShortNames, [](const char* name) {
    std::array<char, 256> target{};
    const ssize_t size = ::readlink(name, target.data(), target.size() - 1);
    return size < 0 || ::symlink(target.data(), (std::string(kBase) + name).c_str()) == 0;
  });
}

/// Of the namespace, not of a chroot in it: who enters the namespace begins at its root, which would be the host's.
bool become_root_of_namespace() {
  const Fd tree(::open(kBase, O_PATH | O_DIRECTORY | O_CLOEXEC));
  const Fd space(::open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC));
  return tree && space && ::setns(space.get(), CLONE_NEWNS) == 0 && ::fchdir(tree.get()) == 0 &&
         ::syscall(SYS_pivot_root, ".", ".") == 0 && ::umount2(".", MNT_DETACH) == 0 && ::chdir("/") == 0;
}

/// In the child. Answers what it could not do, or nothing.
std::string build(const std::vector<ShownPlace>& places, const config::Settings& settings) {
  const std::string boot = boot_id();
  const std::string named = places::tree_source();
  const auto failed = [](const std::string& what) { return what + ": " + std::strerror(errno); };
  (void)::umask(0);
  if (::unshare(CLONE_NEWNS) != 0) return failed("make a mount namespace");
  // Nothing that is done here reaches the host. In a chroot "/" is no mount.
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return failed("make / private");
  // In this namespace: what is held of another one cannot be shown here.
  const auto sources = open_sources(places);
  if (!sources) return sources.error().what();
  const auto cpus = open_at(AT_FDCWD, kCpuInfo, O_PATH);
  if (!cpus) return std::string("open ") + kCpuInfo + ": " + std::strerror(errno);
  if (::mount(named.c_str(), kBase, "tmpfs", kPlain, "mode=755,size=1m") != 0) return failed("mount a tmpfs");
  if (!copy_links() || !write_boot_id(boot)) return failed("write to a tmpfs");
  for (const Source& source : *sources) {
    if (!show(source)) return failed("show " + source.place.path);
  }
  if (!show_processes()) return failed("mount /proc");
  if (!show_cpus(*cpus)) return failed("show /proc/cpuinfo");
  if (::mount(nullptr, kBase, nullptr, MS_REMOUNT | MS_BIND | kPlain | MS_RDONLY, nullptr) != 0) {
    return failed("make the tree read-only");
  }
  if (!become_root_of_namespace()) return failed("make the tree the root");
  const auto error = settings.worker ? try_as(*settings.worker, settings.store, {}) : Result<int>(0);
  if (!error) return error.error().text();
  errno = *error;
  return *error == 0 ? std::string() : failed("serve in the tree");
}

/// What the child says of a tree that is there, before the root of the store.
constexpr std::string_view kBuilt = "built ";
constexpr std::string_view kNotEntered = "enter the tree by its own /proc";
constexpr size_t kSaidLimit = 2 * PATH_MAX;

/// In the child, in the tree: says where the store is on its disk, and gives the namespace. By its own /proc: that of
/// the host may be of other processes.
bool give_tree(int to, const std::string& store) {
  const Fd space(::open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC));
  const auto table = read_mounts_of("/proc", "self", kTableLimit);
  const MountEntry* const entry = table ? find_mount_at(*table, store) : nullptr;
  // As who serves will enter it, which takes a further right, CAP_SYS_CHROOT.
  const bool is_open = space && ::setns(space.get(), CLONE_NEWNS) == 0;
  return is_open && entry != nullptr && send_message(to, std::string(kBuilt) + entry->root, std::array{space.get()});
}

[[noreturn]] void build_in_child(int to, const config::Settings& settings) {
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::string wrong = build(shown_places(settings), settings);
  if (!wrong.empty()) (void)send_message(to, wrong, {});
  if (wrong.empty() && !give_tree(to, settings.store)) (void)send_message(to, kNotEntered, {});
  ::_exit(0);
}

}  // namespace

Result<Fd> make_tree(config::Settings& settings) {
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return fail_errno("socketpair");
  const Fd hears(ends[0]);
  Fd says(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return fail_errno("fork");
  if (child == 0) build_in_child(says.get(), settings);
  says.reset();
  std::string said(kSaidLimit, '\0');
  Fd space;
  ReceivedMessage received;
  do {
    received = receive_message(hears.get(), said, {&space, 1});
  } while (received.size < 0 && errno == EINTR);
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  said.resize(static_cast<size_t>(std::max<ssize_t>(received.size, 0)));
  if (said.empty()) return fail(ErrorCode::kNotSupported, "the process that makes its tree of files has ended");
  if (!space || !said.starts_with(kBuilt)) return fail(ErrorCode::kNotSupported, said);
  settings.store_root = said.substr(kBuilt.size());
  return space;
}

std::vector<ShownPlace> shown_places(const config::Settings& settings) {
  std::vector<ShownPlace> places{{settings.store, Kind::kStore, false}, {"/etc", Kind::kReadOnly}};
  for (const char* const path : kLibraries) places.push_back({path, Kind::kLibraries});
  for (const char* const path : kShortNames) {
    if (!is_link(path)) places.push_back({path, Kind::kLibraries});
  }
  (void)::dl_iterate_phdr(&note_object, &places);
  for (const char* const path : kShared) add(places, path, Kind::kReadOnly);
  for (const char* const path : kNameServices) add(places, path, Kind::kReadOnly);
  for (const char* const path : kNamed) add_target(places, path);
  for (const std::string& path : redis::certificate_places()) {
    if (path.starts_with('/')) add(places, path, Kind::kReadOnly);
    add_target(places, path);
  }
  const char* const systemd = std::getenv("NOTIFY_SOCKET");  // NOLINT(concurrency-mt-unsafe): one thread
  if (systemd != nullptr && *systemd == '/') add(places, systemd, Kind::kReadOnly);
  for (const char* const path : kDevices) places.push_back({path, Kind::kDevice});
  const std::string tests = fail_point_directory();
  if (!tests.empty()) add(places, tests, Kind::kStore);
  return places;
}

void choose_worker_tree(config::Settings& settings, Fd& tree) {
  settings.no_worker_tree.clear();
  settings.store_root.clear();
  if (!settings.worker) return;
  auto made = make_tree(settings);
  if (made) {
    tree = std::move(*made);
  } else {
    settings.no_worker_tree = made.error().what() +
                              ": let root mount here (CAP_SYS_ADMIN, CAP_SYS_CHROOT, mount(2), pivot_root(2), a root "
                              "directory that is a mount), and mount again";
  }
}

std::string worker_tree_warning(const config::Settings& settings) {
  if (settings.no_worker_tree.empty()) return {};
  return "the process that serves this mount sees all files of this host that its user may see: " +
         settings.no_worker_tree;
}

}  // namespace inductorfs::mount
