// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "inductorfs/base/trusted_file.h"
#include "inductorfs/redis/certificates.h"
#include "inductorfs/remote/server_examination.h"
#include "remote/client/redis_client.h"

namespace inductorfs::remote {
namespace {

constexpr uint64_t kSecretLimit = 4096;

Result<std::string> read_secret(const std::string& path, const FileSource& files) {
  auto text = files ? files(path) : read_trusted_file(path, kSecretLimit);
  if (text && text->size() > kSecretLimit) text = fail(ErrorCode::kTooLarge, path + " has more than 4096 bytes");
  if (!text) {
    const std::string why = text.error().what().empty() ? "it does not exist" : text.error().what();
    const ErrorCode code = is_passing(text.error()) ? text.error().code() : ErrorCode::kInvalid;
    return fail(code, "cannot read the password file " + path + ": " + why);
  }
  const size_t end = text->find_last_not_of("\r\n");
  text->resize(end == std::string::npos ? 0 : end + 1);
  if (text->empty())
    return fail(ErrorCode::kInvalid,
                "the password file " + path + " is empty; write the password of the server into it");
  return text;
}

}  // namespace

Result<redis::Endpoint> endpoint_of(const RemoteOptions& options) {
  INDUCTORFS_TRY_ASSIGN(auto endpoint, redis::parse_url(options.url));
  if (!options.password_file.empty()) {
    const auto read = [file = options.password_file, files = options.files] { return read_secret(file, files); };
    if (options.files) {
      endpoint.secret = read;
    } else {
      INDUCTORFS_TRY_ASSIGN(endpoint.password, read());
    }
  }
  endpoint.ca_file = options.ca_file;
  endpoint.certificate_file = options.certificate_file;
  endpoint.key_file = options.key_file;
  endpoint.files = options.files;
  endpoint.socket_source = options.socket;
  endpoint.client_name = options.client_name;
  return endpoint;
}

Result<void> check_server_files(const RemoteOptions& options) {
  RemoteOptions named = options;
  // Files that stand alone are read for a URL that comes later.
  const bool has_certificates = !(options.ca_file + options.certificate_file + options.key_file).empty();
  if (named.url.empty()) named.url = has_certificates ? "rediss://localhost" : "redis://localhost";
  INDUCTORFS_TRY_ASSIGN(const auto endpoint, endpoint_of(named));
  INDUCTORFS_TRY(redis::password_of(endpoint));
  return redis::check_certificates(endpoint);
}

}  // namespace inductorfs::remote
