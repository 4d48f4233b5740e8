// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/worker_user.h"

#include <dirent.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <utility>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/handle.h"
#include "inductorfs/base/mount_table.h"
#include "inductorfs/base/number.h"
#include "inductorfs/base/own_user.h"
#include "inductorfs/base/text.h"
#include "inductorfs/mount/layers.h"

namespace inductorfs::mount {
namespace {

using config::WorkerUser;

/// What children of the examiner remember of packages (fingerprint.cache): only what is root's is believed.
constexpr std::string_view kRootsOwn = "fingerprint.cache";
constexpr mode_t kParentMode = 0755;
constexpr mode_t kStoreMode = 0700;
constexpr mode_t kLockMode = 0600;

/// What a store that was killed while it was made may hold, and what mkfs leaves (store/directory.cc).
constexpr std::array<std::string_view, 3> kBeforeFormat = {"format.tmp", "lock", "lost+found"};

constexpr mode_t kLogMode = 0640;
constexpr Milliseconds kTryPatience{10'000};

using Directory = Handle<DIR, ::closedir>;

/// Gives what is `from`'s; of a link, itself.
Result<void> give(const Fd& file, const struct stat& found, uid_t from, const WorkerUser& user) {
  if (found.st_uid != from) return {};
  if (::fchownat(file.get(), "", user.uid, user.gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) == 0) return {};
  return fail_errno("chown", "a file of the store");
}

/// Gives all below a directory that is `from`'s, on its own file system, and not the directory itself. It goes by
/// descriptors, one for each level: no name is followed through another.
Result<void> give_all_in(const Fd& top, uid_t from, const WorkerUser& user) {
  struct stat whole {};
  if (::fstat(top.get(), &whole) != 0) return fail_errno("stat");
  std::vector<Directory> open;
  const auto enter = [&open](int at, const char* name) -> Result<void> {
    INDUCTORFS_TRY_ASSIGN(auto directory, open_at(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    Directory names(::fdopendir(directory.get()));
    if (!names) return fail_errno("read directory", name);
    (void)directory.release();  // closedir closes it
    open.push_back(std::move(names));
    return {};
  };
  INDUCTORFS_TRY(enter(top.get(), "."));
  while (!open.empty()) {
    errno = 0;
    const dirent* const entry = ::readdir(open.back().get());
    if (entry == nullptr && errno != 0) return fail_errno("read directory");
    if (entry == nullptr) {
      open.pop_back();
      continue;
    }
    const std::string_view name = entry->d_name;
    if (name == "." || name == ".." || (open.size() == 1 && name.starts_with(kRootsOwn))) continue;
    const int at = ::dirfd(open.back().get());
    INDUCTORFS_TRY_ASSIGN(const auto file, open_at(at, entry->d_name, O_PATH | O_NOFOLLOW));
    struct stat found {};
    if (::fstat(file.get(), &found) != 0) return fail_errno("stat", entry->d_name);
    if (found.st_dev != whole.st_dev) continue;
    if (S_ISDIR(found.st_mode)) INDUCTORFS_TRY(enter(at, entry->d_name));
    INDUCTORFS_TRY(give(file, found, from, user));
  }
  return {};
}

/// A directory with other things in it is nobody's to give away; that it is no store the worker says.
Result<void> check_is_store(int directory, const std::string& path) {
  if (::faccessat(directory, "format", F_OK, AT_SYMLINK_NOFOLLOW) == 0) return {};
  INDUCTORFS_TRY_ASSIGN(auto again, open_at(directory, ".", O_RDONLY | O_DIRECTORY));
  const Directory names(::fdopendir(again.get()));
  if (!names) return fail_errno("read directory", path);
  (void)again.release();  // closedir closes it
  errno = 0;
  for (const dirent* entry = ::readdir(names.get()); entry != nullptr; entry = ::readdir(names.get())) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == ".." || std::ranges::count(kBeforeFormat, name) > 0) continue;
    return fail(ErrorCode::kInvalid, path + " has files that are no store's");
  }
  return errno == 0 ? Result<void>() : fail_errno("read directory", path);
}

/// Of a library that this program has loaded.
int may_not_read(dl_phdr_info* object, size_t, void*) {
  const char* const path = object->dlpi_name;
  return path != nullptr && *path == '/' && ::access(path, R_OK) != 0 ? 1 : 0;
}

/// In the child of try_as(): never returns. What it has of root's goes before it is that user, whose other processes
/// may look at it.
[[noreturn]] void try_in_child(const WorkerUser& user, const std::string& directory, const std::string& log) {
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) (void)::dup2(null.get(), fd);
  (void)::syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0);  // best effort: Linux 5.9
  (void)::setsid();                                             // from the terminal
  const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
  (void)::setrlimit(RLIMIT_NPROC, &unlimited);  // as a worker
  if (!become_user(user.uid, user.gid, user.groups)) ::_exit(EINVAL);
  if (::chdir(directory.c_str()) != 0) ::_exit(errno);
  if (!log.empty() && ::open(log.c_str(), O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC) < 0) ::_exit(EROFS);
  // It is not run: a process of that user that began a program could be changed by others of his.
  const bool may_run = ::access("/proc/self/exe", X_OK) == 0 && ::dl_iterate_phdr(&may_not_read, nullptr) == 0;
  ::_exit(may_run ? 0 : ENOEXEC);
}

}  // namespace

