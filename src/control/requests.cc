// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/control/requests.h"

#include <algorithm>
#include <optional>

#include "inductorfs/base/encoding.h"
#include "inductorfs/config/json.h"

namespace inductorfs::control {

using config::Json;
using config::to_line;

namespace {

constexpr int64_t kMostSync = 24LL * 3600 * 1000;
/// A slice is short, so that a client shows how far it is.
constexpr int64_t kMostWarmSlice = 5000;

Answer refuse(ErrorCode code, const std::string& why) {
  return {to_line({{"ok", false}, {"code", to_string(code)}, {"error", why}}), false};
}

Answer refuse(const Error& error) {
  return refuse(error.code(), error.what().empty() ? std::string(to_string(error.code())) : error.what());
}

Answer succeed(const std::string& result) { return {R"({"ok":true,"result":)" + result + "}", false}; }

Answer outcome(const Result<void>& done) { return done ? succeed("{}") : refuse(done.error()); }

std::optional<ErrorCode> code_from(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(ErrorCode::kInternal); ++i) {
    if (to_string(static_cast<ErrorCode>(i)) == name) return static_cast<ErrorCode>(i);
  }
  return std::nullopt;
}

/// The member, or the fallback when it is absent or of another type.
template <typename T>
T member(const Json& object, const char* name, T fallback) {
  const auto at = object.find(name);
  if (at == object.end()) return fallback;
  if constexpr (std::is_same_v<T, std::string>) {
    return at->is_string() ? at->template get<T>() : fallback;
  } else if constexpr (std::is_same_v<T, bool>) {
    return at->is_boolean() ? at->template get<T>() : fallback;
  } else {
    return at->is_number_integer() ? at->template get<T>() : fallback;
  }
}

Answer explain(MountControl& mount, const Json& request, const Peer* guest) {
  const std::optional<std::string> path = from_hex(member<std::string>(request, "path", "?"));
  if (!path) return refuse(ErrorCode::kInvalid, "explain needs a path in hexadecimal");
  const auto explained = mount.explain(*path, guest);
  return explained ? succeed(*explained) : refuse(explained.error());
}

Answer upgrade(MountControl& mount, const Json& request, const Peer& peer) {
  const std::optional<std::string> program = from_hex(member<std::string>(request, "program", "?"));
  if (!program) return refuse(ErrorCode::kInvalid, "upgrade needs a program in hexadecimal");
  if (!peer.descriptor)
    return refuse(ErrorCode::kInvalid,
                  "upgrade needs a descriptor of the program: run the inductorfs of this mount's version, or unmount "
                  "it and mount again");
  const Result<std::string> done = mount.upgrade(*program, *peer.descriptor);
  if (!done) return refuse(done.error());
  Answer answer = succeed(*done);
  answer.hold_until_exit = true;
  return answer;
}

Answer warm(MountControl& mount, const Json& request, const Peer& peer) {
  WarmSelection selection;
  const std::optional<std::string> pattern = from_hex(member<std::string>(request, "pattern", ""));
  if (!pattern) return refuse(ErrorCode::kInvalid, "warm needs a pattern in hexadecimal");
  selection.pattern = *pattern;
  selection.family = member<std::string>(request, "family", "");
  selection.scope = member<std::string>(request, "scope", "");
  if (const auto limit = request.find("limit"); limit != request.end()) {
    if (!limit->is_number_unsigned())
      return refuse(ErrorCode::kInvalid, "warm needs a limit that is a number of bytes");
    selection.limit = limit->get<uint64_t>();
  }
  const int64_t slice = std::clamp<int64_t>(member<int64_t>(request, "slice_ms", 0), 0, kMostWarmSlice);
  const Result<std::string> done = mount.warm(selection, Milliseconds(slice), peer.gone);
  return done ? succeed(*done) : refuse(done.error());
}

bool is_order(const std::string& operation) {
  return operation == "freeze" || operation == "lift" || operation == "purge";
}

Answer ask_cluster(MountControl& mount, const Json& request, const Peer& peer) {
  const Result<std::string> done = mount.ask_cluster(to_line(request), peer.gone);
  return done ? succeed(*done) : refuse(done.error());
}

Answer change(MountControl& mount, const std::string& operation, const Json& request, const Peer& peer) {
  if (operation == "sync") {
    const int64_t timeout = std::clamp<int64_t>(member<int64_t>(request, "timeout_ms", 0), 0, kMostSync);
    const Result<std::string> done = mount.sync(Deadline::after(Milliseconds(timeout)), peer.gone);
    return done ? succeed(*done) : refuse(done.error());
  }
  if (operation == "upgrade") return upgrade(mount, request, peer);
  if (operation == "warm") return warm(mount, request, peer);
  if (is_order(operation)) return ask_cluster(mount, request, peer);
  Answer answer = outcome(mount.unmount(member<bool>(request, "lazy", false)));
  answer.hold_until_exit = answer.line.find(R"("ok":true)") != std::string::npos;
  return answer;
}

}  // namespace

