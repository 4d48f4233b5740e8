// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/launch.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <utility>
#include <vector>

#include "inductorfs/fingerprint/examiner.h"
#include "inductorfs/mount/layers.h"
#include "inductorfs/supervisor/protocol.h"
#include "inductorfs/takeover/region.h"
#include "mount/mounter/mounter_task.h"

namespace inductorfs::mount {
namespace {

constexpr int kHighFd = supervisor::kFirstFreeFd;
constexpr unsigned kCloseRangeCloexec = 1U << 2;  ///< Linux, include/uapi/linux/close_range.h

/// The descriptors that a supervisor expects, in memory until they are put at their numbers.
struct Handed {
  Fd region;
  Fd settings;
  Fd ready;
  Fd program;
  Fd notes;
  Fd task;
  Fd mounter_task;
  Fd mounter_notes;
  Fd tree;
  Fd mounts;
};

Result<Fd> moved_up(int fd) {
  Fd high(::fcntl(fd, F_DUPFD_CLOEXEC, kHighFd));
  if (!high) return fail_errno("fcntl", "descriptor of the mount");
  return high;
}

/// The error of a file of the package; that it is not there has no text yet.
Error explained(const std::string& what, const std::string& path, Error error) {
  if (error.code() != ErrorCode::kNotFound || !error.what().empty()) return error;
  return Error(ErrorCode::kNotFound,
               what + " " + path + ": it, or a loader that it needs, is not there: install the whole package");
}

Result<Handed> collect(const config::Frozen& mount, const config::Ownership& covered, const std::string& program,
                       const Fd& tree, Readiness& readiness) {
  Handed handed;
  INDUCTORFS_TRY_ASSIGN(const auto region, takeover::Region::create(mount.settings.threads, takeover::Region::kSpares));
  INDUCTORFS_TRY_ASSIGN(const auto settings, config::to_sealed_memory("inductorfs-settings",
                                                                      config::freeze(mount.settings, mount.ownership)));
  INDUCTORFS_TRY_ASSIGN(const auto notes, config::to_memory("inductorfs-notes", {}));
  // Not the settings: the examiner is to have no secrets of the mount but that of its own children.
  INDUCTORFS_TRY_ASSIGN(
      const auto task, config::to_sealed_memory("inductorfs-facts", fingerprint::new_seal_secret() +
                                                                        host::to_bytes(facts_request(mount.settings))));
  INDUCTORFS_TRY_ASSIGN(
      const auto mounter_task,
      config::to_sealed_memory("inductorfs-mount", to_bytes(mount::mounter_task(mount.settings, covered))));
  INDUCTORFS_TRY_ASSIGN(const auto mounter_notes, config::to_memory("inductorfs-mounted", {}));
  const Result<Fd> executable = open_at(AT_FDCWD, program, O_PATH);
  if (!executable) return fail(explained("open", program, executable.error()));
  const Result<Fd> mounts = tree ? open_at(AT_FDCWD, "/proc/self/mountinfo", O_RDONLY) : Result<Fd>(Fd());
  if (!mounts) return fail(mounts.error());
  const std::array<std::pair<int, Fd*>, 9> list{{{region.fd(), &handed.region},
                                                 {settings.get(), &handed.settings},
                                                 {notes.get(), &handed.notes},
                                                 {task.get(), &handed.task},
                                                 {mounter_task.get(), &handed.mounter_task},
                                                 {mounter_notes.get(), &handed.mounter_notes},
                                                 {executable->get(), &handed.program},
                                                 {tree.get(), &handed.tree},
                                                 {mounts->get(), &handed.mounts}}};
  for (const auto& [fd, place] : list) {
    if (fd < 0) continue;
    INDUCTORFS_TRY_ASSIGN(auto high, moved_up(fd));
    *place = std::move(high);
  }
  if (!readiness.has_listener()) return handed;
  INDUCTORFS_TRY_ASSIGN(auto high, moved_up(readiness.fd()));
  handed.ready = std::move(high);
  return handed;
}

/// Nothing else that is open goes along: a directory of the caller's would be kept busy for the mount's life.
Result<void> put_in_place(const Handed& handed) {
  const std::array<std::pair<int, int>, 10> list{{{handed.region.get(), supervisor::kRegionFd},
                                                  {handed.settings.get(), supervisor::kSettingsFd},
                                                  {handed.ready.get(), supervisor::kReadyFd},
                                                  {handed.program.get(), supervisor::kProgramFd},
                                                  {handed.notes.get(), supervisor::kNotesFd},
                                                  {handed.task.get(), supervisor::kExaminerTaskFd},
                                                  {handed.mounter_task.get(), supervisor::kMounterTaskFd},
                                                  {handed.mounter_notes.get(), supervisor::kMounterNotesFd},
                                                  {handed.tree.get(), supervisor::kTreeFd},
                                                  {handed.mounts.get(), supervisor::kMountsFd}}};
  for (int fd = supervisor::kRegionFd; fd < supervisor::kFirstFreeFd; ++fd) (void)::close(fd);
  for (const auto& [from, to] : list) {
    if (from >= 0 && ::dup2(from, to) < 0) return fail_errno("dup2", "descriptor of the mount");
  }
  // Best effort: Linux 5.11.
  (void)::syscall(SYS_close_range, supervisor::kFirstFreeFd, ~0U, kCloseRangeCloexec);
  return {};
}

std::vector<std::string> words_of(const config::Frozen& mount) {
  const config::Settings& settings = mount.settings;
  const auto milliseconds = [](std::chrono::seconds span) { return std::to_string(Milliseconds(span).count()); };
  std::array<char, 64> root{};
  (void)std::snprintf(root.data(), root.size(), "root=%u:%u:%o", mount.ownership.uid, mount.ownership.gid,
                      mount.ownership.mode);
  std::vector<std::string> words{"inductorfs-supervisor",
                                 settings.mountpoint,
                                 "hang=" + milliseconds(settings.hang_timeout),
                                 "start=" + milliseconds(settings.start_timeout),
                                 "crashes=" + std::to_string(settings.crash_limit),
                                 root.data(),
                                 "cache=" + settings.store + "/fingerprint.cache"};
  if (const std::string log = log_path(settings); !log.empty()) words.push_back("log=" + log);
  if (settings.worker) {
    std::string word = "worker=" + std::to_string(settings.worker->uid) + ":" + std::to_string(settings.worker->gid);
    char before = ':';
    for (const gid_t group : settings.worker->groups) {
      word += std::exchange(before, ',') + std::to_string(group);
    }
    if (before == ':') word += ':';
    words.push_back(std::move(word));
  }
  return words;
}

}  // namespace

Result<std::string> own_program() {
  std::array<char, PATH_MAX> path{};
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (size < 0 && errno == ENOENT)
    return fail(ErrorCode::kNotFound, "read /proc/self/exe: /proc is not mounted here: mount it");
  if (size < 0) return fail_errno("readlink", "/proc/self/exe");
  return std::string(path.data(), static_cast<size_t>(size));
}

namespace {

/// Beside this program, or where it is installed. kNotFound with the remedy.
Result<std::string> find_supervisor(const std::string& program) {
  constexpr const char* kName = "/inductorfs-supervisor";
  const std::string directory = program.substr(0, program.rfind('/'));
  const std::string beside = directory + "/../libexec";
  for (const std::string& place : {directory, beside, std::string(INDUCTORFS_LIBEXEC)}) {
    std::string path = place + kName;
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return fail(ErrorCode::kNotFound, "inductorfs-supervisor is missing: " + directory +
                                        " and " INDUCTORFS_LIBEXEC ": install the whole package");
}

}  // namespace

Error launch_supervisor(const config::Frozen& mount, const config::Ownership& covered, const std::string& program,
                        const Fd& tree, Readiness& readiness) {
  const Result<std::string> supervisor = find_supervisor(program);
  if (!supervisor) return supervisor.error();
  const Result<Handed> handed = collect(mount, covered, program, tree, readiness);
  if (!handed) return handed.error();
  std::vector<std::string> words = words_of(mount);
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // The pipe of `readiness` has a number that is about to be taken; its copy says the same.
  if (readiness.has_listener()) readiness = Readiness(Fd(::fcntl(handed->ready.get(), F_DUPFD_CLOEXEC, kHighFd)));
  if (const Result<void> placed = put_in_place(*handed); !placed) return placed.error();
  (void)::execv(supervisor->c_str(), arguments.data());
  return explained("start", *supervisor, error_from_errno(errno, "start", *supervisor));
}

}  // namespace inductorfs::mount
