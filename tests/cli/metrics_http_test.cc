// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/metrics_http.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>
#include <utility>

#include "inductorfs/base/fd.h"

namespace inductorfs::cli {
namespace {

const std::string kRest = "\r\nHost: x\r\n";

int status_of(const std::string& line) { return status_of_scrape(line + kRest); }

TEST(ParseScrape, TakesWhatCollectorsSend) {
  EXPECT_EQ(status_of("GET /metrics HTTP/1.1"), 200);
  EXPECT_EQ(status_of("GET /metrics?x=y HTTP/1.1"), 200);
  EXPECT_EQ(status_of("GET http://127.0.0.1:9817/metrics HTTP/1.1"), 200);
  EXPECT_EQ(status_of_scrape("GET /metrics HTTP/1.0"), 200);
}

TEST(ParseScrape, RefusesAllElse) {
  EXPECT_EQ(status_of_scrape("GET /metrics HTTP/1.1"), 400) << "HTTP/1.1 has a host";
  EXPECT_EQ(status_of("GET / HTTP/1.1"), 404);
  EXPECT_EQ(status_of("GET /metrics/../x HTTP/1.1"), 404);
  EXPECT_EQ(status_of("GET http://host HTTP/1.1"), 404);
  EXPECT_EQ(status_of("POST /metrics HTTP/1.1"), 405);
  EXPECT_EQ(status_of("HEAD /metrics HTTP/1.1"), 405);
  EXPECT_EQ(status_of("PRI * HTTP/2.0"), 505);
  EXPECT_EQ(status_of("GET /metrics HTTP/1.9"), 400);
  EXPECT_EQ(status_of("GET /metrics HTTP/1.1 x"), 400);
  EXPECT_EQ(status_of("GET  /metrics HTTP/1.1"), 400);
  EXPECT_EQ(status_of("get /metrics HTTP/1.1"), 400);
  EXPECT_EQ(status_of("GET /metrics"), 400);
  EXPECT_EQ(status_of("\x16\x03\x01"), 400) << "TLS";
  EXPECT_EQ(status_of(""), 400);
}

TEST(ScrapeAnswer, HasTheLengthOfItsBody) {
  const std::string good = scrape_answer(200, "figures");
  EXPECT_TRUE(good.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"))
      << good;
  EXPECT_NE(good.find("\r\nContent-Length: 7\r\n"), std::string::npos);
  EXPECT_TRUE(good.ends_with("\r\n\r\nfigures"));
  const std::string refused = scrape_answer(405, {});
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 405 Method Not Allowed\r\nContent-Type: text/plain; charset=utf-8\r\n"));
  EXPECT_NE(refused.find("\r\nAllow: GET\r\n"), std::string::npos);
  EXPECT_TRUE(refused.ends_with("\r\n\r\nonly GET is answered\n"));
}

/// What a client gets that sends this and then, if `closes`, nothing more.
std::pair<std::string, int> served(const std::string& request, bool closes) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  Fd ours(ends[0]);
  const Fd client(ends[1]);
  int calls = 0;
  std::jthread server([&] {
    serve_scrape(ours.get(), ours.get(), [&] {
      ++calls;
      return std::string(1'000'000, 'x');
    });
    ours.reset();
  });
  (void)::send(client.get(), request.data(), request.size(), MSG_NOSIGNAL);  // the server may have answered already
  if (closes) ::shutdown(client.get(), SHUT_WR);
  std::string answer;
  std::array<char, 65536> bytes{};
  for (ssize_t got = 0; (got = ::read(client.get(), bytes.data(), bytes.size())) > 0;) {
    answer.append(bytes.data(), static_cast<size_t>(got));
  }
  server.join();
  return {answer, calls};
}

TEST(ServeScrape, AnswersOneRequestAndNoMore) {
  const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
  const auto [answer, calls] = served(request + request, true);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_GT(answer.size(), 1'000'000U) << "more than a socket holds";
  EXPECT_LT(answer.size(), 1'001'000U);
  EXPECT_EQ(calls, 1);
}

TEST(ServeScrape, AnswersABareNewline) {
  EXPECT_TRUE(served("GET /metrics HTTP/1.0\n\n", true).first.starts_with("HTTP/1.1 200 OK\r\n"));
}

TEST(ServeScrape, EndsAHugeRequest) {
  const auto [answer, calls] = served("GET /metrics HTTP/1.0\r\nX: " + std::string(kHttpHeadLimit, 'x'), true);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 431 ")) << answer.substr(0, 80);
  EXPECT_EQ(calls, 0);
}

TEST(ServeScrape, SaysNothingToAClientThatHasGone) {
  EXPECT_EQ(served("GET /metrics HTTP/1.1\r\n", true), (std::pair<std::string, int>{"", 0}));
}

TEST(ServeScrape, DoesNotWaitForASlowClient) {
  const auto begin = std::chrono::steady_clock::now();
  const auto [answer, calls] = served("GET /metrics HTTP/1.1\r\n", false);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 408 ")) << answer;
  EXPECT_EQ(calls, 0);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, kHttpRequestPatience);
}

}  // namespace
}  // namespace inductorfs::cli
