// SPDX-License-Identifier: Apache-2.0
#include "vfs/redis_bed.h"

#include <future>
#include <stdexcept>

namespace inductorfs::testing {

RedisBed::RedisBed(RedisServer::Options given) : options(std::move(given)) {
  server = std::make_unique<RedisServer>(options);
  proxy = std::make_unique<FaultProxy>(server->socket_path());
  connect_operator();
  const std::string credentials = options.password.empty() ? "" : ":" + options.password + "@";
  a = std::make_unique<Host>(remote::make_memory_cluster(), host_options(server->url(), counters_of_a));
  b = std::make_unique<Host>(remote::make_memory_cluster(), host_options(proxy->url(credentials), counters));
}

HostOptions RedisBed::host_options(const std::string& url, Counters& counted) {
  HostOptions made;
  made.sync_patience = Milliseconds(500);
  made.wrap_remote = [url, &counted](const remote::Remote&) {
    remote::RemoteOptions remote_options;
    remote_options.url = url;
    auto opened = remote::open_redis(remote_options, counted);
    if (!opened) throw std::runtime_error(opened.error().to_string());
    return std::move(*opened);
  };
  return made;
}

void RedisBed::connect_operator() {
  auto endpoint = redis::parse_url(server->url());
  auto opened = redis::Connection::open(*endpoint, Deadline::after(std::chrono::seconds(10)));
  if (!opened) throw std::runtime_error(opened.error().to_string());
  operator_ = std::move(*opened);
}

redis::Reply RedisBed::operate(const redis::Command& command) {
  auto reply = operator_->call(command, {Milliseconds(20000), Milliseconds(20000)});
  EXPECT_TRUE(reply) << reply.error().to_string();
  if (!reply) return {};
  EXPECT_FALSE(reply->is_error()) << command[0] << ": " << reply->text;
  return std::move(*reply);
}

void RedisBed::restart_server() {
  operator_.reset();
  server->kill();
  server->start();
  connect_operator();
}

std::unique_ptr<Host> RedisBed::mount_another() {
  return std::make_unique<Host>(remote::make_memory_cluster(), host_options(server->url(), counters_of_a));
}

std::string RedisBed::publish(Host& host, const std::string& text) {
  const auto written = host.publish_file(path_of(text), text);
  EXPECT_TRUE(written) << written.error().to_string();
  return path_of(text);
}

RedisBed::Answer RedisBed::look_up(Host& host, const std::string& path) {
  const auto directory = host.look_up(path.substr(0, path.rfind('/')));
  if (!directory) return {};
  Answer answer;
  std::promise<vfs::LookupAnswer> promise;
  const auto start = std::chrono::steady_clock::now();
  host.names().lookup(directory->node, path.substr(path.rfind('/') + 1), {},
                      [&](vfs::LookupAnswer got) { promise.set_value(std::move(got)); });
  const auto got = promise.get_future().get();
  answer.took = std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - start);
  answer.found = got.found.has_value();
  answer.kept = got.keep_absence;
  EXPECT_TRUE(got.found || got.found.error().code() == ErrorCode::kNotFound) << got.found.error().to_string();
  return answer;
}

}  // namespace inductorfs::testing
