// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "inductorfs/fingerprint/examiner.h"
#include "inductorfs/ledger/job_processes.h"
#include "inductorfs/mount/process_views.h"

/// What the ledger and the views of a mount know of processes: the worker asks, and the examiner looks.
namespace inductorfs::mount {

using SharedExaminer = std::shared_ptr<const fingerprint::ExaminerLink>;

/// Says whether it is a child of the examiner. Blocks for a quarter of a second at most, and only where its name is
/// that of one.
[[nodiscard]] bool is_own(const SharedExaminer& examiner, pid_t process);
[[nodiscard]] ledger::JobProcesses job_processes_of(const SharedExaminer& examiner);
[[nodiscard]] ViewSources view_sources_of(const SharedExaminer& examiner);

/// The examiner's side.
inline constexpr const char* kJobTask = "job";
inline constexpr const char* kMountsTask = "mounts";
[[nodiscard]] fingerprint::ExaminerTask job_task();
[[nodiscard]] fingerprint::ExaminerTask mounts_task();

/// Says that children that look at processes have no filter of system calls, and why; empty: they have. The same for as
/// long as this process lives.
[[nodiscard]] const std::string& filter_warning();

}  // namespace inductorfs::mount
