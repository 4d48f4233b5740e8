// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "inductorfs/base/message.h"
#include "inductorfs/control/control.h"
#include "inductorfs/control/socket.h"

namespace inductorfs::control {
namespace {

constexpr Milliseconds kTurn{10};

/// While others crowd before the socket, this one comes again.
Result<Fd> connect_in_turn(const std::string& path, Deadline deadline) {
  Result<Fd> fd = connect_to(path);
  while (!fd && fd.error().code() == ErrorCode::kBusy && !deadline.passed()) {
    (void)wait_for(-1, 0, deadline.earlier(kTurn));
    fd = connect_to(path);
  }
  return fd;
}

/// The server hangs up on a longer one, without a word.
Result<void> check_size(std::string_view request) {
  if (request.size() <= kRequestLimit) return {};
  return fail(ErrorCode::kInvalid, "what is asked of the daemon is too long: " + std::to_string(request.size()) +
                                       " bytes: at most " + std::to_string(kRequestLimit) +
                                       "; give shorter or fewer words");
}

Result<std::string> converse(int fd, std::string_view request, Deadline deadline) {
  const Result<void> sent = send_line(fd, request, deadline);
  Result<std::string> answer = receive_line(fd, kAnswerLimit, deadline);
  // Who is turned away has the reason, also when the connection was closed before the request was sent.
  if (!sent && !answer) return fail(sent.error());
  return answer;
}

}  // namespace

Result<std::string> ask(const std::string& path, std::string_view request, Deadline deadline) {
  INDUCTORFS_TRY(check_size(request));
  INDUCTORFS_TRY_ASSIGN(const auto fd, connect_in_turn(path, deadline));
  return converse(fd.get(), request, deadline);
}

namespace {

/// Of nobody else the daemon takes a descriptor; it says what it thinks of the request without.
bool is_own(const std::string& path) {
  struct stat status {};
  return ::geteuid() == 0 || (::stat(path.c_str(), &status) == 0 && status.st_uid == ::geteuid());
}

}  // namespace

Result<std::string> ask_and_await_end(const std::string& path, std::string_view request, Deadline deadline,
                                      const std::function<bool(pid_t daemon)>& on_silence, int descriptor) {
  INDUCTORFS_TRY(check_size(request));
  INDUCTORFS_TRY_ASSIGN(const auto fd, connect_in_turn(path, deadline));
  // With the first byte, for which there is room in a fresh socket.
  const size_t first = descriptor < 0 || !is_own(path) ? 0 : 1;
  if (first != 0 && !send_message(fd.get(), request.substr(0, first), std::array{descriptor})) {
    return fail_errno("send to the control socket");
  }
  const Result<void> sent = send_line(fd.get(), request.substr(first), deadline);
  Result<std::string> said =
      await_end(fd.get(), deadline, kSilence, [&] { return !on_silence || on_silence(peer_of(fd.get())); });
  if (!said) return said;
  while (said->ends_with('\n')) said->pop_back();
  if (said->empty()) return sent ? fail(ErrorCode::kUnavailable, "the daemon has gone") : fail(sent.error());
  return said->substr(said->rfind('\n') + 1);
}

bool is_listening(const std::string& path) {
  const Result<Fd> fd = connect_to(path);
  return fd.has_value() || fd.error().code() == ErrorCode::kBusy;
}

bool is_served(const std::string& path) {
  constexpr Milliseconds kPatience{2000};
  const Result<std::string> answer = ask(path, "", Deadline::after(kPatience));
  return answer || answer.error().code() == ErrorCode::kTimedOut || answer.error().code() == ErrorCode::kBusy;
}

}  // namespace inductorfs::control
