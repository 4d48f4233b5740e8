// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "inductorfs/fingerprint/examiner.h"
#include "inductorfs/ledger/job_processes.h"
#include "inductorfs/mount/process_views.h"

/// What the ledger and the views of a mount know of processes: the worker asks, and the examiner looks.
namespace inductorfs::mount {

using SharedExaminer = std::shared_ptr<const fingerprint::ExaminerLink>;

[[nodiscard]] ledger::JobProcesses job_processes_of(const SharedExaminer& examiner);
[[nodiscard]] ViewSources view_sources_of(const SharedExaminer& examiner);

/// The examiner's side.
inline constexpr const char* kJobTask = "job";
inline constexpr const char* kMountsTask = "mounts";
[[nodiscard]] fingerprint::ExaminerTask job_task();
[[nodiscard]] fingerprint::ExaminerTask mounts_task();

}  // namespace inductorfs::mount
