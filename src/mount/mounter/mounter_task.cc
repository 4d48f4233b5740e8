// SPDX-License-Identifier: Apache-2.0
#include "mount/mounter/mounter_task.h"

#include <unistd.h>

#include <exception>
#include <utility>

#include "inductorfs/base/text.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/config/settings_json.h"
#include "inductorfs/mount/worker_user.h"
#include "inductorfs/redis/url.h"
#include "mount/processes/secrets.h"

namespace inductorfs::mount {

using Cbor = nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MounterTask, mountpoint, ownership, allow_other, also, users_in, socket,
                                   socket_alias, server, log, log_user, secrets)

namespace {

/// Of what a mount gives its mounter; another one is another release's.
constexpr int kForm = 3;

/// Not as text: a path may have any byte.
std::string bytes_of(const Cbor& json) {
  const std::vector<uint8_t> bytes = Cbor::to_cbor(json);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

MounterTask mounter_task(const config::Settings& settings, const config::Ownership& ownership) {
  MounterTask task;
  task.mountpoint = settings.mountpoint;
  task.ownership = ownership;
  task.allow_other = settings.allow_other.value_or(false);
  task.also = settings.also;
  // What the cluster has is shown as the mountpoint's owner's.
  if (::geteuid() == 0 && ownership.uid == 0 && task.allow_other && !settings.default_also.empty()) {
    const config::Also& place = settings.default_also.front();
    task.users_in = parent_of(place.path.substr(0, place.path.size() - place.name.size() - 1));
  }
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
  if (!settings.signing_key.empty()) task.secrets.emplace(kSigningKey, settings.signing_key);
  return task;
}

std::string to_bytes(const MounterTask& task) {
  Cbor json = task;
  json["form"] = kForm;
  json["patience"] = task.patience.count();
  return bytes_of(json);
}

Result<MounterTask> mounter_task_from(std::string_view bytes) {
  try {
    const Cbor json = Cbor::from_cbor(bytes);
    if (json.at("form").get<int>() != kForm) return fail(ErrorCode::kNotSupported, "a mount of another version");
    auto task = json.get<MounterTask>();
    task.patience = Milliseconds(json.at("patience").get<int64_t>());
    return task;
  } catch (const std::exception& problem) {
    return fail(ErrorCode::kInvalid, std::string("a mount of another version: ") + problem.what());
  }
}

std::string to_bytes(const MounterNote& note) {
  return bytes_of({{"mount", note.own.mount}, {"device", note.own.device}, {"stays_dead", note.stays_dead}});
}

std::optional<MounterNote> mounter_note_from(std::string_view bytes) {
  try {
    const Cbor json = Cbor::from_cbor(bytes);
    return MounterNote{{json.at("mount").get<uint64_t>(), json.at("device").get<std::string>()},
                       json.at("stays_dead").get<bool>()};
  } catch (const std::exception&) {
    return std::nullopt;  // another version's: everything is found out again
  }
}

}  // namespace inductorfs::mount
