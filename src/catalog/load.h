// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "catalog/parts.h"
#include "inductorfs/base/counters.h"

namespace inductorfs::catalog {

/// Opens the database; one that is damaged so much that it cannot be opened is set aside and made anew. A mount that is
/// resumed also opens it where the disk has no room for the files beside it.
[[nodiscard]] Result<Database> open_or_renew(const std::string& file, bool is_resumed, Counters& counters);
/// Sets a closed file aside and makes it anew, with what could still be read of its publish queue.
[[nodiscard]] Result<Database> renew(const std::string& file, Counters& counters);
/// Tells of rows that are not as they were written; `what` they are.
void tell_damaged_rows(Parts& parts, std::string_view what, uint64_t rows);
/// Fills tree and queue from the database; returns up to which position each scope was followed. kCorrupt when the file
/// is damaged after all.
[[nodiscard]] Result<std::map<ScopeIndex, remote::Position>> load(Parts& parts);
/// Puts what the disk has of a scope into the tree, piece by piece, and tells the listener.
/// Returns the position up to which the scope had been followed; or the start if some entry could not be used, because
/// the scope then has to be read anew. Ends early when the catalog stops or the scope is no longer followed.
[[nodiscard]] Result<remote::Position> load_scope(Parts& parts, const FollowedScope& scope);

}  // namespace inductorfs::catalog
