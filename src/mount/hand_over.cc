// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inductorfs/base/host_error.h"
#include "inductorfs/base/log.h"
#include "inductorfs/config/json.h"
#include "inductorfs/supervisor/protocol.h"
#include "mount/processes/store_place.h"
#include "mount/service.h"

/// How a worker leaves the mount to the next one.
namespace inductorfs::mount {
namespace {

/// From one worker's start until it ends for a damaged catalog.
constexpr Milliseconds kRenewRest{60'000};

}  // namespace

Result<std::string> Service::upgrade(const std::string& program, const Fd& executable) {
  struct stat found {};
  constexpr mode_t kRuns = S_IXUSR | S_IXGRP | S_IXOTH;
  if (::fstat(executable.get(), &found) != 0 || !S_ISREG(found.st_mode) || (found.st_mode & kRuns) == 0) {
    return fail(ErrorCode::kInvalid, "the daemon cannot run this program: " + program + ": name another --program");
  }
  Fd copy(::fcntl(executable.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) return fail_errno("fcntl", program);
  INDUCTORFS_TRY(store_watch_.answers());
  if (const Result<void> written = try_to_write(settings_.store); !written && is_of_host(written.error().code())) {
    return fail(written.error().code(), "not upgraded, version " INDUCTORFS_VERSION
                                        " goes on serving: the disk of --store takes no writes (" +
                                            written.error().what() + "): see the warnings of inductorfs status");
  }
  INDUCTORFS_TRY(supervision_.ask_upgrade(program, std::move(copy)));
  log::info("mount.upgrade_begun", {{"program", program}});
  hands_over_ = true;
  ended_.raise();
  return config::to_line({{"pid", ::getpid()}});
}

/// Jobs go on meanwhile. Whatever damages the files of one worker after another is no reason to serve nobody.
void Service::renew_catalog() {
  const bool is_too_soon = supervision_.resumes() && std::chrono::steady_clock::now() - begun_ < kRenewRest;
  if (is_too_soon || asked_ || supervision_.news().supervisor == 0 || !try_to_write(settings_.store)) return;
  log::info("mount.renews_catalog", {{"mountpoint", settings_.mountpoint}});
  renews_catalog_ = true;
  ended_.raise();
}

int Service::hand_over_code() const { return hands_over_ ? supervisor::kExitHandOver : supervisor::kExitHost; }

void Service::hand_over() {
  // What can take long comes first: requests are answered meanwhile.
  stopping_.notify_with([](bool& stopping) { stopping = true; });
  host_watch_.stop();
  watch_.stop();
  heartbeat_.stop();
  if (control_) control_->stop();
  layers_->catalog->stop();
  layers_->ledger->stop();
  session_->stop();
  // Nothing is synced or marked clean: the next worker goes on with what is in the kernel's memory, as after a crash.
}

}  // namespace inductorfs::mount
