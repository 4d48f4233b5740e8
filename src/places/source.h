// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/result.h"
#include "inductorfs/places/bind.h"
#include "inductorfs/places/place.h"

/// The directories of a mount that are shown at further places.
namespace inductorfs::places {

/// The directory `name` of the mount, made when it is missing. Who may write to the mount's root may write to what is
/// on the way; the last one is `user`'s, by default that of the mount, and closed to others.
[[nodiscard]] Result<Fd> open_source(const std::string& mountpoint, const BindId& mount, const std::string& name,
                                     const std::optional<PlaceUser>& user);

/// The directory `name` of the mount, whose parts all belong to the user, and are made with that user's rights.
[[nodiscard]] Result<Fd> open_users_source(const std::string& mountpoint, const BindId& mount, std::string_view name,
                                           const PlaceUser& user);

/// The users but root to whom directories in the mount's root belong; of very many names not all are looked at.
[[nodiscard]] Result<std::set<uid_t>> owners_in(const std::string& mountpoint, const BindId& mount);

}  // namespace inductorfs::places
