// SPDX-License-Identifier: Apache-2.0
#include "mount/processes/worker_filter.h"

#include "inductorfs/base/call_filter.h"
#include "inductorfs/base/mount_table.h"
#include "inductorfs/base/sanitized.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/redis/prepare.h"
#include "mount/processes/asked_processes.h"
#include "mount/processes/file_bounds.h"

namespace inductorfs::mount {
namespace {

/// Written once, before there are threads.
struct Warnings {
  std::string filter;
  std::string places;
  std::string no_landlock;
};
Warnings& warnings() {
  static auto* const all = new Warnings;  // until this process ends
  return *all;
}

[[maybe_unused]] void keep_to_places(const config::Settings& settings) {
  // Landlock hides from a process what it may not trace, where /proc hides that. Whoever is a user of its own is in the
  // group that sees all.
  const bool is_blind = !settings.worker && has_hidden_processes();
  const Result<void> kept =
      is_blind ? fail(ErrorCode::kNotSupported, "/proc hides processes (hidepid)") : stay_in_places(settings);
  if (kept) return;
  warnings().no_landlock = kept.error().what();
  if (!settings.store_root.empty()) return;
  warnings().places =
      "the process that serves this mount may use all files that its user may use (" + warnings().no_landlock +
      (is_blind ? "): let root mount, or /proc show the processes of all users"
                : "): boot Linux 5.19 or later with landlock among lsm=, and allow it in the container");
}

[[maybe_unused]] void put_under_filter() {
  const auto filter = CallFilter::for_serving();
  const Result<void> applied = filter ? filter->apply() : fail(filter.error());
  if (applied) return;
  warnings().filter = "the process that serves this mount may make all system calls: " + applied.error().what() +
                      ": allow seccomp filters in the container, or boot a kernel with CONFIG_SECCOMP_FILTER";
}

}  // namespace

bool has_hidden_processes() {
  const auto table = read_mount_table();
  const MountEntry* const proc = find_mount_at(table, "/proc");
  return proc != nullptr && proc->super_options.find("hidepid=") != std::string::npos;
}

void confine_worker(const config::Settings& settings) {
#ifndef INDUCTORFS_SANITIZED
  (void)filter_warning();  // it asks the kernel
  (void)codec::digest_of("");
  redis::prepare_to_connect(settings.remote);
  keep_to_places(settings);
  put_under_filter();
#else
  (void)settings;
#endif
}

const std::string& worker_filter_warning() { return warnings().filter; }
const std::string& worker_places_warning() { return warnings().places; }
const std::string& no_landlock() { return warnings().no_landlock; }

}  // namespace inductorfs::mount