Answer answer_request(MountControl& mount, std::string_view request, const Peer& peer, uid_t owner) {
  const Json parsed = config::from_text(request);
  if (!parsed.is_object()) return refuse(ErrorCode::kInvalid, "the request is no JSON object");
  const std::string operation = member<std::string>(parsed, "op", "");
  const bool is_owner = peer.uid == 0 || peer.uid == owner;
  const Peer* const guest = is_owner ? nullptr : &peer;
  if (operation == "status") return succeed(mount.status(guest));
  if (operation == "where") return succeed(mount.where());
  if (operation == "explain") return explain(mount, parsed, guest);
  if (operation == "places") {
    const auto shown = mount.show_to(peer.uid, peer.gone);
    return shown ? succeed(*shown) : refuse(shown.error());
  }
  if (operation == "nodes") return ask_cluster(mount, parsed, peer);
  const std::optional<uid_t> seen = is_owner ? std::nullopt : std::optional(peer.uid);
  if (operation == "stats") return succeed(mount.stats(seen));
  if (operation == "jobs") return succeed(mount.jobs(seen));
  if (operation == "misses") {
    const auto job = member<int64_t>(parsed, "job", 0);
    return succeed(mount.misses(static_cast<uint64_t>(std::max<int64_t>(job, 0)), seen));
  }
  constexpr std::string_view kChanges[] = {"sync", "unmount", "upgrade", "warm"};
  const bool is_change = std::find(std::begin(kChanges), std::end(kChanges), operation) != std::end(kChanges);
  if (!is_change && !is_order(operation)) {
    return refuse(ErrorCode::kNotSupported, "this daemon does not know the request: use its own version of inductorfs");
  }
  if (!is_owner) {
    return refuse(ErrorCode::kNotPermitted, operation + " is for root and the user who mounted: uid " +
                                                std::to_string(peer.uid) +
                                                " is neither; \"inductorfs stats\" and \"status\" answer everybody");
  }
  return change(mount, operation, parsed, peer);
}

std::string refuse_crowd() {
  return refuse(ErrorCode::kBusy, "too many requests are under way at this mount: wait until they have ended").line;
}

std::string refuse_end(const std::string& why) {
  return refuse(ErrorCode::kTimedOut, "the mount is gone, and its daemon has ended without waiting any longer: " + why +
                                          "; what is not published yet is published after the next mount")
      .line;
}

std::string status_request() { return to_line({{"op", "status"}}); }
std::string where_request() { return to_line({{"op", "where"}}); }
std::string places_request() { return to_line({{"op", "places"}}); }
std::string explain_request(std::string_view path) { return to_line({{"op", "explain"}, {"path", to_hex(path)}}); }
std::string stats_request() { return to_line({{"op", "stats"}}); }
std::string jobs_request() { return to_line({{"op", "jobs"}}); }
std::string misses_request(uint64_t job) { return to_line({{"op", "misses"}, {"job", job}}); }
std::string sync_request(Milliseconds timeout) { return to_line({{"op", "sync"}, {"timeout_ms", timeout.count()}}); }
std::string upgrade_request(std::string_view program) {
  return to_line({{"op", "upgrade"}, {"program", to_hex(program)}});
}
std::string warm_request(const WarmSelection& selection, Milliseconds slice) {
  return to_line({{"op", "warm"},
                  {"pattern", to_hex(selection.pattern)},
                  {"family", selection.family},
                  {"scope", selection.scope},
                  {"limit", selection.limit},
                  {"slice_ms", slice.count()}});
}
std::string unmount_request(bool lazy) { return to_line({{"op", "unmount"}, {"lazy", lazy}}); }

Result<std::string> parse_answer(std::string_view answer) {
  const Json parsed = config::from_text(answer);
  if (!parsed.is_object()) return fail(ErrorCode::kCorrupt, "the daemon's answer is no JSON object");
  if (member<bool>(parsed, "ok", false)) return to_line(parsed.value("result", Json::object()));
  const ErrorCode code = code_from(member<std::string>(parsed, "code", "")).value_or(ErrorCode::kInternal);
  return fail(code, member<std::string>(parsed, "error", "the daemon gave no reason"));
}

bool is_of_no_worker(std::string_view answer) {
  const Json parsed = config::from_text(answer);
  return parsed.is_object() && member<bool>(parsed, "no_worker", false);
}

pid_t held_worker(std::string_view answer) {
  const Json parsed = config::from_text(answer);
  return parsed.is_object() ? member<pid_t>(parsed, "held", 0) : 0;
}

}  // namespace inductorfs::control
