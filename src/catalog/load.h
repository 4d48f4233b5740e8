// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "inductorfs/base/counters.h"
#include "parts.h"

namespace inductorfs::catalog {

/// Opens the database; one that is damaged so much that it cannot be opened is set aside and made anew.
[[nodiscard]] Result<Database> open_or_renew(const std::string& file, Counters& counters);
/// Sets the file aside and makes it anew, with what of its publish queue could still be read. Requires: it is closed.
[[nodiscard]] Result<Database> renew(const std::string& file, Counters& counters);
/// Fills tree and queue from the database; answers how far each scope was followed. kCorrupt: damaged after all.
[[nodiscard]] Result<std::map<remote::ScopeId, remote::Position>> load(Parts& parts);

}  // namespace inductorfs::catalog
