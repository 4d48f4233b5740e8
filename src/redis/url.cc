// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/redis/url.h"

#include <optional>

#include "inductorfs/base/number.h"

namespace inductorfs::redis {
namespace {

constexpr int kDatabaseLimit = 65535;
constexpr std::string_view kExample =
    "; write redis://[user:password@]host[:port][/db], rediss://... for TLS, unix:///path/to/socket[?db=N], "
    "redis+sentinel://host[:port],host[:port]/master[/db], or redis+cluster://host[:port],host[:port]";
constexpr uint16_t kServerPort = 6379;
constexpr uint16_t kSentinelPort = 26379;

// The text itself is never quoted: it may hold a password.
tl::unexpected<Error> bad_url(std::string_view reason) {
  return fail(ErrorCode::kInvalid, "not a Redis URL: " + std::string(reason) + std::string(kExample));
}

std::optional<int> to_number(std::string_view text, int limit) {
  const auto value = number_in<int>(text);
  return value && *value >= 0 && *value <= limit ? value : std::nullopt;
}

/// One component of a path: what would end it, or be taken for an escape, is escaped.
std::string in_a_path(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '/') {
      out += "%2F";
    } else if (c == '%') {
      out += "%25";
    } else {
      out += c;
    }
  }
  return out;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_value(text[i + 1]);
    const int low = hex_value(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

Result<void> parse_credentials(std::string_view text, Endpoint& endpoint) {
  const size_t colon = text.find(':');
  const auto user = percent_decoded(text.substr(0, colon));
  const auto password = percent_decoded(colon == std::string_view::npos ? "" : text.substr(colon + 1));
  if (!user || !password) return bad_url("a % in user or password is not followed by two hexadecimal digits");
  endpoint.user = *user;
  endpoint.password = *password;
  endpoint.url_has_credentials = !text.empty();
  return {};
}

/// `into` keeps its port when the text has none.
Result<void> parse_host_and_port(std::string_view text, HostPort& into) {
  std::string_view port;
  bool has_port = false;
  if (!text.empty() && text.front() == '[') {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) return bad_url("the [ of an IPv6 address is not closed");
    into.host = text.substr(1, close - 1);
    std::string_view rest = text.substr(close + 1);
    if (!rest.empty() && rest.front() != ':') return bad_url("something other than :port follows the ]");
    has_port = !rest.empty();
    if (has_port) port = rest.substr(1);
  } else {
    const size_t colon = text.find(':');
    into.host = text.substr(0, colon);
    has_port = colon != std::string_view::npos;
    if (has_port) port = text.substr(colon + 1);
  }
  if (into.host.empty()) return bad_url("the host is missing");
  if (!has_port) return {};
  const auto number = to_number(port, 65535);
  if (!number || *number == 0) return bad_url("the port is not a number from 1 to 65535");
  into.port = static_cast<uint16_t>(*number);
  return {};
}

/// Takes "user:password@" off the front.
Result<void> parse_who(std::string_view& authority, Endpoint& endpoint) {
  const size_t at = authority.rfind('@');
  if (at == std::string_view::npos) return {};
  INDUCTORFS_TRY(parse_credentials(authority.substr(0, at), endpoint));
  authority.remove_prefix(at + 1);
  return {};
}

Result<void> parse_database(std::string_view text, Endpoint& endpoint) {
  if (text.empty()) return {};
  const auto number = to_number(text, kDatabaseLimit);
  if (!number) return bad_url("what follows the / is not a database number");
  endpoint.database = *number;
  return {};
}

Result<Endpoint> parse_tcp(std::string_view rest, bool tls) {
  Endpoint endpoint;
  endpoint.tls = tls;
  const size_t slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  INDUCTORFS_TRY(parse_who(authority, endpoint));
  HostPort address{"", endpoint.port};
  INDUCTORFS_TRY(parse_host_and_port(authority, address));
  endpoint.host = std::move(address.host);
  endpoint.port = address.port;
  INDUCTORFS_TRY(parse_database(slash == std::string_view::npos ? "" : rest.substr(slash + 1), endpoint));
  return endpoint;
}

/// Separated by commas.
Result<std::vector<HostPort>> parse_hosts(std::string_view text, uint16_t port) {
  std::vector<HostPort> hosts;
  while (true) {
    const size_t comma = text.find(',');
    INDUCTORFS_TRY(parse_host_and_port(text.substr(0, comma), hosts.emplace_back(HostPort{"", port})));
    if (comma == std::string_view::npos) return hosts;
    text.remove_prefix(comma + 1);
  }
}

Result<Endpoint> parse_cluster(std::string_view rest, bool tls) {
  Endpoint endpoint;
  endpoint.tls = tls;
  const size_t slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  INDUCTORFS_TRY(parse_who(authority, endpoint));
  INDUCTORFS_TRY_ASSIGN(endpoint.cluster, parse_hosts(authority, kServerPort));
  INDUCTORFS_TRY(parse_database(slash == std::string_view::npos ? "" : rest.substr(slash + 1), endpoint));
  if (endpoint.database != 0) return bad_url("a Redis Cluster has no database but 0");
  return endpoint;
}

Result<Endpoint> parse_sentinel(std::string_view rest, bool tls) {
  Endpoint endpoint;
  endpoint.tls = tls;
  endpoint.sentinels = std::make_shared<Sentinels>();
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos) return bad_url("the name of the master is missing");
  std::string_view authority = rest.substr(0, slash);
  std::string_view name = rest.substr(slash + 1);
  INDUCTORFS_TRY(parse_who(authority, endpoint));
  INDUCTORFS_TRY_ASSIGN(endpoint.sentinels->addresses, parse_hosts(authority, kSentinelPort));
  const size_t second = name.find('/');
  const auto master = percent_decoded(name.substr(0, second));
  if (!master || master->empty()) return bad_url("the name of the master is missing");
  endpoint.sentinels->master = *master;
  INDUCTORFS_TRY(parse_database(second == std::string_view::npos ? "" : name.substr(second + 1), endpoint));
  return endpoint;
}

