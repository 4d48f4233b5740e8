// SPDX-License-Identifier: Apache-2.0
#include "metrics_http.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdlib>
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

constexpr std::string_view kOpenMetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
constexpr std::string_view kText = "text/plain; version=0.0.4; charset=utf-8";

std::string lower(std::string_view text) {
  std::string made(text);
  std::transform(made.begin(), made.end(), made.begin(), [](unsigned char c) { return std::tolower(c); });
  return made;
}

/// How much a client wants each format; 0 is not at all.
struct Wishes {
  double open = 0;
  double text = 0;

  void note(std::string_view accept) {
    while (!accept.empty()) note_range(take_part(accept, ','));
  }

 private:
  void note_range(std::string_view range) {
    const std::string type = lower(trimmed(take_part(range, ';')));
    double quality = 1;
    bool our_version = true;
    while (!range.empty()) {
      std::string_view parameter = take_part(range, ';');
      const std::string name = lower(trimmed(take_part(parameter, '=')));
      const std::string value(trimmed(parameter));
      if (name == "q") quality = std::strtod(value.c_str(), nullptr);
      if (name == "version") our_version = value == "1.0.0";
    }
    if (!(quality > 0 && quality <= 1)) quality = 0;
    if (type == "application/openmetrics-text" && our_version) open = std::max(open, quality);
    if (type == "text/plain" || type == "text/*" || type == "*/*") text = std::max(text, quality);
  }
};

std::string_view reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "HTTP Version Not Supported";
  }
}

std::string_view advice_of(int status) {
  switch (status) {
    case 404:
      return "the figures are at /metrics\n";
    case 405:
      return "only GET and HEAD are answered\n";
    case 408:
      return "the request did not come in time\n";
    case 431:
      return "the request is too long\n";
    case 505:
      return "only HTTP/1.0 and HTTP/1.1 are answered\n";
    default:
      return "this is no HTTP request\n";
  }
}

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
Scrape parse_line(std::string_view line, bool& host_needed) {
  const std::string_view method = take_part(line, ' ');
  const std::string_view target = take_part(line, ' ');
  const std::string_view version = line;
  if (!is_token(method) || target.empty() || !version.starts_with("HTTP/")) return {400};
  if (!version.starts_with("HTTP/1.")) return {505};
  if (version != "HTTP/1.0" && version != "HTTP/1.1") return {400};
  host_needed = version == "HTTP/1.1";
  if (method != "GET" && method != "HEAD") return {405};
  return {is_metrics(target) ? 200 : 404, method == "HEAD"};
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

/// A request that is none is an answer's status. Empty when the client has gone.
std::optional<Scrape> receive_scrape(int fd) {
  const Deadline deadline = Deadline::after(kHttpRequestPatience);
  std::string head;
  while (head.size() < kHttpHeadLimit) {
    const std::string more = read_some(fd, kHttpHeadLimit - head.size(), deadline);
    if (more.empty()) return deadline.passed() ? std::optional(Scrape{408}) : std::nullopt;
    head += more;
    if (const auto end = end_of_head(head)) return parse_scrape(std::string_view(head).substr(0, *end));
  }
  return Scrape{431};
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

Scrape parse_scrape(std::string_view head) {
  bool host_needed = false;
  std::string_view line = take_part(head, '\n');
  if (line.ends_with('\r')) line.remove_suffix(1);
  Scrape scrape = parse_line(line, host_needed);
  Wishes wishes;
  while (!head.empty()) {
    std::string_view value = take_part(head, '\n');
    const std::string name = lower(take_part(value, ':'));
    if (name == "host") host_needed = false;
    if (name == "accept") wishes.note(value);
  }
  if (scrape.status == 200 && host_needed) scrape.status = 400;
  scrape.open = wishes.open > 0 && wishes.open >= wishes.text;
  return scrape;
}

std::string scrape_answer(const Scrape& scrape, std::string_view figures) {
  const bool good = scrape.status == 200;
  const std::string_view body = good ? figures : advice_of(scrape.status);
  std::string answer = "HTTP/1.1 " + std::to_string(scrape.status) + " ";
  answer.append(reason_of(scrape.status)).append("\r\nContent-Type: ");
  answer.append(good ? (scrape.open ? kOpenMetrics : kText) : "text/plain; charset=utf-8");
  answer.append("\r\nContent-Length: ").append(std::to_string(body.size()));
  if (scrape.status == 405) answer.append("\r\nAllow: GET, HEAD");
  answer.append("\r\nVary: Accept\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n");
  if (!scrape.head) answer.append(body);
  return answer;
}

void serve_scrape(int in, int out, const std::function<std::string(bool open)>& figures) {
  (void)std::signal(SIGPIPE, SIG_IGN);  // a pipe whose reader has gone is EPIPE
  const std::optional<Scrape> scrape = receive_scrape(in);
  if (!scrape) return;
  send_answer(out, scrape_answer(*scrape, scrape->status == 200 ? figures(scrape->open) : std::string()));
}

}  // namespace inductorfs::cli