Result<int> try_as(const WorkerUser& user, const std::string& directory, const std::string& log) {
  const pid_t child = ::fork();
  if (child < 0) return fail_errno("fork");
  if (child == 0) try_in_child(user, directory, log);
  int status = 0;
  pid_t ended = 0;
  const Deadline deadline = Deadline::after(kTryPatience);
  while ((ended = ::waitpid(child, &status, WNOHANG)) == 0 && !deadline.passed()) (void)::poll(nullptr, 0, 1);
  if (ended == 0) {
    (void)::kill(child, SIGKILL);
    (void)::waitpid(child, &status, 0);
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  return fail(ErrorCode::kTimedOut,
              "a process of the user " + std::to_string(user.uid) +
                  " did not end by itself: see whether others of that user are there, and try again");
}

namespace {

/// Where /proc hides the processes of others (hidepid of proc(5)), it does not from the members of one group.
Result<void> see_processes(WorkerUser& user) {
  const auto table = read_mount_table();
  const MountEntry* const proc = find_mount_at(table, "/proc");
  const std::string options = proc == nullptr ? "" : proc->super_options + ",";
  const size_t hides = options.find("hidepid=");
  if (hides == std::string::npos) return {};
  const std::string how = options.substr(hides, options.find(',', hides) - hides);
  if (how == "hidepid=4" || how == "hidepid=ptraceable") {
    return fail(ErrorCode::kNotSupported,
                "/proc shows processes to those alone who may trace them (" + how + "): mount it with hidepid=2");
  }
  const size_t group = options.find("gid=");
  user.groups.push_back(group == std::string::npos ? 0 : leading_number<gid_t>(options.substr(group + 4)));
  return {};
}

/// The store last: root's worker could not use it then.
Result<void> prepare(const config::Settings& settings, WorkerUser& user) {
  const std::string parent = directory_of(settings.store);
  const std::string log = log_elsewhere(settings);
  const std::string who = "the user " + std::to_string(user.uid);
  INDUCTORFS_TRY(see_processes(user));
  INDUCTORFS_TRY(make_directories(parent, kParentMode));
  INDUCTORFS_TRY(give_log(log, user));
  INDUCTORFS_TRY_ASSIGN(const int error, try_as(user, parent, log));
  switch (error) {
    case 0:
      return give_store(settings.store, user);
    case EACCES:
      return fail(ErrorCode::kNotPermitted, who + " may not enter a directory above --store " + settings.store +
                                                ": run chmod o+x on it, or name another --store");
    case EINVAL:
      return fail(ErrorCode::kNotSupported, "no process may become " + who + " here, as in a small user namespace");
    case EROFS:
      return fail(ErrorCode::kNotPermitted, who + " may not write to --log " + log + ": name another --log");
    default:
      if (error != ENOEXEC) return fail(error_from_errno(error, "open", parent));
      return fail(ErrorCode::kNotPermitted,
                  who + " may not run this program: let all users read and run it, and its libraries (chmod a+rx)");
  }
}

/// Whether the store is a worker's already. What such a user has made no worker that is root is to read.
bool is_given(const std::string& store) {
  struct stat found {};
  return ::stat(store.c_str(), &found) == 0 && config::is_worker_user(found.st_uid);
}

}  // namespace

Result<void> give_store(const std::string& store, const WorkerUser& user) {
  INDUCTORFS_TRY(make_directories(directory_of(store), kParentMode));
  INDUCTORFS_TRY(make_directories(store, kStoreMode));
  // No link: whoever was given the directory may have put one in its place.
  auto directory = open_at(AT_FDCWD, store, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  struct stat named {};
  if (!directory && ::lstat(store.c_str(), &named) == 0 && S_ISLNK(named.st_mode)) {
    return fail(ErrorCode::kInvalid, "store " + store + " is a symbolic link: name the directory that it leads to");
  }
  if (!directory) return fail(std::move(directory).error().with_context("store " + store));
  struct stat found {};
  if (::fstat(directory->get(), &found) != 0) return fail_errno("stat", store);
  if (found.st_uid == user.uid) return {};
  INDUCTORFS_TRY(check_is_store(directory->get(), store));
  // A worker of who was root when it started could not go on.
  INDUCTORFS_TRY_ASSIGN(const auto lock, open_at(directory->get(), "lock", O_RDWR | O_CREAT | O_NOFOLLOW, kLockMode));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return fail(ErrorCode::kBusy, "another mount uses the store " + store + ", whose worker is another user");
  }
  // The last: a store whose directory is that user's is so as a whole.
  const uid_t from = found.st_uid;
  if (from == 0 && ::fchmod(directory->get(), kStoreMode) != 0) return fail_errno("chmod", store);
  Result<void> given = give_all_in(*directory, from, user);
  if (given && ::fchown(directory->get(), user.uid, user.gid) != 0) given = fail_errno("chown", store);
  // Whose it was can use it then; a second error would say no more than the first one.
  if (!given) (void)give_all_in(*directory, user.uid, {from, found.st_gid, {}});
  return given;
}

std::string log_elsewhere(const config::Settings& settings) {
  return log_is_in_store(settings) ? std::string() : log_path(settings);
}

Result<void> give_log(const std::string& path, const WorkerUser& user) {
  if (path.empty()) return {};
  INDUCTORFS_TRY(check_log(path));
  const Fd file(::open(path.c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file && errno == ELOOP) {
    return fail(ErrorCode::kInvalid, "open log: " + path + " is a symbolic link: name the file that it leads to");
  }
  struct stat found {};
  if (!file || ::fstat(file.get(), &found) != 0) return fail_errno("open log", path);
  if (!S_ISREG(found.st_mode)) return {};
  const bool is_plain = found.st_nlink == 1 && (found.st_uid == 0 || config::is_worker_user(found.st_uid));
  if (!is_plain) return fail(ErrorCode::kNotPermitted, "open log: " + path + " is another user's: remove it");
  // Its group may be that of those who read logs.
  if (::fchown(file.get(), user.uid, static_cast<gid_t>(-1)) != 0) return fail_errno("chown", path);
  return ::fchmod(file.get(), kLogMode) == 0 ? Result<void>() : fail_errno("chmod", path);
}

Result<void> choose_worker_user(config::Settings& settings) {
  settings.worker.reset();
  settings.no_worker_user.clear();
  if (::geteuid() != 0) return {};
  auto user = config::worker_user();
  const Result<void> prepared = user ? prepare(settings, *user) : fail(user.error());
  if (prepared) {
    settings.worker = std::move(*user);
    return {};
  }
  if (prepared.error().code() == ErrorCode::kTimedOut) return fail(prepared.error());
  if (is_given(settings.store)) {
    return fail(ErrorCode::kInvalid, "store: " + settings.store +
                                         " belongs to the user who serves mounts of root: " + prepared.error().what());
  }
  settings.no_worker_user = "the process that serves this mount stays root: " + prepared.error().what();
  (void)give_log(log_elsewhere(settings), {});  // that it may not write there the worker says
  return {};
}

}  // namespace inductorfs::mount
