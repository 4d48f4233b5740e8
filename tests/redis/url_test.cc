// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/redis/url.h"

#include <gtest/gtest.h>

namespace inductorfs::redis {
namespace {

TEST(ParseUrl, ReadsEveryPartOfATcpUrl) {
  const auto endpoint = parse_url("redis://ann:s3cret@cache.example.com:6380/3");
  ASSERT_TRUE(endpoint);
  EXPECT_FALSE(endpoint->tls);
  EXPECT_EQ(endpoint->host, "cache.example.com");
  EXPECT_EQ(endpoint->port, 6380);
  EXPECT_EQ(endpoint->database, 3);
  EXPECT_EQ(endpoint->user, "ann");
  EXPECT_EQ(endpoint->password, "s3cret");
  EXPECT_TRUE(endpoint->socket_path.empty());
}

TEST(ParseUrl, FillsInWhatIsLeftOut) {
  const auto endpoint = parse_url("rediss://h");
  ASSERT_TRUE(endpoint);
  EXPECT_TRUE(endpoint->tls);
  EXPECT_EQ(endpoint->port, 6379);
  EXPECT_EQ(endpoint->database, 0);
  EXPECT_TRUE(parse_url("redis://h/"));
}

TEST(ParseUrl, TakesAnAddressOfVersionSixInBrackets) {
  const auto endpoint = parse_url("redis://:pw@[::1]:7000");
  ASSERT_TRUE(endpoint);
  EXPECT_EQ(endpoint->host, "::1");
  EXPECT_EQ(endpoint->port, 7000);
  EXPECT_EQ(endpoint->password, "pw");
  EXPECT_EQ(endpoint->to_string(), "redis://***@[::1]:7000");
}

TEST(ParseUrl, DecodesPercentSignsInCredentials) {
  const auto endpoint = parse_url("redis://a%40b:p%2fq%3A@h");
  ASSERT_TRUE(endpoint);
  EXPECT_EQ(endpoint->user, "a@b");
  EXPECT_EQ(endpoint->password, "p/q:");
}

TEST(ParseUrl, ReadsAUnixSocketWithDatabaseAndPassword) {
  const auto plain = parse_url("unix:///run/redis.sock?db=2");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->socket_path, "/run/redis.sock");
  EXPECT_EQ(plain->database, 2);
  const auto secret = parse_url("unix://u:p@/run/a@b.sock");
  ASSERT_TRUE(secret);
  EXPECT_EQ(secret->socket_path, "/run/a@b.sock");
  EXPECT_EQ(secret->user, "u");
  EXPECT_EQ(secret->password, "p");
}

TEST(ParseUrl, ReadsSentinels) {
  const auto endpoint = parse_url("rediss+sentinel://ann:p%2fq@one,two:7000,[::1]:7001/my%20master/2");
  ASSERT_TRUE(endpoint) << endpoint.error().what();
  EXPECT_TRUE(endpoint->tls);
  EXPECT_EQ(endpoint->user, "ann");
  EXPECT_EQ(endpoint->password, "p/q");
  EXPECT_EQ(endpoint->database, 2);
  ASSERT_TRUE(endpoint->sentinels);
  EXPECT_EQ(endpoint->sentinels->master, "my master");
  ASSERT_EQ(endpoint->sentinels->addresses.size(), 3U);
  EXPECT_EQ(endpoint->sentinels->addresses[0].host, "one");
  EXPECT_EQ(endpoint->sentinels->addresses[0].port, 26379);
  EXPECT_EQ(endpoint->sentinels->addresses[1].port, 7000);
  EXPECT_EQ(endpoint->sentinels->addresses[2].host, "::1");
  EXPECT_EQ(endpoint->to_string(), "rediss+sentinel://***@one:26379,two:7000,[::1]:7001/my master/2");
  // What the name itself says of paths and escapes stays the name's.
  const auto odd = parse_url("redis+sentinel://one/a%2F3%25/2");
  ASSERT_TRUE(odd);
  EXPECT_EQ(odd->sentinels->master, "a/3%");
  EXPECT_EQ(odd->to_string(), "redis+sentinel://one:26379/a%2F3%25/2");
  EXPECT_FALSE(parse_url("redis://h")->sentinels);
}

TEST(ParseUrl, ReadsTheNodesOfACluster) {
  const auto endpoint = parse_url("rediss+cluster://ann:p%2fq@one,two:7000,[::1]:7001");
  ASSERT_TRUE(endpoint) << endpoint.error().what();
  EXPECT_TRUE(endpoint->tls);
  EXPECT_EQ(endpoint->user, "ann");
  EXPECT_EQ(endpoint->password, "p/q");
  EXPECT_EQ(endpoint->cluster, (std::vector<HostPort>{{"one", 6379}, {"two", 7000}, {"::1", 7001}}));
  EXPECT_TRUE(endpoint->host.empty());
  EXPECT_EQ(endpoint->to_string(), "rediss+cluster://***@one:6379,two:7000,[::1]:7001");
  EXPECT_TRUE(parse_url("redis+cluster://one/"));
  EXPECT_TRUE(parse_url("redis+cluster://one/0"));
  EXPECT_TRUE(parse_url("redis://h")->cluster.empty());
}

class BadUrl : public ::testing::TestWithParam<const char*> {};

TEST_P(BadUrl, IsRefusedWithAnExampleAndWithoutItsSecret) {
  const auto endpoint = parse_url(GetParam());
  ASSERT_FALSE(endpoint);
  EXPECT_EQ(endpoint.error().code(), ErrorCode::kInvalid);
  EXPECT_NE(endpoint.error().what().find("redis://"), std::string::npos);
  EXPECT_EQ(endpoint.error().what().find("hunter2"), std::string::npos) << endpoint.error().what();
}

INSTANTIATE_TEST_SUITE_P(
    All, BadUrl,
    ::testing::Values("", "localhost:6379", "http://hunter2@h", "redis://", "redis://:hunter2@",
                      "redis://:hunter2@h:port", "redis://:hunter2@h:0", "redis://:hunter2@h:65536",
                      "redis://:hunter2@h/x", "redis://:hunter2@h/-1", "redis://:hunter2%4@h", "redis://:hunter2%zz@h",
                      "redis://:hunter2@[::1", "redis://:hunter2@[::1]x", "unix://relative", "unix://:hunter2@relative",
                      "unix:///s?x=1", "unix:///s?db=", "redis://:hunter2/@h", "redis+sentinel://",
                      "redis+sentinel://:hunter2@h", "redis+sentinel://:hunter2@h/", "redis+sentinel://:hunter2@h,/m",
                      "redis+sentinel://:hunter2@h,i:0/m", "redis+sentinel://:hunter2@h/m/x", "redis+cluster://",
                      "redis+cluster://:hunter2@", "redis+cluster://:hunter2@h,", "redis+cluster://:hunter2@h:0",
                      "redis+cluster://:hunter2@h/1", "redis+cluster://:hunter2@h/x", "unix+cluster://:hunter2@h"));

TEST(Endpoint, ShowsNoSecret) {
  const auto endpoint = parse_url("unix://ann:hunter2@/s?db=4");
  ASSERT_TRUE(endpoint);
  EXPECT_EQ(endpoint->to_string(), "unix://***@/s?db=4");
}

TEST(Endpoint, ShowsNoCredentialsThatItsUrlDoesNotHave) {
  for (const std::string url :
       {"unix:///s", "redis://h:6379", "redis+sentinel://h:26379/m", "redis+cluster://h:7000"}) {
    auto endpoint = parse_url(url);
    ASSERT_TRUE(endpoint) << url;
    endpoint->password = "hunter2";  // of --password-file
    EXPECT_EQ(endpoint->to_string(), url);
  }
}

}  // namespace
}  // namespace inductorfs::redis
