// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "inductorfs/redis/connection.h"
#include "support/redis_server.h"
#include "transport.h"

namespace inductorfs::redis {
namespace {

using inductorfs::testing::make_certificates;
using inductorfs::testing::RedisServer;

constexpr Patience kPatience{Milliseconds(10000), Milliseconds(5000)};

Result<std::unique_ptr<Connection>> connect(const Endpoint& endpoint) {
  return Connection::open(endpoint, Deadline::after(Milliseconds(5000)));
}

Endpoint endpoint_of(const std::string& url) {
  const auto endpoint = parse_url(url);
  EXPECT_TRUE(endpoint);
  return endpoint ? *endpoint : Endpoint{};
}

void expect_pong(Connection& connection) {
  const auto reply = connection.call({"PING"}, kPatience);
  ASSERT_TRUE(reply) << reply.error().to_string();
  EXPECT_EQ(reply->text, "PONG");
}

TEST(RealServer, StoresAndReturnsBinaryValuesInAPipeline) {
  const RedisServer server;
  const auto connection = connect(endpoint_of(server.url() + "?db=3"));
  ASSERT_TRUE(connection) << connection.error().to_string();
  std::string value(3 << 20, '\0');
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 7919);
  std::vector<Reply> replies;
  const auto outcome = (*connection)
                           ->pipeline({{"SET", "k", value}, {"GET", "k"}, {"GET", "none"}, {"LPOP", "k"}}, kPatience,
                                      [&](size_t, Reply&& reply) -> Result<void> {
                                        replies.push_back(std::move(reply));
                                        return {};
                                      });
  ASSERT_TRUE(outcome) << outcome.error().to_string();
  EXPECT_EQ(replies[1].text, value);
  EXPECT_EQ(replies[2].kind, Reply::Kind::kNil);
  EXPECT_TRUE(replies[3].is_error());
  expect_pong(**connection);
}

TEST(RealServer, AnswersARestingReadWhenItsTimeIsOver) {
  const RedisServer server;
  const auto connection = connect(endpoint_of(server.url()));
  ASSERT_TRUE(connection);
  const auto reply =
      (*connection)->call_blocking({"XREAD", "BLOCK", "50", "STREAMS", "log", "0-0"}, Milliseconds(50), [] {
        return false;
      });
  ASSERT_TRUE(reply) << reply.error().to_string();
  EXPECT_EQ(reply->kind, Reply::Kind::kNil);
  expect_pong(**connection);
}

TEST(RealServer, SocketsAreCloseOnExec) {
  const RedisServer server;
  const auto connection = connect(endpoint_of(server.url()));
  ASSERT_TRUE(connection);
  size_t sockets = 0;
  for (const auto& item : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the iterator's own descriptor is no link to a socket
    if (!std::filesystem::read_symlink(item.path(), gone).string().starts_with("socket:")) continue;
    ++sockets;
    EXPECT_NE(::fcntl(std::stoi(item.path().filename()), F_GETFD) & FD_CLOEXEC, 0);
  }
  EXPECT_GE(sockets, 1U);
}

TEST(RealServer, AsksForThePasswordAndTakesIt) {
  const RedisServer server({.password = "hunter2"});
  const auto good = connect(endpoint_of(server.url()));
  ASSERT_TRUE(good) << good.error().to_string();
  expect_pong(**good);
  Endpoint wrong = endpoint_of(server.url());
  wrong.password = "wr0ng";
  const auto refused = connect(wrong);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kNotPermitted);
  EXPECT_EQ(refused.error().to_string().find("wr0ng"), std::string::npos);
  wrong.password.clear();
  const auto silent = connect(wrong);
  ASSERT_TRUE(silent) << "without credentials there is nothing to greet with";
  const auto reply = (*silent)->call({"PING"}, kPatience);
  ASSERT_TRUE(reply);
  EXPECT_EQ(to_error(*reply).code(), ErrorCode::kNotPermitted);
}

TEST(Tls, TalksToAServerWhoseCertificateNamesItsAddress) {
  const RedisServer server({.tls = true});
  Endpoint endpoint = endpoint_of(server.tls_url());
  endpoint.ca_file = server.certificates().ca_file;
  endpoint.client_name = "tls-test";
  const auto connection = connect(endpoint);
  ASSERT_TRUE(connection) << connection.error().to_string();
  EXPECT_FALSE((*connection)->broken());
  const std::string value(2 << 20, 'v');
  std::vector<Reply> replies;
  ASSERT_TRUE(
      (*connection)
          ->pipeline({{"SET", "k", value}, {"GET", "k"}}, kPatience, [&](size_t, Reply&& reply) -> Result<void> {
            replies.push_back(std::move(reply));
            return {};
          }));
  EXPECT_EQ(replies.at(1).text, value);
}

