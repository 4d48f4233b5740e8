// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace inductorfs::remote {

/// The scripts that run inside the server. They are sent whole with each EVAL, so that there is no NOSCRIPT case. The
/// header "#!lua" makes the server refuse a script as a whole, before it starts, when it is out of memory, a replica or
/// cannot persist. The first two take KEYS = meta, idx, cnt, own, log.
///
/// publish: ARGV = nonce, log length, index limit, record, contest key ("" = none), most, expect ("" = nothing, "-" =
/// no entry, "=" + digest), mode ("write" | "repair"), lifetime, renewal, then path, value, path, value, ... Keys
/// that have less than `renewal` milliseconds left get `lifetime`.
/// Mode repair: blobs of entries that were there have been sent again, and hosts that lacked them must hear of it.
/// Answers {status, generation}: PUBLISHED, SAME (everything is there already), HELD (everything is there with these
/// digests, but other attributes), NEWER (an entry of a newer release is under one of the paths), SUPERSEDED, CONFLICT,
/// FULL.
[[nodiscard]] const std::string& publish_script();

/// report_lost: ARGV = nonce, log length, record, path, digest, lifetime, renewal. Answers {"REMOVED" | "OTHER",
/// generation}.
[[nodiscard]] const std::string& report_lost_script();

/// sweep: KEYS = as above, and the sweeper's key; ARGV = nonce, log length, record, token, lease, lifetime, renewal,
/// then path, digest, path, digest, ... Answers {status, generation}: FENCED (another mount, or none, is the sweeper),
/// HELD (no path was given; the lease begins anew), OTHER (one of the entries has another digest; nothing was removed),
/// REMOVED.
[[nodiscard]] const std::string& sweep_script();

/// replace: KEYS = a string; ARGV = the value that it must have ("": none, or something else than a string), the value
/// that it gets, lifetime in milliseconds. Answers 1, or 0 when it has another value.
[[nodiscard]] const std::string& replace_script();

/// hold_lease: KEYS = a string; ARGV = who asks, lifetime in milliseconds, 0 to give it up. Answers who has it now, ""
/// for nobody.
[[nodiscard]] const std::string& hold_lease_script();

/// uncover: KEYS = sig, a statement; ARGV = field, value. Removes the field if it has this value and the statement is
/// not there. Answers how many went.
[[nodiscard]] const std::string& uncover_script();

/// register_scope: KEYS = registry of scopes, or of mounts; ARGV = scope or mount, lifetime in milliseconds, most. It
/// uses the server's clock: a host with a wrong clock would keep its scope in front for ever, or push the others out.
[[nodiscard]] const std::string& register_scope_script();

}  // namespace inductorfs::remote
