// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "inductorfs/base/counters.h"
#include "parts.h"

namespace inductorfs::catalog {

/// Opens the database; one that is damaged so much that it cannot be opened is set aside and made anew.
[[nodiscard]] Result<Database> open_or_renew(const std::string& file, Counters& counters);
/// Sets the file aside and makes it anew, with what of its publish queue could still be read. Requires: it is closed.
[[nodiscard]] Result<Database> renew(const std::string& file, Counters& counters);
/// Fills tree and queue from the database; answers how far each scope was followed. kCorrupt: damaged after all.
[[nodiscard]] Result<std::map<ScopeIndex, remote::Position>> load(Parts& parts);
/// Puts what the disk has of a scope into the tree, piece by piece, and hands over what can be seen by that. Answers
/// how far that had been followed: the start when some of it could not be used, for then it has to be read anew. Ends
/// early when the catalog stops or the scope is no longer followed.
[[nodiscard]] Result<remote::Position> load_scope(Parts& parts, const FollowedScope& scope,
                                                  const std::function<void(std::vector<std::string>&)>& tell);

}  // namespace inductorfs::catalog
