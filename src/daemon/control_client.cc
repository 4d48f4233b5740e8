// SPDX-License-Identifier: Apache-2.0
#include "control.h"
#include "socket.h"

namespace inductorfs::daemon {
namespace {

Result<std::string> converse(int fd, std::string_view request, Deadline deadline) {
  INDUCTORFS_TRY(send_line(fd, request, deadline));
  return receive_line(fd, kAnswerLimit, deadline);
}

}  // namespace

Result<std::string> ask(const std::string& path, std::string_view request, Deadline deadline) {
  const Result<Fd> fd = connect_to(path);
  if (!fd) return fail(fd.error());
  return converse(fd->get(), request, deadline);
}

Result<std::string> ask_and_await_end(const std::string& path, std::string_view request, Deadline deadline) {
  const Result<Fd> fd = connect_to(path);
  if (!fd) return fail(fd.error());
  Result<std::string> answer = converse(fd->get(), request, deadline);
  if (answer) INDUCTORFS_TRY(await_end(fd->get(), deadline));
  return answer;
}

bool is_listening(const std::string& path) {
  const Result<Fd> fd = connect_to(path);
  return fd.has_value() || fd.error().code() == ErrorCode::kBusy;
}

}  // namespace inductorfs::daemon
