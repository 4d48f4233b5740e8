// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "inductorfs/base/own_user.h"
#include "inductorfs/config/frozen.h"
#include "inductorfs/fingerprint/examiner.h"
#include "inductorfs/fingerprint/trust.h"
#include "inductorfs/host/learn.h"
#include "inductorfs/host/place_reader.h"
#include "inductorfs/mount/open_files.h"
#include "inductorfs/mount/process.h"
#include "inductorfs/mount/process_commands.h"
#include "inductorfs/supervisor/protocol.h"
#include "mount/processes/asked_processes.h"

namespace inductorfs::mount {
namespace {

/// What it takes to read another user's process and, as that user, the packages of it; to end who takes too long; and
/// to ask the kernel whether somebody has a file of the mount open (open_files.h).
constexpr int kCapabilities[] = {
    CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE, CAP_SETUID, CAP_SETGID, CAP_KILL, CAP_LEASE,
};

/// What the worker of this mount may have done. What is run and read for its facts is what whoever mounted has said:
/// where that cannot be read none are learned.
std::map<std::string, fingerprint::ExaminerTask, std::less<>> tasks_of_mount(const std::string& mountpoint,
                                                                             std::shared_ptr<std::string>& secret) {
  std::map<std::string, fingerprint::ExaminerTask, std::less<>> tasks;
  tasks.emplace(kJobTask, job_task());
  tasks.emplace(kMountsTask, mounts_task());
  tasks.emplace(OpenFiles::kTask, open_files_task(mountpoint));
  tasks.emplace(fingerprint::kNamesTask, fingerprint::names_task());
  tasks.emplace(host::kPlacesTask, host::places_task());
  Result<std::string> bytes = config::from_memory(supervisor::kExaminerTaskFd);
  (void)::close(supervisor::kExaminerTaskFd);
  if (bytes && bytes->size() > fingerprint::kSealSecretSize) {
    secret = std::make_shared<std::string>(*bytes, 0, fingerprint::kSealSecretSize);
    ::explicit_bzero(bytes->data(), fingerprint::kSealSecretSize);
    bytes->erase(0, fingerprint::kSealSecretSize);
  }
  auto request = bytes ? host::facts_request_from(*bytes) : fail(bytes.error());
  if (request) {
    tasks.emplace(host::kFactsTask, host::facts_task(std::move(*request)));
  } else {
    (void)::fputs(error_line(request.error()).c_str(), stderr);
  }
  return tasks;
}

}  // namespace

int examiner_command(const std::string& mountpoint, const std::string& cache_file) {
  (void)::prctl(PR_SET_NAME, "inductorfs-exam");  // cut at 15 bytes, as a program's name is
  (void)::unsetenv("NOTIFY_SOCKET");              // systemd is the others' to talk to
  Result<void> ready = keep_rights(kCapabilities);
  if (ready && ::fcntl(supervisor::kExaminerFd, F_SETFD, FD_CLOEXEC) != 0) {
    ready = fail(ErrorCode::kInvalid, "an examiner is started by inductorfs mount, not by hand");
  }
  if (!ready) {
    (void)::fputs(error_line(ready.error()).c_str(), stderr);
    return EXIT_FAILURE;
  }
  fingerprint::ExaminerOptions options;
  // Where there is none the worker says so (filter_warning()): nobody hears this process.
  options.reading = fingerprint::filter_of_reading().value_or(std::nullopt);
  options.cache_file = cache_file;
  options.tasks = tasks_of_mount(mountpoint, options.seal_secret);
  fingerprint::run_examiner(supervisor::kExaminerFd, options);
  return EXIT_SUCCESS;
}

}  // namespace inductorfs::mount
