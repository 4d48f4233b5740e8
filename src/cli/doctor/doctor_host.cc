// SPDX-License-Identifier: Apache-2.0
// What `doctor` finds about a host, and about the directories of its user.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <system_error>

#include "cli/common/answers.h"
#include "cli/common/child_answer.h"
#include "cli/common/shell_word.h"
#include "cli/doctor/doctor_findings.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/number.h"
#include "inductorfs/base/regular_file.h"
#include "inductorfs/base/text.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/config/text.h"
#include "inductorfs/layout/user_caches.h"
#include "inductorfs/places/own_mounts.h"

namespace inductorfs::cli {
namespace {

using Kind = Diagnosis::Kind;

constexpr uint64_t kFileLimit = uint64_t{4} << 20;
constexpr int kDeepest = 32;
/// The inode number of the first PID namespace: include/linux/proc_ns.h, PROC_PID_INIT_INO.
constexpr ino_t kFirstPidNamespace = 0xEFFFFFFC;
/// Smaller caches are not worth a line.
constexpr uint64_t kWorthALine = uint64_t{1} << 20;

/// Adds up the files of a tree. It follows no link, and stays on the file system where it begins: the names below are
/// another user's choice.
class TreeSize {
 public:
  explicit TreeSize(Deadline deadline) : deadline_(deadline) {}

