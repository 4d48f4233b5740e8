// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace inductorfs::redis {

/// Loads the libraries that a connection to this URL would load when it is first made: those of TLS, and of the name
/// services that nsswitch.conf(5) gives for hosts and accounts. For a process that may load no code later. What is
/// missing is left out. Before there are threads.
void prepare_to_connect(std::string_view url);

/// Returns where TLS looks for the certificates of the system's authorities, and for its configuration: as it was
/// built, and as SSL_CERT_FILE, SSL_CERT_DIR and OPENSSL_CONF say. They need not be there. Before there are threads.
[[nodiscard]] std::vector<std::string> certificate_places();

}  // namespace inductorfs::redis
