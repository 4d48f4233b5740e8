// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "inductorfs/redis/connection.h"

/// What a server has counted, for benchmarks. Everything here throws std::runtime_error when there is no answer.
namespace inductorfs::bench {

inline std::unique_ptr<redis::Connection> connect_to(const std::string& url) {
  constexpr Milliseconds kPatience{60'000};
  const auto endpoint = redis::parse_url(url);
  if (!endpoint) throw std::runtime_error(endpoint.error().to_string());
  auto connection = redis::Connection::open(*endpoint, Deadline::after(kPatience));
  if (!connection) throw std::runtime_error(connection.error().to_string());
  return std::move(*connection);
}

inline redis::Reply ask(redis::Connection& server, const redis::Command& command) {
  constexpr Milliseconds kPatience{600'000};  // a server may be busy with a storm
  auto reply = server.call(command, {kPatience, kPatience});
  if (!reply) throw std::runtime_error(reply.error().to_string());
  return std::move(*reply);
}

inline double number_in(const std::string& info, const std::string& name) {
  const size_t at = info.find("\n" + name + ":");
  if (at == std::string::npos) throw std::runtime_error("INFO has no " + name);
  return std::stod(info.substr(at + name.size() + 2));
}

/// Processor time of the server so far, in seconds.
inline double processor_seconds(const std::string& info) {
  return number_in(info, "used_cpu_sys") + number_in(info, "used_cpu_user");
}

/// Each simulated mount has sockets of its own.
inline void allow_many_files() {
  struct rlimit files {};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace inductorfs::bench