  /// Returns the bytes found until the deadline; nothing if the path is no directory.
  std::optional<uint64_t> of(const std::string& path) {
    Fd top(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    struct stat found {};
    if (!top || ::fstat(top.get(), &found) != 0) return std::nullopt;
    device_ = found.st_dev;
    add(std::move(top), 0);
    return bytes_;
  }
  [[nodiscard]] bool is_whole() const { return !deadline_.passed(); }

 private:
  void add(Fd directory, int depth) {
    const int fd = directory.get();
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(fd), ::closedir);
    if (!stream) return;
    (void)directory.release();  // the stream closes it
    while (const dirent* const entry = ::readdir(stream.get())) {
      if (deadline_.passed()) return;
      const std::string_view name = entry->d_name;
      struct stat found {};
      if (name == "." || name == ".." || ::fstatat(fd, entry->d_name, &found, AT_SYMLINK_NOFOLLOW) != 0) continue;
      if (S_ISREG(found.st_mode)) bytes_ += static_cast<uint64_t>(found.st_size);
      if (!S_ISDIR(found.st_mode) || found.st_dev != device_ || depth >= kDeepest) continue;
      Fd below(::openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
      if (below) add(std::move(below), depth + 1);
    }
  }

  const Deadline deadline_;
  dev_t device_ = 0;
  uint64_t bytes_ = 0;
};

struct Measured {
  uint64_t bytes = 0;
  bool whole = false;
};

/// Nothing when the path is no directory, or no answer came in time.
std::optional<Measured> measure(const std::string& path, uid_t user, Deadline deadline) {
  const auto answer = answer_of_child(user, deadline, [&]() -> std::optional<std::string> {
    TreeSize size(deadline);
    const auto bytes = size.of(path);
    if (!bytes) return std::nullopt;
    return std::to_string(*bytes) + (size.is_whole() ? " whole" : " cut");
  });
  if (!answer) return std::nullopt;
  return Measured{leading_number<uint64_t>(*answer), answer->ends_with(" whole")};
}

uid_t owner_of(const std::string& path) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0 ? found.st_uid : ::geteuid();
}

}  // namespace

Diagnosis finding_of_kernel(const std::string& release) {
  constexpr std::pair kOldest{5, 4};  // README, "Limits"
  const std::string shown = "the kernel is Linux " + config::printable(release);
  if (version_in(release) >= kOldest) return {Kind::kGood, shown, {}};
  return {Kind::kBad, shown, "install Linux 5.4 or later"};
}

std::optional<Diagnosis> finding_of_allow_other(bool wanted, uid_t user, const std::string& configuration) {
  if (!wanted || user == 0) return std::nullopt;
  const std::string text = read_regular(configuration, kFileLimit).value_or("");
  for (const std::string_view line : parts_of(text, '\n')) {
    if (line.starts_with("user_allow_other")) {
      return Diagnosis{Kind::kGood, configuration + " lets users mount with --allow-other", {}};
    }
  }
  return Diagnosis{Kind::kBad, configuration + " does not let users mount with --allow-other",
                   "as root: echo user_allow_other >> " + configuration + "; or mount with --no-allow-other"};
}

std::optional<Diagnosis> finding_of_propagation(const std::string& table, const std::string& mountpoint) {
  for (const std::string_view line : parts_of(table, '\n')) {
    if (line.find(" - fuse.inductorfs ") == std::string::npos ||
        line.find(" " + mountpoint + " ") == std::string::npos) {
      continue;
    }
    if (line.find(" shared:") != std::string::npos) return std::nullopt;
    const std::string above = shell_word(directory_of(mountpoint));
    // The directory above is seldom a mountpoint, which the second command needs.
    return Diagnosis{Kind::kNote,
                     mountpoint + " is mounted with private propagation: a container that runs already does not see it",
                     "start the container after the mount; or unmount, run mount --bind " + above + " " + above +
                         " && mount --make-rshared " + above +
                         ", mount again, and give containers that directory with rslave (HostToContainer)"};
  }
  return std::nullopt;
}

std::optional<Diagnosis> finding_of_pid_namespace(const std::string& daemon, const std::string& mountpoint) {
  struct stat found {};
  if (::stat((daemon + "/ns/pid").c_str(), &found) != 0 || found.st_ino == kFirstPidNamespace) return std::nullopt;
  return Diagnosis{Kind::kWarning,
                   mountpoint + " is served in a PID namespace of its own: what jobs outside of it write is not shared",
                   "run the daemon with hostPID, or mount with --writers pod for the processes of one pod"};
}

std::optional<Diagnosis> finding_of_access(const std::string& directory, const std::string& variable) {
  std::string wrong = wrong_with_writing(directory);
  if (wrong.empty() && ::faccessat(AT_FDCWD, directory.c_str(), R_OK, AT_EACCESS) != 0 && errno == EACCES) {
    wrong = "may not be read by uid " + std::to_string(::geteuid());
  }
  if (wrong.empty()) return std::nullopt;
  const std::string shown = config::printable(directory);
  if (!variable.empty()) {
    return Diagnosis{Kind::kBad, variable + "=" + shown + " " + wrong,
                     "name a directory of this user's: inductorfs env prints one, or ask its owner for it"};
  }
  return Diagnosis{Kind::kBad, shown + " cannot be used by uid " + std::to_string(::geteuid()) + ": it " + wrong,
                   "let who mounted it make a directory in it for the user (mkdir and chown), and set "
                   "TORCHINDUCTOR_CACHE_DIR to that; or chmod 1777 the mountpoint"};
}

std::optional<uint64_t> size_of_disk(const std::string& directory) {
  struct statvfs disk {};
  std::string there = directory;
  while (::statvfs(there.c_str(), &disk) != 0) {
    if (there.size() <= 1) return std::nullopt;
    there = directory_of(there);
  }
  if (disk.f_blocks == 0) return std::nullopt;  // it tells none (disk_space())
  return disk.f_blocks * disk.f_frsize;
}

std::optional<Diagnosis> finding_of_disk(const std::string& directory, uint64_t limit, uint64_t size) {
  if (size >= limit) return std::nullopt;
  return Diagnosis{Kind::kWarning,
                   "the disk of the store " + config::printable(directory) + " has " + config::human_bytes(size) +
                       ", less than --store-limit " + config::human_bytes(limit),
                   "name a --store on a larger disk, or lower --store-limit so that other programs keep some room"};
}

std::string stores_without_a_mount(const std::string& directory) {
  constexpr size_t kMostStores = 256;
  std::string paths;
  std::error_code failed;
  size_t looked = 0;
  for (auto at = std::filesystem::directory_iterator(directory, failed);
       !failed && at != std::filesystem::directory_iterator() && ++looked <= kMostStores; at.increment(failed)) {
    const std::string path = at->path().string();
    if (::access((path + "/format").c_str(), F_OK) != 0) continue;
    const Fd lock(::open((path + "/lock").c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    // Shared and for this moment: a mount that begins now waits for longer.
    if (lock && ::flock(lock.get(), LOCK_SH | LOCK_NB) != 0) continue;
    paths.append(path).push_back('\0');
  }
  return paths;
}

std::optional<Diagnosis> finding_of_stores(std::string_view paths) {
  constexpr size_t kMostNamed = 5;
  size_t count = 0;
  std::string named;
  for (const std::string_view path : parts_of(paths, '\0')) {
    if (path.empty()) continue;
    if (++count <= kMostNamed) named += (named.empty() ? "" : ", ") + config::printable(path);
  }
  if (count == 0) return std::nullopt;
  return Diagnosis{Kind::kNote,
                   std::to_string(count) + (count == 1 ? " store has" : " stores have") +
                       " no mount on this host: " + named + (count > kMostNamed ? " and more" : ""),
                   "mount there again, or remove what is not needed any more: du -sh tells its size"};
}

std::string place_of(const layout::UserCache& cache, const GetVariable& variable, const std::string& home) {
  const std::string given = variable(cache.variable).value_or("");
  if (!given.empty()) return given.front() == '/' ? given + std::string(cache.appended) : std::string();
  constexpr std::string_view kHome = "~/";
  constexpr std::string_view kXdg = "~/.cache/";
  if (!cache.usual.starts_with(kHome)) return {};
  if (const auto xdg = variable("XDG_CACHE_HOME"); cache.follows_xdg && xdg) {
    return *xdg + "/" + std::string(cache.usual.substr(kXdg.size()));
  }
  return home + "/" + std::string(cache.usual.substr(kHome.size()));
}

std::vector<Diagnosis> findings_of_caches(const GetVariable& variable, const MountOf& mount_of, const std::string& home,
                                          const std::string& torch_directory, Deadline deadline) {
  std::vector<Diagnosis> findings;
  for (const layout::UserCache& one : layout::user_caches()) {
    const bool is_torch = one.program == "torch";
    const std::string path = is_torch ? torch_directory : place_of(one, variable, home);
    if (path.empty() || path.front() != '/' || !mount_of(path).empty()) continue;
    const auto size = measure(path, owner_of(is_torch ? torch_directory : home), deadline);
    if (!size || size->bytes < kWorthALine) continue;
    const std::string remedy =
        one.shared ? "jobs that use it share nothing: see inductorfs env for what leads into the mount (" +
                         std::string(one.variable) + "), and remove it when no job uses it"
                   : "leave it there: " + std::string(one.why);
    findings.push_back({Kind::kNote,
                        "a cache of " + std::string(one.program) +
                            " lies outside of all mounts: " + config::printable(path) + " has " +
                            (size->whole ? "" : "at least ") + config::human_bytes(size->bytes),
                        remedy});
    const std::string torch = variable("TORCHINDUCTOR_CACHE_DIR").value_or("");
    if (one.program == "vLLM" && !torch.empty() && !mount_of(torch).empty()) {
      findings.push_back({Kind::kWarning,
                          "vLLM uses no mount here, although TORCHINDUCTOR_CACHE_DIR=" + config::printable(torch) +
                              " does: it sets that variable to a directory below " + config::printable(path),
                          "export VLLM_CACHE_ROOT=" + shell_word(mount_of(torch) + "/vllm")});
    }
  }
  return findings;
}

std::string mount_around(const std::string& path) {
  if (path.empty()) return {};
  const std::vector<MountEntry> table = read_mount_table();
  const MountEntry* const mount = places::find_mount_of(table, absolute(path));
  return mount != nullptr && mount->is_ours() ? mount->mount_point : std::string();
}

std::optional<Diagnosis> finding_of_headers(const MountOf& mount_of, const std::string& torch_directory) {
  const std::string place = torch_directory + "/precompiled_headers";
  std::array<char, 4096> target{};
  const ssize_t size = ::readlink(place.c_str(), target.data(), target.size());
  const std::string shown = size > 0 ? std::string(target.data(), static_cast<size_t>(size)) : place;
  if (!mount_of(shown).empty()) return std::nullopt;
  return Diagnosis{
      Kind::kWarning,
      config::printable(place) +
          " shows no mount: torch's C++ backend compiles its header (150 MB, tens of "
          "seconds on few cores) on each host",
      "run `inductorfs env` as this user, which says what is in the way; or mount without --no-also as this "
      "user, or with --also " +
          shell_word("precompiled_headers=" + config::printable(place)) +
          "; in a pod, mount that directory of the node at the same place"};
}

}  // namespace inductorfs::cli
