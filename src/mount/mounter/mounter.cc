// SPDX-License-Identifier: Apache-2.0
#include "mount/mounter/mounter.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "inductorfs/base/log_lines.h"
#include "inductorfs/base/message.h"
#include "inductorfs/config/error_json.h"
#include "inductorfs/config/json.h"

namespace inductorfs::mount {

using config::Json;

namespace {

/// A mounter that has not even taken a word then stands still.
constexpr Milliseconds kSilence{2000};
/// Between two tries, while another mounter is being started.
constexpr Milliseconds kAgain{50};
/// How soon a question is given up that nobody waits for any more.
constexpr Milliseconds kTurn{100};
/// A child that ends so often without a word does so because of what it is to mount.
constexpr int kMostTries = 3;
/// Asking who uses a mount takes a second on a host with many processes.
constexpr Milliseconds kUnmountPatience{8'000};
constexpr Milliseconds kLeavePatience{10'000};
/// Somebody else's daemon at the socket has two seconds to answer.
constexpr Milliseconds kListenPatience{10'000};
constexpr Milliseconds kUnlistenPatience{2'000};
constexpr Milliseconds kMakeLogPatience{5'000};
constexpr Milliseconds kShowToPatience{5'000};

Error not_answered(ErrorCode code, const std::string& why) {
  return Error(code, "the process of this mount that mounts and unmounts has not done so: " + why);
}

Error no_answer() { return not_answered(ErrorCode::kInternal, "its answer is none"); }

/// A line for the log. False: it is none.
bool take_line(const Json& json) {
  const auto level = json.find("level");
  const auto line = json.find("line");
  const bool whole = level != json.end() && level->is_number_unsigned() && line != json.end() && line->is_string();
  if (!whole || level->get<uint64_t>() > static_cast<uint64_t>(log::Level::kError)) return false;
  log::write_given(static_cast<log::Level>(level->get<uint64_t>()), line->get<std::string>());
  return true;
}

std::optional<Mounter::Mounted> mounted_from(const Json& json, Fd device) {
  const auto id = json.find("mount");
  const auto number = json.find("device");
  const auto dead = json.find("leaves_dead");
  const bool whole = id != json.end() && id->is_number_unsigned() && number != json.end() && number->is_string() &&
                     dead != json.end() && dead->is_boolean();
  if (!whole || !device) return std::nullopt;
  return Mounter::Mounted{std::move(device), {id->get<uint64_t>(), number->get<std::string>()}, dead->get<bool>()};
}

}  // namespace

Mounter::Mounter(int socket, std::function<void()> stands_still) : link_(socket, std::move(stands_still)) {}

Result<Mounter::Session> Mounter::begin(const char* word) const {
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return fail_errno("socketpair");
  Session session{{}, Fd(ends[0])};
  const Fd theirs(ends[1]);
  INDUCTORFS_TRY_ASSIGN(session.connection, link_.begin(word, {}, theirs.get()));
  return session;
}

/// Says whether the mounter has taken the word; false when it has ended, or does not do so in time.
bool Mounter::is_taken(const Fd& connection, Deadline deadline) const {
  Deadline silence = Deadline::after(kSilence);
  while (!deadline.passed()) {
    pollfd item{connection.get(), POLLIN, 0};
    (void)::poll(&item, 1, static_cast<int>(std::min(deadline.left(), silence.left()).count()));
    char byte = 0;
    if (item.revents != 0) return ::recv(connection.get(), &byte, 1, MSG_DONTWAIT) == 1;
    if (!silence.passed()) continue;  // an interruption is a turn, too
    link_.stands_still();
    silence = Deadline::after(kSilence);
  }
  return false;
}

/// Returns what the child answers, after what it says of places and for the log. A child that has ended is
/// kUnavailable.
Result<Json> Mounter::hear(Deadline deadline, Fd& device) {
  std::string room(kMessageLimit, '\0');
  heard_.clear();
  while (true) {
    pollfd item{session_.child.get(), POLLIN, 0};
    (void)::poll(&item, 1, static_cast<int>(deadline.left().count()));  // an interruption is a turn, too
    const ReceivedMessage received = receive_message(session_.child.get(), room, {&device, 1}, MSG_DONTWAIT);
    if (received.is_end) return fail(not_answered(ErrorCode::kUnavailable, "it has ended; see the log"));
    if (received.size < 0) {
      if (errno != EAGAIN && errno != EINTR) return fail_errno("receive from the mounter");
      if (deadline.passed()) return fail(not_answered(ErrorCode::kTimedOut, "no answer came in time"));
      continue;
    }
    const auto size = static_cast<size_t>(received.size);
    Json json = received.whole ? Json::from_cbor(std::string_view(room).substr(0, size), true, false) : Json();
    if (!json.is_object()) return fail(no_answer());
    if (auto error = config::error_from_json(json)) return fail(std::move(*error));
    if (take_line(json)) continue;
    const auto place = json.find("place");
    if (place == json.end()) return json;
    if (!place->is_string()) return fail(no_answer());
    heard_.push_back(place->get<std::string>());
  }
}

Result<Mounter::Mounted> Mounter::mount(Deadline deadline) {
  for (int tries = 0; tries < kMostTries && !deadline.passed();) {
    Fd device;
    close();
    if (auto session = begin(kMount)) session_ = std::move(*session);
    if (session_.child && is_taken(session_.connection, deadline)) {
      auto json = hear(deadline, device);
      if (!json && json.error().code() != ErrorCode::kUnavailable) return fail(std::move(json).error());
      if (json) {
        auto mounted = mounted_from(*json, std::move(device));
        return mounted ? Result<Mounted>(std::move(*mounted)) : fail(no_answer());
      }
      ++tries;
    }
    (void)::poll(nullptr, 0, static_cast<int>(std::min(kAgain, deadline.left()).count()));
  }
  if (deadline.passed()) return fail(not_answered(ErrorCode::kTimedOut, "no answer came in time"));
  return fail(not_answered(ErrorCode::kUnavailable, "it ended without an answer; see the log"));
}

void Mounter::close() { session_ = {}; }

Result<Json> Mounter::ask_child(const char* word, Deadline deadline) {
  Fd none;
  if (session_.child && send_message(session_.child.get(), word, {}, MSG_DONTWAIT)) return hear(deadline, none);
  return fail(not_answered(ErrorCode::kUnavailable, "it has ended; see the log"));
}

Result<std::vector<std::string>> Mounter::show(Deadline deadline) {
  INDUCTORFS_TRY(ask_child(kShow, deadline));
  return std::move(heard_);
}

Result<std::string> Mounter::uncover(Deadline deadline) {
  INDUCTORFS_TRY_ASSIGN(const auto json, ask_child(kUncover, deadline));
  const auto text = json.find("left_over");
  if (text == json.end() || !text->is_string()) return fail(no_answer());
  return text->get<std::string>();
}

Result<Json> Mounter::ask(const char* word, const std::string& request, Milliseconds patience,
                          const std::function<bool()>& cancelled) const {
  const auto answer = link_.ask(word, request, Deadline::after(patience), -1, 0, cancelled);
  if (!answer) {
    const bool is_late = answer.error().code() == ErrorCode::kTimedOut;
    return fail(not_answered(
        answer.error().code(),
        is_late ? "no answer came in time: try again, or end the mount's processes and run `inductorfs unmount --lazy`"
                : "see the log"));
  }
  Json json = config::from_text(*answer);
  if (!json.is_object()) return fail(no_answer());
  if (const auto lines = json.find("log"); lines != json.end() && lines->is_array()) {
    for (const Json& line : *lines) (void)take_line(line);
  }
  auto error = config::error_from_json(json);
  return error ? fail(std::move(*error)) : Result<Json>(std::move(json));
}

Result<void> Mounter::unmount(bool lazy) const {
  INDUCTORFS_TRY(ask(kUnmount, lazy ? kLazily : kUnlessBusy, kUnmountPatience));
  return {};
}

Result<void> Mounter::leave() const {
  INDUCTORFS_TRY(ask(kLeave, {}, kLeavePatience));
  return {};
}

Result<std::vector<std::string>> Mounter::show_to(std::optional<uid_t> user,
                                                  const std::function<bool()>& cancelled) const {
  INDUCTORFS_TRY_ASSIGN(const Json json,
                        ask(kShowTo, user ? std::to_string(*user) : std::string(), kShowToPatience, cancelled));
  std::vector<std::string> failed;
  for (const Json& line : json.value("failed", Json::array())) {
    if (line.is_string()) failed.push_back(line.get<std::string>());
  }
  return failed;
}

Result<void> Mounter::drop_removed(const std::function<bool()>& cancelled) const {
  INDUCTORFS_TRY(ask(kDropRemoved, {}, kShowToPatience, cancelled));
  return {};
}

Result<Fd> Mounter::ask_for_descriptor(const char* word, Deadline deadline,
                                       const std::function<bool()>& cancelled) const {
  const auto is_over = [&] { return deadline.passed() || (cancelled && cancelled()); };
  while (!is_over()) {
    const auto session = begin(word);
    if (session && is_taken(session->connection, deadline)) {
      pollfd item{session->child.get(), POLLIN, 0};
      do {
        (void)::poll(&item, 1, static_cast<int>(std::min(kTurn, deadline.left()).count()));
      } while (item.revents == 0 && !is_over());
      std::string room(kMessageLimit, '\0');
      Fd descriptor;
      const ReceivedMessage received = receive_message(session->child.get(), room, {&descriptor, 1}, MSG_DONTWAIT);
      if (received.size > 0) {
        const auto size = static_cast<size_t>(received.size);
        const Json json =
            received.whole ? Json::from_cbor(std::string_view(room).substr(0, size), true, false) : Json();
        if (auto error = json.is_object() ? config::error_from_json(json) : no_answer()) return fail(std::move(*error));
        return descriptor ? Result<Fd>(std::move(descriptor)) : fail(no_answer());
      }
    }
    (void)::poll(nullptr, 0, static_cast<int>(std::min(kAgain, deadline.left()).count()));  // another one is started
  }
  if (!deadline.passed()) return fail(ErrorCode::kBusy, "cancelled");
  return fail(ErrorCode::kTimedOut,
              "no answer came in time of the mount's process that does this: " + std::string(word));
}

Result<Fd> Mounter::listen() const { return ask_for_descriptor(kListen, Deadline::after(kListenPatience)); }

Result<Fd> Mounter::listen_for_guests() const {
  return ask_for_descriptor(kListenForGuests, Deadline::after(kListenPatience));
}

bool Mounter::has_no_listener() const {
  const Result<Json> listens = ask(kListens, {}, kListenPatience);
  return !listens && listens.error().code() == ErrorCode::kNotFound;
}

Result<Fd> Mounter::open_log() const { return ask_for_descriptor(kMakeLog, Deadline::after(kMakeLogPatience)); }

Result<Fd> Mounter::connect(Deadline deadline, const std::function<bool()>& cancelled) const {
  return ask_for_descriptor(kConnect, deadline, cancelled);
}

void Mounter::unlisten() const { (void)link_.ask(kUnlisten, {}, Deadline::after(kUnlistenPatience)); }

}  // namespace inductorfs::mount
