// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/server.h"

#include "inductorfs/base/log.h"
#include "mount/cluster/remote_options.h"

namespace inductorfs::mount {
namespace {

constexpr Milliseconds kPatience{10'000};

}  // namespace

Result<std::vector<remote::ServerExamination>> examine_servers(const config::Settings& settings) {
  const remote::RemoteOptions options = remote_options(settings, "inductorfs-doctor");
  auto found = remote::examine_servers(options, Deadline::after(kPatience));
  if (!found) return fail(std::move(found).error().with_context(log::redact_url(settings.remote)));
  return found;
}

}  // namespace inductorfs::mount
