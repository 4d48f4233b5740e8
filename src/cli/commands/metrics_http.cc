// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/metrics_http.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <optional>

#include "inductorfs/base/text.h"
#include "inductorfs/control/socket.h"

namespace inductorfs::cli {
namespace {

/// After poll(2) has found room in a pipe, a write of this size does not block.
constexpr size_t kPipeRoom = 4096;
/// What a client may send after its request until we close; a close with unread bytes would take the answer from it.
constexpr size_t kTrailLimit = 65'536;
constexpr Milliseconds kTrailPatience{1'000};

std::string lower(std::string_view text) {
  std::string made(text);
  std::transform(made.begin(), made.end(), made.begin(), [](unsigned char c) { return std::tolower(c); });
  return made;
}

/// How an answer that is not 200 begins, and what it says to a person.
struct Refusal {
  int status;
  std::string_view reason;
  std::string_view advice;
};
constexpr std::array kRefusals{
    Refusal{404, "Not Found", "the figures are at /metrics\n"},
    Refusal{405, "Method Not Allowed", "only GET is answered\n"},
    Refusal{408, "Request Timeout", "the request did not come in time\n"},
    Refusal{431, "Request Header Fields Too Large", "the request is too long\n"},
    Refusal{505, "HTTP Version Not Supported", "only HTTP/1.0 and HTTP/1.1 are answered\n"},
    Refusal{400, "Bad Request", "this is no HTTP request\n"},
};

/// Whether the target of a request, a path or a URL, is /metrics.
bool is_metrics(std::string_view target) {
  constexpr std::string_view kScheme = "http://";
  if (lower(target.substr(0, kScheme.size())) == kScheme) {
    target.remove_prefix(kScheme.size());
    target.remove_prefix(std::min(target.find('/'), target.size()));
  }
  return target.substr(0, target.find('?')) == "/metrics";
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isupper(c) != 0; });
}

/// Of the request's line. Sets `host_needed` for HTTP/1.1.
int parse_line(std::string_view line, bool& host_needed) {
  const std::string_view method = take_part(line, ' ');
  const std::string_view target = take_part(line, ' ');
  const std::string_view version = line;
  if (!is_token(method) || target.empty() || !version.starts_with("HTTP/")) return 400;
  if (!version.starts_with("HTTP/1.")) return 505;
  if (version != "HTTP/1.0" && version != "HTTP/1.1") return 400;
  host_needed = version == "HTTP/1.1";
  if (method != "GET") return 405;
  return is_metrics(target) ? 200 : 404;
}

/// Where the headers of a request end, if they do.
std::optional<size_t> end_of_head(std::string_view text) {
  const size_t end = std::min(text.find("\r\n\r\n"), text.find("\n\n"));
  return end == std::string_view::npos ? std::nullopt : std::optional(end);
}

/// Reads what there is. Nothing: the end, or an error.
std::string read_some(int fd, size_t limit, Deadline deadline) {
  std::array<char, 4096> bytes{};
  while (control::wait_for(fd, POLLIN, deadline)) {
    const ssize_t got = ::read(fd, bytes.data(), std::min(limit, bytes.size()));
    if (got >= 0) return {bytes.data(), static_cast<size_t>(got)};
    if (errno != EINTR && errno != EAGAIN) break;
  }
  return {};
}

/// Returns the status of the answer. Empty when the client has gone.
std::optional<int> receive_scrape(int fd) {
  const Deadline deadline = Deadline::after(kHttpRequestPatience);
  std::string head;
  while (head.size() < kHttpHeadLimit) {
    const std::string more = read_some(fd, kHttpHeadLimit - head.size(), deadline);
    if (more.empty()) return deadline.passed() ? std::optional(408) : std::nullopt;
    head += more;
    if (const auto end = end_of_head(head)) return status_of_scrape(std::string_view(head).substr(0, *end));
  }
  return 431;
}

bool is_socket(int fd) {
  int type = 0;
  socklen_t size = sizeof(type);
  return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
}

/// Best effort: a client that does not take the answer goes without it.
void send_answer(int fd, std::string_view answer) {
  const Deadline deadline = Deadline::after(kHttpAnswerPatience);
  const bool socket = is_socket(fd);
  while (!answer.empty() && control::wait_for(fd, POLLOUT, deadline)) {
    const ssize_t sent = socket ? ::send(fd, answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL)
                                : ::write(fd, answer.data(), std::min(answer.size(), kPipeRoom));
    if (sent < 0 && errno != EINTR && errno != EAGAIN) return;
    if (sent > 0) answer.remove_prefix(static_cast<size_t>(sent));
  }
  if (!socket || ::shutdown(fd, SHUT_WR) != 0) return;
  const Deadline end = Deadline::after(kTrailPatience);
  for (size_t read = 0; read < kTrailLimit;) {
    const std::string trail = read_some(fd, kTrailLimit, end);
    if (trail.empty()) return;
    read += trail.size();
  }
}

}  // namespace

int status_of_scrape(std::string_view head) {
  bool host_needed = false;
  std::string_view line = take_part(head, '\n');
  if (line.ends_with('\r')) line.remove_suffix(1);
  const int status = parse_line(line, host_needed);
  while (!head.empty()) {
    std::string_view value = take_part(head, '\n');
    if (lower(take_part(value, ':')) == "host") host_needed = false;
  }
  return status == 200 && host_needed ? 400 : status;
}

std::string scrape_answer(int status, std::string_view figures) {
  const auto refusal = std::ranges::find(kRefusals, status, &Refusal::status);
  const bool good = refusal == kRefusals.end();
  const std::string_view body = good ? figures : refusal->advice;
  std::string answer = "HTTP/1.1 " + std::to_string(status) + " ";
  answer.append(good ? "OK" : refusal->reason).append("\r\nContent-Type: text/plain; ");
  answer.append(good ? "version=0.0.4; " : "").append("charset=utf-8\r\nContent-Length: ");
  answer.append(std::to_string(body.size())).append(status == 405 ? "\r\nAllow: GET" : "");
  return answer.append("\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n").append(body);
}

void serve_scrape(int in, int out, const std::function<std::string()>& figures) {
  (void)std::signal(SIGPIPE, SIG_IGN);  // a pipe whose reader has gone is EPIPE
  const std::optional<int> status = receive_scrape(in);
  if (status) send_answer(out, scrape_answer(*status, *status == 200 ? figures() : std::string()));
}

}  // namespace inductorfs::cli
