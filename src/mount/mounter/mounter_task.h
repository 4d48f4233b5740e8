// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/config/ownership.h"
#include "inductorfs/config/settings.h"
#include "inductorfs/places/also.h"

namespace inductorfs::mount {

/// What the mounter of a mount does, and nothing else: whoever mounted has said it before there was a worker, in memory
/// that nobody can change. Immutable value.
struct MounterTask {
  std::string mountpoint;
  config::Ownership ownership;  ///< of the directory to cover, as it was when it was examined
  bool allow_other = false;
  std::vector<config::Also> also;
  std::string users_in{};                        ///< where default directories of users get places; or empty
  std::string socket;                            ///< of control
  std::string socket_alias{};                    ///< its other name, as the user spelled the mountpoint; or empty
  std::string server{};                          ///< the Unix socket of --remote, or empty
  std::string log{};                             ///< log_elsewhere(); empty: the worker needs nobody to make it
  config::WorkerUser log_user{};                 ///< to whom it is given
  Milliseconds patience{};                       ///< for the start of a worker
  std::map<std::string, std::string> secrets{};  ///< Secrets::Files; and kSigningKey, which no worker gets
};

/// The name of the file of --signing-key in MounterTask::secrets.
inline constexpr const char* kSigningKey = "signing-key";

/// Says how the mount of these settings is made.
[[nodiscard]] MounterTask mounter_task(const config::Settings& settings, const config::Ownership& ownership);
[[nodiscard]] std::string to_bytes(const MounterTask& task);
/// Is the inverse; kInvalid or kNotSupported for what another release wrote.
[[nodiscard]] Result<MounterTask> mounter_task_from(std::string_view bytes);

/// What a mounter has mounted, for the next one. Immutable value.
struct MounterNote {
  places::BindId own;  ///< the mount; empty when it was taken down
  /// It has replaced a dead mount and does not serve yet. If the start fails, it is to stay, dead, so that jobs go on
  /// getting ENOTCONN.
  bool stays_dead = false;
};
[[nodiscard]] std::string to_bytes(const MounterNote& note);
[[nodiscard]] std::optional<MounterNote> mounter_note_from(std::string_view bytes);

}  // namespace inductorfs::mount
