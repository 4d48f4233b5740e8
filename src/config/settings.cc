// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/config/settings.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <climits>
#include <cstdlib>
#include <limits>

#include "inductorfs/base/number.h"
#include "inductorfs/codec/entry.h"
#include "inductorfs/config/given.h"
#include "inductorfs/fingerprint/variables.h"

namespace inductorfs::config {
namespace {

using Kind = Option::Kind;

constexpr uint64_t kMostMilliseconds = 24ULL * 3600 * 1000;
constexpr uint64_t kMostSeconds = 24ULL * 3600;
constexpr uint64_t kMostThreads = 256;
constexpr uint64_t kMostCrashes = 64;
constexpr uint64_t kMostQueued = 10'000'000;
constexpr uint64_t kMostUserFiles = 1'000'000'000;
constexpr size_t kPrefixLimit = 64;
constexpr size_t kAlsoLimit = 64;

Result<uint64_t> parse_number(std::string_view text, uint64_t least, uint64_t most) {
  const std::optional<uint64_t> value = number_in<uint64_t>(text);
  if (!value || *value < least || *value > most) {
    return fail(ErrorCode::kInvalid,
                "give a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return *value;
}

Result<void> set_remote(Settings& settings, const std::string& value, const std::string&) {
  // An unset variable in a script must not silently turn a shared mount into a local one.
  if (value.empty()) return fail(ErrorCode::kInvalid, "give a URL, or leave it out for a local mount");
  settings.remote = value == "none" ? std::string() : value;
  return {};
}

Result<void> check_length(const std::string& value) {
  if (value.size() < PATH_MAX) return {};
  return fail(ErrorCode::kInvalid, "it is too long: at most " + std::to_string(PATH_MAX - 1) + " bytes");
}

template <std::string Settings::*Field>
Result<void> set_path(Settings& settings, const std::string& value, const std::string& base) {
  if (value.empty()) return fail(ErrorCode::kInvalid, "give a path");
  INDUCTORFS_TRY(check_length(value));
  settings.*Field = absolute_path(value, base);
  return {};
}

/// A program that is looked up in PATH, unless it is a path: the daemon works in another directory.
template <std::string Settings::*Field>
Result<void> set_program(Settings& settings, const std::string& value, const std::string& base) {
  if (value.empty()) return fail(ErrorCode::kInvalid, "give a program");
  INDUCTORFS_TRY(check_length(value));
  settings.*Field = value.find('/') == std::string::npos ? value : absolute_path(value, base);
  return {};
}

template <uint64_t Settings::*Field>
Result<void> set_size(Settings& settings, const std::string& value, const std::string&) {
  INDUCTORFS_TRY_ASSIGN(const auto size, parse_size(value));
  settings.*Field = size;
  return {};
}

template <Milliseconds Settings::*Field>
Result<void> set_milliseconds(Settings& settings, const std::string& value, const std::string&) {
  INDUCTORFS_TRY_ASSIGN(const auto number, parse_number(value, 1, kMostMilliseconds));
  settings.*Field = Milliseconds(static_cast<int64_t>(number));
  return {};
}

template <auto Settings::*Field>
Result<void> set_switch(Settings& settings, const std::string& value, const std::string&) {
  settings.*Field = value == "true";
  return {};
}

Result<void> set_writers(Settings& settings, const std::string& value, const std::string&) {
  for (const WritersPolicy policy :
       {WritersPolicy::kMatching, WritersPolicy::kLearned, WritersPolicy::kPod, WritersPolicy::kAll}) {
    if (value != to_string(policy)) continue;
    settings.writers = policy;
    return {};
  }
  return fail(ErrorCode::kInvalid, "give learned, matching, pod or all");
}

Result<void> set_trust(Settings& settings, const std::string& value, const std::string&) {
  INDUCTORFS_TRY_ASSIGN(settings.trust, fingerprint::trust_from_string(value));
  return {};
}

Result<void> add_variable(Settings& settings, const std::string& value, const std::string&) {
  const size_t equals = value.find('=');
  const std::string name = value.substr(0, std::min(equals, value.size()));
  if (equals == std::string::npos || name.empty()) return fail(ErrorCode::kInvalid, "give NAME=VALUE");
  if (fingerprint::find_variable(name) == nullptr) {
    std::string names;
    for (const fingerprint::Variable& variable : fingerprint::variables()) {
      names.append(names.empty() ? "" : ", ").append(variable.name);
    }
    return fail(ErrorCode::kInvalid, "unknown variable: give one of " + names);
  }
  if (std::any_of(value.begin(), value.end(), [](unsigned char c) { return c < ' '; })) {
    return fail(ErrorCode::kInvalid, "give a value without line breaks");
  }
  settings.environment[name] = value.substr(equals + 1);
  return {};
}

template <std::chrono::seconds Settings::*Field, uint64_t Least>
Result<void> set_seconds(Settings& settings, const std::string& value, const std::string&) {
  INDUCTORFS_TRY_ASSIGN(const auto number, parse_number(value, Least, kMostSeconds));
  settings.*Field = std::chrono::seconds(static_cast<int64_t>(number));
  return {};
}

Result<void> set_mode(Settings& settings, const std::string& value, const std::string&) {
  constexpr mode_t kMost = 03777;  // set-user-id means nothing here
  constexpr mode_t kOwners = 0700;
  const bool is_octal = !value.empty() && value.size() <= 5 && value.find_first_not_of("01234567") == std::string::npos;
  const unsigned long mode = is_octal ? std::strtoul(value.c_str(), nullptr, 8) : 0;
  if ((mode & kOwners) != kOwners || mode > kMost) {
    return fail(ErrorCode::kInvalid, "give an octal number with all rights for the owner, as \"1777\" or \"0750\"");
  }
  settings.mode = static_cast<mode_t>(mode);
  return {};
}

Result<void> set_owner(Settings& settings, const std::string& value, const std::string&) {
  const size_t colon = value.find(':');
  if (value.empty() || colon == 0 || colon + 1 == value.size())
    return fail(ErrorCode::kInvalid, "give USER or USER:GROUP");
  settings.owner = value;  // names are looked up once, by who mounts: a worker cannot
  return {};
}

template <uint64_t Settings::*Field, uint64_t Least, uint64_t Most>
Result<void> set_number(Settings& settings, const std::string& value, const std::string&) {
  INDUCTORFS_TRY_ASSIGN(settings.*Field, parse_number(value, Least, Most));
  return {};
}

void clear_also(Settings& settings) { settings.also.clear(); }
void clear_environment(Settings& settings) { settings.environment.clear(); }

Result<void> set_log_level(Settings& settings, const std::string& value, const std::string&) {
  const Result<log::Level> level = log::level_from_string(value);
  if (!level) return fail(ErrorCode::kInvalid, "give one of debug, info, warning, error");
  settings.log_level = *level;
  return {};
}

template <std::string Settings::*Field>
Result<void> set_name(Settings& settings, const std::string& value, const std::string&) {
  const bool plain = std::all_of(value.begin(), value.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  });
  if (value.empty() || value.size() > kPrefixLimit || !plain) {
    return fail(ErrorCode::kInvalid,
                "give 1 to " + std::to_string(kPrefixLimit) + " characters: letters, digits and -_.");
  }
  settings.*Field = value;
  return {};
}

Result<void> add_also(Settings& settings, const std::string& value, const std::string& base) {
  const size_t equals = value.find('=');
  const std::string name = value.substr(0, std::min(equals, value.size()));
  if (equals == std::string::npos || equals + 1 == value.size() || !codec::is_clean_path(name)) {
    return fail(ErrorCode::kInvalid, "give NAME=PATH, NAME relative to the mount and without \"..\"");
  }
  if (settings.also.size() >= kAlsoLimit) {
    return fail(ErrorCode::kTooLarge, "at most " + std::to_string(kAlsoLimit) + " places can be given");
  }
  settings.also.push_back({name, absolute_path(value.substr(equals + 1), base)});
  return {};
}

/// The digits of a number, and its unit, as help shows them.
template <uint64_t Number, char... Unit>
struct Digits {
  static constexpr size_t kCount = [] {
    size_t count = 1;
    for (uint64_t rest = Number; rest >= 10; rest /= 10) ++count;
    return count;
  }();
  static constexpr std::array<char, kCount + sizeof...(Unit)> kCharacters = [] {
    std::array<char, kCount + sizeof...(Unit)> characters{};
    uint64_t rest = Number;
    for (size_t i = kCount; i-- > 0; rest /= 10) characters[i] = static_cast<char>('0' + rest % 10);
    if constexpr (sizeof...(Unit) == 1) characters[kCount] = (Unit, ...);
    return characters;
  }();
};
template <uint64_t Number, char... Unit>
constexpr std::string_view kText{Digits<Number, Unit...>::kCharacters.data(),
                                 Digits<Number, Unit...>::kCharacters.size()};
/// As parse_size() takes it. Only for whole numbers of MiB.
template <uint64_t Bytes>
constexpr std::string_view kSizeText = Bytes % (1ULL << 30) == 0 ? kText<(Bytes >> 30), 'G'>
                                                                 : kText<(Bytes >> 20), 'M'>;

constexpr std::array kMountOptions{
    Option{"remote", Kind::kText, "URL", "",
           "share through this server (redis, rediss, unix, redis+sentinel, redis+cluster); none, or without it: the "
           "cache is local",
           set_remote},
    Option{"password-file", Kind::kText, "FILE", "", "read the password of the remote from FILE",
           set_path<&Settings::password_file>},
    Option{"ca-file", Kind::kText, "FILE", "the system's", "check a rediss:// server against the certificates in FILE",
           set_path<&Settings::ca_file>},
    Option{"cert-file", Kind::kText, "FILE", "", "present this client certificate to a rediss:// server",
           set_path<&Settings::cert_file>},
    Option{"key-file", Kind::kText, "FILE", "", "use this private key for the client certificate",
           set_path<&Settings::key_file>},
    Option{"signing-key", Kind::kText, "FILE", "",
           "sign what this mount publishes with the private key in FILE (inductorfs key generate)",
           set_path<&Settings::signing_key>},
    Option{"cluster-name", Kind::kText, "NAME", "the prefix",
           "name the cluster so in what is signed, on all its hosts; two clusters need two names",
           set_name<&Settings::cluster_name>},
    Option{"store", Kind::kText, "DIR", "by user and mountpoint",
           "keep blobs, catalog, private files and log in this local directory", set_path<&Settings::store>},
    Option{"foreground", Kind::kSwitch, "", "false", "stay in the foreground and log to standard error",
           set_switch<&Settings::foreground>},
    Option{"python", Kind::kText, "PATH", "that of VIRTUAL_ENV",
           "declare the environment of this Python interpreter, and share what fits its torch and Triton",
           set_program<&Settings::python>},
    Option{"fingerprint", Kind::kText, "FILE", "",
           "read the facts of this host from this JSON file instead of probing for them",
           set_path<&Settings::fingerprint>},
    Option{"writers", Kind::kText, "WHICH", "learned; matching where an environment is declared",
           "publish the artefacts of each process under its own environment, and show it what fits that (learned), "
           "only those of processes with the environment that is declared for this mount (matching), those of all "
           "processes of the one pod that uses this mount (pod), or those of all programs, copying tools too (all)",
           set_writers},
    Option{"trust", Kind::kText, "WHO", "for root user, else all",
           "share what lies in a user's directory with that user's directories on all hosts (user), with those of its "
           "group (group), or with all (all)",
           set_trust},
    Option{"environment", Kind::kList, "NAME=VALUE", "those variables of this command's own environment",
           "declare a variable that jobs set and that changes code but is part of no cache key (repeatable)",
           add_variable, clear_environment},
    Option{"probe-interval", Kind::kText, "S", kText<Settings::kProbeSeconds>,
           "check every S seconds whether the facts of this host have changed; 0 disables the check",
           set_seconds<&Settings::probe_interval, 0>},
    Option{"also", Kind::kList, "NAME=PATH", "what torch keeps in its default directory",
           "show the mount's directory NAME at PATH as well (repeatable)", add_also, clear_also},
    Option{"no-also", Kind::kSwitch, "", "false", "show the mount at no further place", set_switch<&Settings::no_also>},
    Option{"no-publish", Kind::kSwitch, "", "false", "keep what jobs write on this host; read from the remote as usual",
           set_switch<&Settings::no_publish>},
    Option{"read-only", Kind::kSwitch, "", "false",
           "never change anything in the remote, so that a user with rights to read is enough; jobs write on this host",
           set_switch<&Settings::read_only>},
    Option{"require-remote", Kind::kSwitch, "", "false",
           "fail where the remote does not answer, or refuses this mount; without it the mount serves what is on this "
           "host and tries again",
           set_switch<&Settings::require_remote>},
    Option{"log", Kind::kText, "FILE", "<store>/log", "write the log to FILE", set_path<&Settings::log>},
    Option{"log-level", Kind::kText, "LEVEL", "info", "log from this level on: debug, info, warning or error",
           set_log_level},
    Option{"store-limit", Kind::kText, "BYTES", kSizeText<defaults::kStoreBytes>,
           "keep at most BYTES of blobs on the local disk; sizes are written as 512M, 20G or 1.5 GiB (powers of 1024)",
           set_size<&Settings::store_limit>},
    Option{"store-floor", Kind::kText, "BYTES", "2 % of the disk, at most 1G",
           "leave at least BYTES free on the local disk; 0 disables the limit", set_size<&Settings::store_floor>},
    Option{"artefact-limit", Kind::kText, "BYTES", kSizeText<defaults::kLargestArtefact>,
           "keep artefacts larger than BYTES on this host", set_size<&Settings::artefact_limit>},
    Option{"user-bytes", Kind::kText, "BYTES", "half of the disk",
           "let no user but root have more than BYTES of private files on the local disk; 0 disables the limit",
           set_size<&Settings::user_bytes>},
    Option{"user-files", Kind::kText, "N", kText<defaults::kUserFiles>,
           "let no user but root have more than N files and directories on the local disk; 0 disables the limit",
           set_number<&Settings::user_files, 0, kMostUserFiles>},
    Option{"user-requests", Kind::kText, "N", "0",
           "let no user but root have more than N requests under way that take long; 0 disables the limit",
           set_number<&Settings::user_requests, 0, kMostThreads>},
    Option{"prefetch", Kind::kText, "BYTES", kSizeText<defaults::kPrefetchBytes>,
           "fetch at most BYTES in the background after the mount; 0 disables it", set_size<&Settings::prefetch>},
    Option{"queue-limit", Kind::kText, "N", kText<defaults::kQueuedGroups>,
           "let at most N groups of files wait to be published; beyond that, the oldest stays on this host",
           set_number<&Settings::queue_limit, 1, kMostQueued>},
    Option{"quiet-time", Kind::kText, "MS", kText<defaults::kQuietTime.count()>,
           "treat a file that is written in place as complete after MS milliseconds without a write",
           set_milliseconds<&Settings::quiet_time>},
    Option{"poll-interval", Kind::kText, "MS", kText<defaults::kPollInterval.count()>,
           "read the log of the cluster at most every MS milliseconds", set_milliseconds<&Settings::poll_interval>},
    Option{"lookup-patience", Kind::kText, "MS", kText<defaults::kLookupPatience.count()>,
           "treat a lookup as a miss after MS milliseconds without data from the remote",
           set_milliseconds<&Settings::lookup_patience>},
    Option{"compile-once", Kind::kText, "S", "0",
           "have processes that want the same graph wait up to S seconds for the one that compiles it; 0 disables it",
           set_seconds<&Settings::compile_once, 0>},
    Option{"cluster-winners", Kind::kSwitch, "", "false",
           "give this host's own tunings up where the cluster has others, which count from the next start on",
           set_switch<&Settings::cluster_winners>},
    Option{"prefix", Kind::kText, "TEXT", defaults::kPrefix, "begin every key in the remote with TEXT",
           set_name<&Settings::prefix>},
    Option{"threads", Kind::kText, "N", kText<Settings::kThreads>, "answer the kernel with N threads",
           set_number<&Settings::threads, 1, kMostThreads>},
    Option{"allow-other", Kind::kToggle, "", "for root yes, else no", "let other users use the mount",
           set_switch<&Settings::allow_other>},
    Option{"mode", Kind::kText, "MODE", "that of the directory",
           "show the mountpoint with these permissions, an octal number: 1777 for a mount of all users", set_mode},
    Option{"owner", Kind::kText, "USER[:GROUP]", "that of the directory",
           "show the mountpoint as this user's, by name or number; only as root", set_owner},
    Option{"start-timeout", Kind::kText, "S", kText<Settings::kStartSeconds>,
           "give up when the mount does not answer within S seconds", set_seconds<&Settings::start_timeout, 1>},
    Option{"hang-timeout", Kind::kText, "S", kText<Settings::kHangSeconds>,
           "replace the process that serves the mount after S seconds without a sign of life; 0 disables it",
           set_seconds<&Settings::hang_timeout, 0>},
    Option{"crash-limit", Kind::kText, "N", kText<Settings::kCrashes>,
           "turn the remote off (safe mode) after N crashes within a minute; 0 disables it",
           set_number<&Settings::crash_limit, 0, kMostCrashes>},
};

/// Of a unit as people write it: "", "B", "g", " GiB", "gb".
std::optional<unsigned> shift_of_unit(std::string_view unit) {
  constexpr std::string_view kLetters = "KMGT";
  if (unit.size() > 1 && unit.front() == ' ') unit.remove_prefix(1);
  std::string upper(unit);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const size_t letter = upper.empty() ? std::string_view::npos : kLetters.find(upper.front());
  const std::string rest = letter == std::string_view::npos ? upper : upper.substr(1);
  if (rest.empty() || rest == "B") return letter == std::string_view::npos ? 0 : 10 * (letter + 1);
  if (rest == "IB" && letter != std::string_view::npos) return 10 * (letter + 1);
  return std::nullopt;
}

}  // namespace

std::span<const Option> mount_options() { return kMountOptions; }

const Option* find_option(std::string_view name) {
  const auto* const at = std::ranges::find(kMountOptions, name, &Option::name);
  return at == kMountOptions.end() ? nullptr : at;
}

std::string_view to_string(WritersPolicy policy) {
  switch (policy) {
    case WritersPolicy::kMatching:
      return "matching";
    case WritersPolicy::kLearned:
      return "learned";
    case WritersPolicy::kPod:
      return "pod";
    case WritersPolicy::kAll:
      return "all";
  }
  return {};
}

Result<uint64_t> parse_size(std::string_view text) {
  constexpr size_t kMostDecimals = 6;
  const auto bad = [] {
    return fail(ErrorCode::kInvalid,
                "give a number of bytes, as 512M, 20G or 1.5 GiB: K, M, G and T are powers of 1024");
  };
  const std::string_view number = text.substr(0, text.find_first_not_of("0123456789."));
  const std::optional<unsigned> shift = shift_of_unit(text.substr(number.size()));
  const size_t point = std::min(number.find('.'), number.size());
  const std::optional<uint64_t> whole = number_in<uint64_t>(number.substr(0, point));
  if (!shift || !whole || *whole > (static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) >> *shift)) return bad();
  if (point == number.size()) return *whole << *shift;
  const std::string_view decimals = number.substr(point + 1);
  const std::optional<uint64_t> part = number_in<uint64_t>(decimals);
  if (*shift == 0 || !part || decimals.size() > kMostDecimals) return bad();
  uint64_t divisor = 1;
  for (size_t i = 0; i < decimals.size(); ++i) divisor *= 10;
  return (*whole << *shift) + (*part << *shift) / divisor;
}

Result<void> apply(const RawValues& values, const std::string& where, const std::string& base, Settings& settings) {
  overrule(values, settings);
  for (const auto& [name, given] : values) {
    const Option* option = find_option(name);
    if (option == nullptr) return fail(ErrorCode::kInvalid, "unknown option: " + name + " (" + where + ")");
    if (option->clear != nullptr) option->clear(settings);
    for (const std::string& value : given) {
      const Result<void> done = option->set(settings, value, base);
      if (!done) return fail(refused_value(name, value, where, done.error()));
    }
  }
  return {};
}

}  // namespace inductorfs::config
