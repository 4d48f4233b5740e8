// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/server.h"

#include "inductorfs/base/log.h"

namespace inductorfs::mount {
namespace {

constexpr Milliseconds kPatience{10'000};

}  // namespace

Result<remote::ServerExamination> examine_server(const config::Settings& settings) {
  remote::RemoteOptions options;
  options.url = settings.remote;
  options.password_file = settings.password_file;
  options.ca_file = settings.ca_file;
  options.certificate_file = settings.cert_file;
  options.key_file = settings.key_file;
  options.client_name = "inductorfs-doctor";
  auto found = remote::examine_server(options, Deadline::after(kPatience));
  if (!found) return fail(std::move(found).error().with_context(log::redact_url(settings.remote)));
  return found;
}

}  // namespace inductorfs::mount
