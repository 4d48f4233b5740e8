// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "inductorfs/base/fd.h"
#include "inductorfs/config/ownership.h"
#include "inductorfs/config/settings.h"

/// The configuration of a mount as its workers get it: the settings as they were when `mount` was called. A file of
/// options that is changed or broken later must not break a restart.
namespace inductorfs::config {

struct Frozen {
  Settings settings;
  Ownership ownership;
};

/// Encodes settings for the workers.
[[nodiscard]] std::string freeze(const Settings& settings, const Ownership& ownership);
/// Decodes them; kInvalid when this version cannot make settings of the bytes.
[[nodiscard]] Result<Frozen> thaw(std::string_view bytes);

/// Makes memory with these bytes, which can be handed to a process that is started.
[[nodiscard]] Result<Fd> to_memory(const char* name, std::string_view bytes);
/// The same, and nobody can change the bytes, whoever has the descriptor.
[[nodiscard]] Result<Fd> to_sealed_memory(const char* name, std::string_view bytes);
[[nodiscard]] Result<std::string> from_memory(int fd);

}  // namespace inductorfs::config
