// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "inductorfs/config/settings.h"
#include "inductorfs/remote/remote.h"

namespace inductorfs::mount {

/// Returns how the server of --remote is reached with these settings; `client` is the name that the server lists. Pure.
[[nodiscard]] inline remote::RemoteOptions remote_options(const config::Settings& settings, std::string client) {
  remote::RemoteOptions options;
  options.url = settings.remote;
  options.password_file = settings.password_file;
  options.ca_file = settings.ca_file;
  options.certificate_file = settings.cert_file;
  options.key_file = settings.key_file;
  options.prefix = settings.prefix;
  options.client_name = std::move(client);
  options.read_only = settings.read_only;
  return options;
}

}  // namespace inductorfs::mount
