// SPDX-License-Identifier: Apache-2.0
#include "worker_filter.h"

#include "asked_processes.h"
#include "inductorfs/base/call_filter.h"
#include "inductorfs/base/sanitized.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/redis/prepare.h"

namespace inductorfs::mount {
namespace {

/// Written once, before there are threads.
std::string& warning() {
  static auto* const text = new std::string;  // until this process ends
  return *text;
}

}  // namespace

void put_under_filter(const config::Settings& settings) {
#ifndef INDUCTORFS_SANITIZED
  (void)filter_warning();  // it asks the kernel
  (void)codec::digest_of("");
  redis::prepare_to_connect(settings.remote);
  const auto filter = CallFilter::for_serving();
  const Result<void> applied = filter ? filter->apply() : fail(filter.error());
  if (applied) return;
  warning() = "the process that serves this mount may make all system calls: " + applied.error().what() +
              ": allow seccomp filters in the container, or boot a kernel with CONFIG_SECCOMP_FILTER";
#else
  (void)settings;
#endif
}

const std::string& worker_filter_warning() { return warning(); }

}  // namespace inductorfs::mount
