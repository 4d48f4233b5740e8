// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/regular_file.h"
#include "inductorfs/base/text.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/mount/layers.h"
#include "inductorfs/mount/process.h"
#include "inductorfs/mount/worker_user.h"
#include "inductorfs/places/mountpoint.h"
#include "inductorfs/places/place.h"

namespace inductorfs::mount {
namespace {

constexpr mode_t kLogMode = 0640;

}  // namespace

std::string log_path(const config::Settings& settings) {
  if (!settings.log.empty()) return settings.log;
  return settings.foreground ? std::string() : settings.store + "/log";
}

bool log_is_in_store(const config::Settings& settings) {
  const std::string log = log_path(settings);
  return !log.empty() && config::is_at_or_below(log, settings.store);
}

Result<void> check_log(const std::string& path) {
  if (::geteuid() != 0) return {};
  const std::string directory = directory_of(path);
  INDUCTORFS_TRY(places::check_own_place(directory));
  INDUCTORFS_TRY(make_directories(directory));
  // Made here when it is missing: in a directory as /tmp another user could be first otherwise.
  const Fd fresh(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kLogMode));
  const bool is_closed = !fresh && errno == EACCES;
  struct stat link {};
  struct stat found {};
  if (is_closed && ::lstat(path.c_str(), &link) != 0) {
    return fail(ErrorCode::kNotPermitted,
                "open log: " + path + ": root may not write to its directory: chmod u+w it, or name another --log");
  }
  if (::lstat(path.c_str(), &link) != 0 || ::stat(path.c_str(), &found) != 0) return fail_errno("open log", path);
  const bool is_others = found.st_uid != 0 && !config::is_worker_user(found.st_uid);
  const bool is_log = (S_ISREG(found.st_mode) && found.st_nlink == 1) || S_ISCHR(found.st_mode);
  if ((S_ISLNK(link.st_mode) && link.st_uid != 0) || is_others || !is_log) {
    return fail(ErrorCode::kNotPermitted,
                "open log: " + path + " is no plain file of root's own: remove it, or name " + "another --log");
  }
  return {};
}

Result<void> open_log(const config::Settings& settings) {
  const std::string path = log_path(settings);
  if (const Result<void> fit = path.empty() ? Result<void>() : check_log(path); !fit) return wrong_option(fit.error());
  if (settings.worker && log_is_in_store(settings)) (void)make_directories(path.substr(0, path.rfind('/')), 0700);
  if (const Result<void> opened = log::open(path, settings.log_level); !opened) {
    const ErrorCode code = opened.error().code();
    const bool is_lasting = code == ErrorCode::kNotFound || code == ErrorCode::kNotPermitted;
    return is_lasting ? wrong_option(opened.error()) : fail(opened.error());  // a full disk is no wrong option
  }
  // The daemon's umask is 0 for the sake of artefacts' modes; the log names paths of every user of the mount.
  const Fd file(path.empty() ? -1 : ::open(path.c_str(), O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC));
  struct stat found {};
  const bool is_file = file && ::fstat(file.get(), &found) == 0 && S_ISREG(found.st_mode);
  if (is_file && ::fchmod(file.get(), kLogMode) != 0 && errno != EPERM) return fail_errno("chmod", path);
  return {};
}

}  // namespace inductorfs::mount
