// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace inductorfs::remote {

/// The programs that run inside the server, sent whole with each EVAL: no NOSCRIPT case, and the header "#!lua" makes
/// the server refuse a script as a whole, before it starts, when it is out of memory, a replica or cannot persist.
/// The first two take KEYS = meta, idx, cnt, own, log.
///
/// publish: ARGV = nonce, log length, index limit, record, contest key ("" = none), most, expect ("" = nothing, "-" =
/// no entry, "=" + digest), mode ("write" | "repair"), lifetime, renewal, then path, value, path, value, ... Keys
/// that have less than `renewal` milliseconds left get `lifetime`.
/// Mode repair: blobs of entries that were there have been sent again, of which hosts that missed them must hear.
/// Answers {status, generation}: PUBLISHED, SAME (all is there already), HELD (all is there with these digests, but
/// other attributes), SUPERSEDED, CONFLICT, FULL.
[[nodiscard]] const std::string& publish_script();

/// report_lost: ARGV = nonce, log length, record, path, digest, lifetime, renewal. Answers {"REMOVED" | "OTHER",
/// generation}.
[[nodiscard]] const std::string& report_lost_script();

/// sweep: KEYS = as above, and the sweeper's key; ARGV = nonce, log length, record, token, lease, lifetime, renewal,
/// then path, digest, path, digest, ... Answers {status, generation}: FENCED (the sweeper is another one, or nobody),
/// HELD (no path; the lease begins anew), OTHER (one of the entries has another digest; nothing was removed), REMOVED.
[[nodiscard]] const std::string& sweep_script();

/// register_scope: KEYS = registry of scopes; ARGV = scope, lifetime in milliseconds, most. By the server's clock: a
/// host whose own is wrong would keep its scope in front for ever, or push the others out.
[[nodiscard]] const std::string& register_scope_script();

}  // namespace inductorfs::remote
