// SPDX-License-Identifier: Apache-2.0
#include "mounter_task.h"

#include <unistd.h>

#include <exception>
#include <utility>

#include "inductorfs/config/also_json.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/mount/worker_user.h"
#include "inductorfs/places/also_state_json.h"
#include "inductorfs/redis/url.h"
#include "secrets.h"

namespace inductorfs::mount {

using config::Json;

namespace {

/// Of what a mount gives its mounter; another one is another release's.
constexpr int kForm = 1;

/// Not as text: a path may have any byte.
std::string bytes_of(const Json& json) {
  const std::vector<uint8_t> bytes = Json::to_cbor(json);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

MounterTask mounter_task(const config::Settings& settings, const config::Ownership& ownership) {
  MounterTask task;
  task.mountpoint = settings.mountpoint;
  task.ownership = ownership;
  task.allow_other = settings.allow_other.value_or(false);
  task.also = settings.also;
  const std::string sockets = config::runtime_directory(::geteuid(), config::process_environment()) + "/";
  task.socket = sockets + config::socket_name(settings.mountpoint);
  if (settings.alias != settings.mountpoint) task.socket_alias = sockets + config::socket_name(settings.alias);
  if (settings.worker) {
    task.log = log_elsewhere(settings);
    task.log_user = *settings.worker;
    if (const auto server = redis::parse_url(settings.remote)) task.server = server->socket_path;
  }
  task.patience = settings.start_timeout;
  task.secrets = Secrets::files_of(settings);
  return task;
}

std::string to_bytes(const MounterTask& task) {
  Json also = Json::array();
  for (const config::Also& place : task.also) also.push_back(config::also_to_json(place));
  Json secrets = Json::object();
  for (const auto& [name, path] : task.secrets) secrets[name] = Json::binary({path.begin(), path.end()});
  return bytes_of({{"form", kForm},
                   {"mountpoint", task.mountpoint},
                   {"uid", task.ownership.uid},
                   {"gid", task.ownership.gid},
                   {"mode", task.ownership.mode},
                   {"uncovered", task.ownership.uncovered},
                   {"allow_other", task.allow_other},
                   {"also", std::move(also)},
                   {"socket", task.socket},
                   {"socket_alias", task.socket_alias},
                   {"server", Json::binary({task.server.begin(), task.server.end()})},
                   {"log", Json::binary({task.log.begin(), task.log.end()})},
                   {"log_uid", task.log_user.uid},
                   {"log_gid", task.log_user.gid},
                   {"patience", task.patience.count()},
                   {"secrets", std::move(secrets)}});
}

Result<MounterTask> mounter_task_from(std::string_view bytes) {
  MounterTask task;
  try {
    const Json json = Json::from_cbor(bytes);
    if (json.at("form").get<int>() != kForm) return fail(ErrorCode::kNotSupported, "a mount of another version");
    json.at("mountpoint").get_to(task.mountpoint);
    json.at("uid").get_to(task.ownership.uid);
    json.at("gid").get_to(task.ownership.gid);
    json.at("mode").get_to(task.ownership.mode);
    json.at("uncovered").get_to(task.ownership.uncovered);
    json.at("allow_other").get_to(task.allow_other);
    json.at("socket").get_to(task.socket);
    task.socket_alias = json.value("socket_alias", "");  // of a mount from before there was
    if (const auto log = json.find("log"); log != json.end()) {
      task.log.assign(log->get_binary().begin(), log->get_binary().end());
      task.log_user = {json.at("log_uid").get<uid_t>(), json.at("log_gid").get<gid_t>(), {}};
    }
    if (const auto server = json.find("server"); server != json.end()) {
      task.server.assign(server->get_binary().begin(), server->get_binary().end());
    }
    task.patience = Milliseconds(json.at("patience").get<int64_t>());
    const Json secrets = json.value("secrets", Json::object());  // of a mount from before there were
    for (const auto& [name, path] : secrets.items()) {
      task.secrets.emplace(name, std::string(path.get_binary().begin(), path.get_binary().end()));
    }
    for (const Json& one : json.at("also")) {
      auto also = config::also_from_json(one);
      if (!also) return fail(ErrorCode::kInvalid, "a mount of another version: a further place");
      task.also.push_back(std::move(*also));
    }
  } catch (const std::exception& problem) {
    return fail(ErrorCode::kInvalid, std::string("a mount of another version: ") + problem.what());
  }
  return task;
}

std::string to_bytes(const MounterNote& note) {
  return bytes_of({{"mount", note.own.mount},
                   {"device", note.own.device},
                   {"also", places::states_to_json(note.also)},
                   {"stays_dead", note.stays_dead}});
}

std::optional<MounterNote> mounter_note_from(std::string_view bytes) {
  try {
    const Json json = Json::from_cbor(bytes);
    auto also = places::states_from_json(json.at("also"));
    if (!also) return std::nullopt;
    return MounterNote{{json.at("mount").get<uint64_t>(), json.at("device").get<std::string>()},
                       std::move(*also),
                       json.at("stays_dead").get<bool>()};
  } catch (const std::exception&) {
    return std::nullopt;  // another version's: everything is found out again
  }
}

}  // namespace inductorfs::mount
