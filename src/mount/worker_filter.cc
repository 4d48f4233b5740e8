// SPDX-License-Identifier: Apache-2.0
#include "worker_filter.h"

#include "asked_processes.h"
#include "file_bounds.h"
#include "inductorfs/base/call_filter.h"
#include "inductorfs/base/sanitized.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/redis/prepare.h"

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

void put_under_filter(const config::Settings& settings) {
#ifndef INDUCTORFS_SANITIZED
  (void)filter_warning();  // it asks the kernel
  (void)codec::digest_of("");
  redis::prepare_to_connect(settings.remote);
  const auto filter = CallFilter::for_serving();
  const Result<void> applied = filter ? filter->apply() : fail(filter.error());
  if (applied) return;
  warnings().filter = "the process that serves this mount may make all system calls: " + applied.error().what() +
                      ": allow seccomp filters in the container, or boot a kernel with CONFIG_SECCOMP_FILTER";
#else
  (void)settings;
#endif
}

}  // namespace

void confine_worker(const config::Settings& settings) {
  const Result<void> kept = stay_in_places(settings);
  if (!kept) warnings().no_landlock = kept.error().what();
  if (!kept && settings.store_root.empty()) {
    warnings().places = "the process that serves this mount may use all files that its user may use (" +
                        warnings().no_landlock +
                        "): boot Linux 5.19 or later with landlock among lsm=, and allow it in the container";
  }
  put_under_filter(settings);
}

const std::string& worker_filter_warning() { return warnings().filter; }
const std::string& worker_places_warning() { return warnings().places; }
const std::string& no_landlock() { return warnings().no_landlock; }

}  // namespace inductorfs::mount