Result<Endpoint> parse_unix(std::string_view rest) {
  Endpoint endpoint;
  if (rest.empty() || rest.front() != '/') {
    const size_t at = rest.find("@/");
    if (at == std::string_view::npos) return bad_url("the socket's path is not absolute");
    INDUCTORFS_TRY(parse_credentials(rest.substr(0, at), endpoint));
    rest.remove_prefix(at + 1);
  }
  const size_t question = rest.find('?');
  endpoint.socket_path = rest.substr(0, question);
  if (question == std::string_view::npos) return endpoint;
  std::string_view query = rest.substr(question + 1);
  constexpr std::string_view kKey = "db=";
  if (!query.starts_with(kKey)) return bad_url("the only option of a unix:// URL is db=N");
  const auto number = to_number(query.substr(kKey.size()), kDatabaseLimit);
  if (!number) return bad_url("db= is not followed by a database number");
  endpoint.database = *number;
  return endpoint;
}

}  // namespace

std::string HostPort::to_string() const {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + std::to_string(port);
}

std::string Endpoint::to_string() const {
  // Not for a password from a file: whoever looks for the mount by its URL must find the URL that was given.
  const std::string who = url_has_credentials ? "***@" : "";
  if (!socket_path.empty()) {
    return "unix://" + who + socket_path + (database == 0 ? "" : "?db=" + std::to_string(database));
  }
  const std::string after = database == 0 ? "" : "/" + std::to_string(database);
  const auto shown = [](const std::vector<HostPort>& hosts) {
    std::string all;
    for (const HostPort& one : hosts) all += (all.empty() ? "" : ",") + one.to_string();
    return all;
  };
  const std::string scheme = tls ? "rediss" : "redis";
  if (!cluster.empty()) return scheme + "+cluster://" + who + shown(cluster);
  if (sentinels == nullptr) return scheme + "://" + who + shown({{host, port}}) + after;
  return scheme + "+sentinel://" + who + shown(sentinels->addresses) + "/" + in_a_path(sentinels->master) + after;
}

Result<Endpoint> parse_url(std::string_view url) {
  if (url.find('\0') != std::string_view::npos) return bad_url("it holds a NUL byte");
  constexpr std::string_view kUnix = "unix://";
  if (url.starts_with(kUnix)) return parse_unix(url.substr(kUnix.size()));
  struct Form {
    std::string_view after;  ///< what follows "redis", or "rediss" for TLS
    Result<Endpoint> (*parse)(std::string_view, bool);
  };
  for (const auto& [after, parse] :
       {Form{"://", &parse_tcp}, Form{"+sentinel://", &parse_sentinel}, Form{"+cluster://", &parse_cluster}}) {
    for (const bool tls : {false, true}) {
      const std::string scheme = (tls ? "rediss" : "redis") + std::string(after);
      if (url.starts_with(scheme)) return parse(url.substr(scheme.size()), tls);
    }
  }
  return bad_url("it starts with none of redis://, rediss://, unix://, redis+sentinel:// and redis+cluster://");
}

}  // namespace inductorfs::redis