TEST(Tls, RefusesACertificateForAnotherName) {
  const RedisServer server({.tls = true, .tls_name = "DNS:other.example.com"});
  Endpoint endpoint = endpoint_of(server.tls_url());
  endpoint.ca_file = server.certificates().ca_file;
  const auto by_address = connect(endpoint);
  ASSERT_FALSE(by_address);
  EXPECT_EQ(by_address.error().code(), ErrorCode::kNotPermitted) << by_address.error().to_string();
  endpoint.host = "localhost";
  const auto by_name = connect(endpoint);
  ASSERT_FALSE(by_name);
  EXPECT_EQ(by_name.error().code(), ErrorCode::kNotPermitted) << by_name.error().to_string();
}

TEST(Tls, AcceptsTheRightHostName) {
  const RedisServer server({.tls = true, .tls_name = "DNS:localhost"});
  Endpoint endpoint = endpoint_of(server.tls_url());
  endpoint.ca_file = server.certificates().ca_file;
  endpoint.host = "localhost";
  const auto connection = connect(endpoint);
  ASSERT_TRUE(connection) << connection.error().to_string();
  expect_pong(**connection);
}

TEST(Tls, RefusesAnUnknownAuthority) {
  const RedisServer server({.tls = true});
  const inductorfs::testing::TemporaryDirectory elsewhere;
  Endpoint endpoint = endpoint_of(server.tls_url());
  endpoint.ca_file = make_certificates(elsewhere.path(), "x", "IP:127.0.0.1").ca_file;
  const auto connection = connect(endpoint);
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.error().code(), ErrorCode::kNotPermitted);
  endpoint.ca_file = elsewhere / "absent.pem";
  const auto unreadable = connect(endpoint);
  ASSERT_FALSE(unreadable);
  EXPECT_EQ(unreadable.error().code(), ErrorCode::kInvalid);
}

TEST(Tls, DoesNotWaitForAFileThatIsNone) {
  const RedisServer server({.tls = true});
  const std::string fifo = server.directory() + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const auto expect_refused = [](const Endpoint& endpoint, const std::string& what) {
    const auto connection = connect(endpoint);
    ASSERT_FALSE(connection);
    EXPECT_EQ(connection.error().code(), ErrorCode::kInvalid);
    EXPECT_NE(connection.error().what().find(what), std::string::npos) << connection.error().what();
  };
  Endpoint endpoint = endpoint_of(server.tls_url());
  endpoint.ca_file = fifo;
  expect_refused(endpoint, "CA file " + fifo + ": " + fifo + " is not a regular file");
  endpoint.ca_file = server.certificates().ca_file;
  endpoint.certificate_file = fifo;
  expect_refused(endpoint, "certificate " + fifo + ": ");
  endpoint.certificate_file = endpoint.ca_file;
  endpoint.key_file = fifo;
  expect_refused(endpoint, "key " + fifo + ": ");
}

TEST(Tls, ShowsItsClientCertificate) {
  const RedisServer server({.tls = true, .tls_client_certificates = true});
  Endpoint endpoint = endpoint_of(server.tls_url());
  endpoint.ca_file = server.certificates().ca_file;
  endpoint.client_name = "mtls-test";
  EXPECT_FALSE(connect(endpoint)) << "without a certificate the greeting must fail";
  const auto client = make_certificates(server.directory(), "client", "DNS:client");
  endpoint.certificate_file = client.certificate_file;
  endpoint.key_file = client.key_file;
  const auto connection = connect(endpoint);
  ASSERT_TRUE(connection) << connection.error().to_string();
  expect_pong(**connection);
}

TEST(Tls, ReadsItsCertificatesAgainOnlyWhenTheyHaveChanged) {
  const RedisServer server({.tls = true});
  Endpoint endpoint = endpoint_of(server.tls_url());
  endpoint.ca_file = server.directory() + "/ca-copy.pem";
  std::filesystem::copy_file(server.certificates().ca_file, endpoint.ca_file);
  const uint64_t before = certificate_loads();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(connect(endpoint));
  EXPECT_EQ(certificate_loads(), before + 1);
  const inductorfs::testing::TemporaryDirectory elsewhere;
  const std::string other = make_certificates(elsewhere.path(), "x", "IP:127.0.0.1").ca_file;
  std::filesystem::rename(other, endpoint.ca_file);
  EXPECT_FALSE(connect(endpoint)) << "the authority is another one now";
  EXPECT_EQ(certificate_loads(), before + 2);
}

