// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/redis/prepare.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/text.h"

namespace inductorfs::redis {
namespace {

constexpr uint64_t kSwitchLimit = uint64_t{64} << 10;

bool is_service(std::string_view word) {
  return !word.empty() &&
         std::ranges::all_of(word, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; });
}

/// The C library finds them loaded.
void load_name_services(bool with_hosts) {
  const std::string text = read_file(AT_FDCWD, "/etc/nsswitch.conf", kSwitchLimit).value_or("");
  for (const std::string_view line : parts_of(text, '\n')) {
    const bool is_wanted =
        line.starts_with("passwd:") || line.starts_with("group:") || (with_hosts && line.starts_with("hosts:"));
    if (!is_wanted) continue;
    std::string words(line.substr(line.find(':') + 1));
    std::ranges::replace(words, '\t', ' ');
    for (const std::string_view word : parts_of(words, ' ')) {
      if (is_service(word)) (void)::dlopen(("libnss_" + std::string(word) + ".so.2").c_str(), RTLD_NOW);
    }
  }
}

}  // namespace

std::vector<std::string> certificate_places() {
  std::vector<std::string> places{::X509_get_default_cert_file(), ::X509_get_default_cert_dir()};
  for (const char* name : {"SSL_CERT_FILE", "SSL_CERT_DIR", "OPENSSL_CONF"}) {
    const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): one thread
    for (const std::string_view one : parts_of(value == nullptr ? "" : value, ':')) places.emplace_back(one);
  }
  return places;
}

void prepare_to_connect(std::string_view url) {
  if (url.starts_with("rediss")) ::SSL_CTX_free(::SSL_CTX_new(::TLS_client_method()));
  load_name_services(!url.empty() && !url.starts_with("unix:"));
}

}  // namespace inductorfs::redis
