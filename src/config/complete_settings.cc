// SPDX-License-Identifier: Apache-2.0
// What settings are where nobody gave them, and which of them cannot work together.
#include <grp.h>
#include <pwd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "inductorfs/base/number.h"
#include "inductorfs/base/text.h"
#include "inductorfs/config/given.h"
#include "inductorfs/config/settings.h"

namespace inductorfs::config {
using fingerprint::TrustPolicy;

namespace {

bool is_one_in_the_other(const std::string& one, const std::string& other) {
  return is_at_or_below(one, other) || is_at_or_below(other, one);
}

/// The lexical mistakes that would make the daemon wait for itself.
Result<void> check_places(const Settings& settings) {
  if (is_one_in_the_other(settings.store, settings.mountpoint)) {
    return fail(ErrorCode::kInvalid, "--store and the mountpoint must not contain each other: " + settings.store +
                                         " and " + settings.mountpoint + ": name another --store");
  }
  if (!settings.log.empty() && is_at_or_below(settings.log, settings.mountpoint)) {
    return fail(ErrorCode::kInvalid, "--log must not lie in the mount: " + settings.log + ": name another --log");
  }
  for (const Also& also : settings.also) {
    if (is_one_in_the_other(also.path, settings.mountpoint)) {
      return fail(ErrorCode::kInvalid, "--also must not show the mount inside itself: " + also.path +
                                           ": name a place outside of " + settings.mountpoint);
    }
    if (is_at_or_below(settings.store, also.path)) {
      return fail(ErrorCode::kInvalid, "--also must not hide the store: " + also.path + ": name another place");
    }
  }
  return {};
}

void add_default_also(Settings& settings, const std::string& torch) {
  if (is_one_in_the_other(torch, settings.mountpoint)) return;
  for (const Also& place : default_places(torch)) {
    const bool given = std::any_of(settings.also.begin(), settings.also.end(), [&](const Also& also) {
      return also.path == place.path || also.name == place.name;
    });
    if (given) continue;
    settings.also.push_back(place);
    settings.default_also.push_back(place);
  }
}

/// Who made a file is told by whose it is. Only root can give files to those who make them.
Result<void> check_trust(const Settings& settings, const User& user) {
  if (user.uid == 0 || settings.trust == TrustPolicy::kAll || !*settings.allow_other) return {};
  return fail(ErrorCode::kInvalid, "--trust " + std::string(to_string(*settings.trust)) + " with --allow-other: all " +
                                       "files would belong to this user, whoever makes them; mount as root, or " +
                                       "without --allow-other, or with --trust all");
}

/// The precompiled header of torch 2.15 alone has 152 MB; with less than this the store would evict all the time.
Result<void> check_store_limit(const Settings& settings) {
  constexpr uint64_t kLeast = uint64_t{64} << 20;
  if (settings.store_limit >= kLeast) return {};
  const Error why(ErrorCode::kInvalid, "give at least 64M; use some G for precompiled headers");
  for (auto one = settings.given.rbegin(); one != settings.given.rend(); ++one) {
    const auto found = one->values.find("store-limit");
    if (found != one->values.end()) return fail(refused_value("store-limit", found->second.back(), one->where, why));
  }
  return fail(why);
}

/// Says whether somebody has told the mount which environment its jobs have.
bool declares_environment(const Settings& settings, const Environment& environment) {
  const bool has_variables = std::any_of(settings.given.begin(), settings.given.end(), [](const GivenValues& one) {
    return one.where != kOwnVariables && one.values.contains("environment");
  });
  return has_variables || !settings.python.empty() || !settings.fingerprint.empty() ||
         !environment("VIRTUAL_ENV").value_or("").empty();
}

Result<void> check_signing_key(const Settings& settings) {
  if (settings.signing_key.empty()) return {};
  const std::string why =
      settings.remote.empty() ? "a mount without --remote publishes nothing" : why_nothing_is_published(settings);
  if (why.empty()) return {};
  return fail(ErrorCode::kInvalid, "--signing-key " + settings.signing_key + ": there is nothing to sign: " + why +
                                       "; leave --signing-key out, or let it publish");
}

}  // namespace

/// torch looks for these in its default directory, whatever TORCHINDUCTOR_CACHE_DIR says: the precompiled header of the
/// C++ backend, and the caches of the family on_disk_cache. Not `cache` as a whole: what is shown is its user's alone,
/// while all users of a mount write timings there.
std::vector<Also> default_places(const std::string& torch) {
  std::vector<Also> places;
  for (const char* name : {"precompiled_headers", "cache/should_pad", "cache/inductor_on_disk_cache"}) {
    places.push_back({name, torch + "/" + name});
  }
  return places;
}

void give_default_places(Settings& settings, const User& owner) {
  const std::vector<Also> own = std::exchange(settings.default_also, {});
  if (own.empty()) return;
  const std::string torch = own.front().path.substr(0, own.front().path.size() - own.front().name.size() - 1);
  std::erase_if(settings.also, [&](const Also& also) { return std::find(own.begin(), own.end(), also) != own.end(); });
  add_default_also(settings, absolute_path("..", torch) + "/" + torch_directory_name(owner));
}

namespace {

tl::unexpected<Error> unknown(const char* what, const std::string& name, const std::string& option) {
  return fail(ErrorCode::kInvalid,
              "--owner " + option + ": this host has no " + what + " " + name + ": make it, or give its number");
}

}  // namespace

Result<Ownership> shown_ownership(const Settings& settings, Ownership covered) {
  covered.mode = settings.mode.value_or(covered.mode);
  if (settings.owner.empty()) return covered;
  std::string_view rest = settings.owner;
  const std::string user(take_part(rest, ':'));
  const std::string group(rest);
  const passwd* const record = ::getpwnam(user.c_str());
  const auto uid = record != nullptr ? std::optional(record->pw_uid) : number_in<uid_t>(user);
  if (!uid) return unknown("user", user, settings.owner);
  const passwd* const known = record != nullptr ? record : ::getpwuid(*uid);
  const struct group* const named = group.empty() ? nullptr : ::getgrnam(group.c_str());
  std::optional<gid_t> gid = named != nullptr ? std::optional(named->gr_gid) : number_in<gid_t>(group);
  if (group.empty() && known != nullptr) gid = known->pw_gid;
  if (!gid) return unknown("group", group.empty() ? "of the user " + user : group, settings.owner);
  covered.uid = *uid;
  covered.gid = *gid;
  return covered;
}

Result<void> complete(Settings& settings, const User& user, const Environment& environment) {
  if (settings.store.empty()) settings.store = default_store(settings.mountpoint, user, environment);
  if (settings.no_also) {
    settings.also.clear();
  } else {
    add_default_also(settings, torch_default_directory(user, environment));
  }
  if (!settings.allow_other) settings.allow_other = user.uid == 0;
  if (!settings.writers) {
    settings.writers = declares_environment(settings, environment) ? WritersPolicy::kMatching : WritersPolicy::kLearned;
  }
  if (!settings.trust) settings.trust = user.uid == 0 ? TrustPolicy::kUser : TrustPolicy::kAll;
  INDUCTORFS_TRY(check_trust(settings, user));
  INDUCTORFS_TRY(check_store_limit(settings));
  if (!settings.owner.empty() && user.uid != 0) {
    return fail(
        ErrorCode::kInvalid,
        "--owner " + settings.owner + ": a mount of an ordinary user is this user's: leave it out, or mount as root");
  }
  if (settings.require_remote && settings.remote.empty()) {
    return fail(ErrorCode::kInvalid,
                "--require-remote without --remote: give the URL of the server with --remote, or leave "
                "--require-remote out for a local mount");
  }
  if (settings.read_only && settings.remote.empty()) {
    return fail(ErrorCode::kInvalid,
                "--read-only without --remote: there is no cluster to read; give its URL with --remote, or leave "
                "--read-only out for a local mount");
  }
  if (!settings.password_file.empty() && settings.remote.empty()) {
    return fail(ErrorCode::kInvalid, "--password-file " + settings.password_file +
                                         " without --remote: give the URL of the server with --remote, or leave the "
                                         "password out for a local mount");
  }
  INDUCTORFS_TRY(check_signing_key(settings));
  if (settings.read_only && settings.compile_once.count() > 0) {
    return fail(ErrorCode::kInvalid,
                "--compile-once and --read-only exclude each other, as a lease is written to the remote: give one");
  }
  return check_places(settings);
}

}  // namespace inductorfs::config