/// Whoever connects may not read them (FileSource).
TEST(Tls, TakesFilesThatSomebodyElseHasRead) {
  const RedisServer server({.tls = true, .tls_client_certificates = true});
  const auto client = make_certificates(server.directory(), "client", "DNS:client");
  const auto text_of = [](const std::string& path) { return read_file(AT_FDCWD, path, 1 << 20).value_or(""); };
  std::map<std::string, std::string> files = {{"the authority", text_of(server.certificates().ca_file)},
                                              {"the certificate", text_of(client.certificate_file)},
                                              {"the key", text_of(client.key_file)}};
  Endpoint endpoint = endpoint_of(server.tls_url());
  endpoint.ca_file = "the authority";
  endpoint.certificate_file = "the certificate";
  endpoint.key_file = "the key";
  endpoint.files = [&files](const std::string& path) -> Result<std::string> {
    if (files.contains(path)) return files.at(path);
    return fail(ErrorCode::kUnavailable, "it was not read yet");
  };
  const uint64_t before = certificate_loads();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(connect(endpoint));
  EXPECT_EQ(certificate_loads(), before + 1);
  const auto other = make_certificates(server.directory(), "other", "DNS:other");
  files.at("the key") = text_of(other.key_file);
  EXPECT_TRUE(connect(endpoint)) << "half of a renewal does not fit, and those of before are used";
  files.at("the certificate") = text_of(other.certificate_file);
  const uint64_t halfway = certificate_loads();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(connect(endpoint));
  EXPECT_EQ(certificate_loads(), halfway + 1) << "the new ones are used";
  // Whoever exchanges the authority means it, whatever else does not fit.
  const inductorfs::testing::TemporaryDirectory elsewhere;
  const std::string stranger = text_of(make_certificates(elsewhere.path(), "x", "IP:127.0.0.1").ca_file);
  const std::string authority = std::exchange(files.at("the authority"), stranger);
  EXPECT_EQ(connect(endpoint).error().code(), ErrorCode::kNotPermitted) << "it is another one now";
  files.at("the key") = "no key";
  EXPECT_FALSE(connect(endpoint));
  files.at("the authority") = "no authority";
  EXPECT_EQ(connect(endpoint).error().code(), ErrorCode::kNotPermitted) << "kInvalid would drop what is published";
  files.at("the authority") = authority;
  EXPECT_FALSE(connect(endpoint));
  endpoint.ca_file = "not read";
  const auto early = connect(endpoint);
  EXPECT_EQ(early.error().code(), ErrorCode::kUnavailable);
  EXPECT_NE(early.error().what().find("CA file not read: it was not read yet"), std::string::npos);
}

/// Each connection takes it anew.
TEST(RealServer, IsToldThePasswordOfTheMoment) {
  const RedisServer server;
  ASSERT_TRUE(connect(endpoint_of(server.url())).value()->call({"CONFIG", "SET", "requirepass", "second"}, kPatience));
  Endpoint endpoint = endpoint_of(server.url());
  Result<std::string> password = fail(ErrorCode::kUnavailable, "it was not read yet");
  endpoint.secret = [&password] { return password; };
  EXPECT_EQ(connect(endpoint).error().what(), "it was not read yet");
  password = fail(ErrorCode::kInvalid, "the password file is empty");
  EXPECT_EQ(connect(endpoint).error().code(), ErrorCode::kNotPermitted) << "kInvalid would drop what is published";
  password = "first";
  EXPECT_EQ(connect(endpoint).error().code(), ErrorCode::kNotPermitted);
  password = "second";
  const auto connection = connect(endpoint);
  ASSERT_TRUE(connection) << connection.error().to_string();
  expect_pong(**connection);
}

TEST(Tls, EndsAHandshakeThatNobodyAnswers) {
  RedisServer server({.tls = true});
  server.freeze();
  Endpoint endpoint = endpoint_of(server.tls_url());
  endpoint.ca_file = server.certificates().ca_file;
  const auto connection = Connection::open(endpoint, Deadline::after(Milliseconds(200)));
  server.thaw();
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.error().code(), ErrorCode::kTimedOut);
}

}  // namespace
}  // namespace inductorfs::redis
