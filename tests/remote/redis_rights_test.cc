// SPDX-License-Identifier: Apache-2.0
// What `inductorfs acl` prints, as a real server understands it: what each role does it may do, and no more.
#include <gtest/gtest.h>

#include <set>

#include "gather_fixture.h"
#include "inductorfs/base/text.h"
#include "inductorfs/remote/rights.h"
#include "inductorfs/remote/server_examination.h"
#include "redis_fixture.h"

namespace inductorfs::remote {
namespace {

class RedisRights : public RedisFixture {
 protected:
  void SetUp() override {
    RedisFixture::SetUp();
    if (server) url_ = server->url();
  }
  /// From now on `remote` is of a user with the rights of this role, who can log in without a password.
  void become(Role role) {
    const std::string line = acl_line(role, options.prefix, "someone");
    run(words_of(line));
    run({"ACL", "SETUSER", "someone", "nopass"});
    run({"ACL", "LOG", "RESET"});
    options.url = url_;
    options.url.insert(options.url.find("//") + 2, "someone@");
    options.read_only = role == Role::kConsumer;
    reopen();
  }
  /// What the server has refused since then.
  std::vector<std::string> refused() {
    std::vector<std::string> all;
    for (const redis::Reply& denied : run({"ACL", "LOG"}).items) {
      all.push_back(denied.items.at(7).text);
    }
    return all;
  }
  /// The answer of the server to the user, "" for one that is no error.
  std::string ask(const redis::Command& command) {
    auto connection = redis::Connection::open(*redis::parse_url(options.url), soon());
    EXPECT_TRUE(connection);
    const auto reply = (*connection)->call(command, {Milliseconds(10000), Milliseconds(10000)});
    EXPECT_TRUE(reply);
    return reply->is_error() ? reply->text : "";
  }
  void expect_refused(const std::vector<redis::Command>& commands) {
    for (const redis::Command& command : commands) {
      EXPECT_TRUE(ask(command).starts_with("NOPERM")) << command[0] << " " << (command.size() > 1 ? command[1] : "");
    }
  }
  void read_as_mount() {
    Follower follower(remote, scope);
    follower.catch_up();
    EXPECT_TRUE(remote.index->wait_for_changes({{scope, follower.position}}, Milliseconds(100), [] { return false; }));
    EXPECT_TRUE(remote.index->wait_for_changes({{"dead", {}}}, Milliseconds(100), [] { return false; }));
    (void)fetched(remote, gathered_);
    EXPECT_EQ(fetch_error(source.add(large_), soon()), std::nullopt);
    EXPECT_TRUE(remote.index->scopes_with("plain", std::vector<ScopeId>{scope}, soon()));
    EXPECT_TRUE(remote.statements->find_statements(scope, covered_, soon()));
    EXPECT_TRUE(remote.statements->read_statements(scope, std::vector{statement_id("signed")}, soon()));
    EXPECT_TRUE(remote.operators->beat("aa", "record", soon()));
  }
  void ask_all() {
    EXPECT_TRUE(remote.index->list_scopes(10, soon()));
    EXPECT_TRUE(remote.operators->list_nodes(10, soon()));
    EXPECT_TRUE(remote.operators->read_orders(soon()));
    EXPECT_TRUE(remote.operators->probe(soon()));
    EXPECT_TRUE(remote.index->confirm_server(soon()));
  }
  void publish_all() {
    large_ = test_bytes(2 * kPieceBytes + 5, ++seed_);
    publish({entry("plain", std::to_string(seed_))});
    publish({entry("large", large_)});
    PublishGroup contest = group_of(scope, {entry("won", "won" + std::to_string(seed_))});
    contest.contest = {"key" + std::to_string(seed_), 0};
    EXPECT_EQ(remote.index->publish(contest, source, soon()), PublishOutcome::kPublished);
    PublishGroup replacing = group_of(scope, {entry("replaced" + std::to_string(seed_), "r")});
    replacing.replaces.emplace();
    EXPECT_EQ(remote.index->publish(replacing, source, soon()), PublishOutcome::kPublished);
    EXPECT_TRUE(remote.index->report_lost(scope, "won", contest.entries[0].digest, soon()));
    FramedSource framed;
    gathered_.clear();
    for (uint32_t i = 0; i < 20; ++i) {
      gathered_.push_back(framed.add(like_text(100 * seed_ + i)));
      const auto group = group_of(scope, {entry_of("g" + std::to_string(i), gathered_.back())});
      EXPECT_TRUE(remote.index->publish(group, framed, soon()));
    }
    EXPECT_EQ(remote.blobs->gather(gathered_, soon())->blobs, gathered_.size());
    EXPECT_TRUE(remote.blobs->renew(gathered_, soon()));
    const std::string text = "announced " + std::to_string(seed_);
    EXPECT_TRUE(remote.index->announce_scope({codec::digest_of(text).to_hex(), "triton_kernel", text}, soon()));
    EXPECT_TRUE(remote.statements->put_statement(scope, "signed", covered_, Milliseconds(600'000), soon()));
    for (const int64_t lifetime : {10'000, 0}) {
      EXPECT_TRUE(
          remote.leases->hold_leases(std::vector<LeaseName>{{scope, "graph"}}, "me", Milliseconds(lifetime), soon()));
    }
    EXPECT_EQ(remote.operators->beat("aa", "record", soon())->not_listed, "");
    EXPECT_TRUE(remote.operators->remember_node("me", soon()));
    EXPECT_TRUE(remote.operators->list_missing_nodes(kMissingAfter, soon()));
    remote.operators->forget_node("me", soon());
    remote.operators->leave("aa", soon());
  }
  void sweep_all() {
    run({"DEL", key_of(source.add(large_))});
    run({"HSET", keys.covered, std::string(kCoverKeySize, 'e'), std::string(kStatementIdSize, 'e')});
    run({"SET", NodeKeys(options.prefix).orders, "orders"});
    const auto report = remote.index->sweep(scope, true, soon());
    ASSERT_TRUE(report) << report.error().to_string();
    EXPECT_TRUE(report->ours && report->gone == 1 && report->uncovered == 1);
    EXPECT_GT(run({"PTTL", NodeKeys(options.prefix).orders}).integer, 59LL * 24 * 3600 * 1000);
    EXPECT_TRUE(remote.index->sweep(scope, true, soon())->ours) << "the key of the last sweep goes";
  }
  void operate() {
    const std::string before = remote.operators->read_orders(soon())->text;
    EXPECT_TRUE(remote.operators->replace_orders(before, "freeze", soon()).value());
    const auto plain = [](const codec::Entry& entry) { return entry.path == "plain"; };
    for (const bool dry_run : {true, false}) {
      EXPECT_EQ(remote.operators->purge(scope, plain, dry_run, soon())->selected, 1U);
    }
    for (const auto& digest : gathered_) EXPECT_TRUE(remote.operators->remove_blob(digest, soon()));
    EXPECT_TRUE(remote.operators->list_missing_nodes(kMissingAfter, soon()));
  }

  const std::vector<std::string> covered_{std::string(kCoverKeySize, 'k')};
  std::vector<codec::Digest> gathered_;
  std::string large_;

 private:
  std::string url_;
  uint32_t seed_ = 0;
};

TEST_F(RedisRights, EachRoleHasTheRightsThatItNeedsAndNoneThatNobodyUses) {
  const std::vector<std::string> none;
  std::set<std::string> granted;
  for (const Role role : {Role::kSweeper, Role::kPublisher, Role::kConsumer, Role::kOperator}) {
    become(role);
    const bool publishes = role == Role::kSweeper || role == Role::kPublisher;
    if (publishes) publish_all();
    if (role != Role::kOperator) read_as_mount();
    ask_all();
    if (role == Role::kSweeper) sweep_all();
    if (role == Role::kSweeper) publish_all();
    if (role == Role::kOperator) operate();
    EXPECT_EQ(refused(), none) << static_cast<int>(role);
    const auto examined = examine_servers(options, soon());
    ASSERT_TRUE(examined) << examined.error().to_string();
    EXPECT_FALSE(examined->front().administers);
    const std::string line = acl_line(role, options.prefix, "someone");
    for (const std::string_view word : words_of(line)) {
      if (word.starts_with('+')) granted.emplace(word.substr(1, word.find(')') - 1));
    }
  }
  options.url = server->url();
  EXPECT_TRUE(examine_servers(options, soon())->front().administers);
  // A database of a URL, a Sentinel and a Redis Cluster are not here; redis_cluster_test.cc has the last of them.
  for (const char* word : {"select", "role", "asking", "cluster|slots", "spublish", "ssubscribe", "sunsubscribe"}) {
    EXPECT_EQ(granted.erase(word), 1U) << word;
  }
  const std::string used = run({"INFO", "commandstats"}).text;
  for (const std::string& command : granted) {
    EXPECT_NE(used.find("cmdstat_" + command + ":"), std::string::npos) << command;
  }
}

TEST_F(RedisRights, APublisherWhoMayNotSweepLeavesItToOthers) {
  become(Role::kPublisher);
  publish({entry("plain", "x")});
  const auto report = remote.index->sweep(scope, true, soon());
  ASSERT_TRUE(report) << report.error().to_string();
  EXPECT_FALSE(report->ours);
  EXPECT_EQ(refused(), std::vector<std::string>{keys.sweeper});
}

TEST_F(RedisRights, NoRoleCanDoWhatIsNotItsOwn) {
  const NodeKeys nodes(options.prefix);
  const std::string blob = options.prefix + ":b:" + std::string(32, '\xff');
  const std::string script = "return redis.call('SET', KEYS[1], 'x')";
  for (const Role role : {Role::kConsumer, Role::kPublisher, Role::kSweeper, Role::kOperator}) {
    become(role);
    expect_refused({{"FLUSHALL"},
                    {"CONFIG", "GET", "*"},
                    {"KEYS", "*"},
                    {"SCAN", "0"},
                    {"ACL", "LIST"},
                    {"MONITOR"},
                    {"SET", "other:b:x", "x"},
                    {"GET", "other:b:x"},
                    {"SPUBLISH", "other:{s}:meta", ""},
                    {"EVAL", "return redis.call('SET', 'other', 'x')", "1", "other"}});
    if (role != Role::kOperator) {
      expect_refused({{"SET", nodes.orders, "x"}, {"UNLINK", nodes.orders}, {"EVAL", script, "1", nodes.orders}});
      const auto replaced = remote.operators->replace_orders("", "freeze", soon());
      EXPECT_FALSE(replaced) << "by --read-only, or by the server";
    } else {
      expect_refused({{"SET", blob, "x"}, {"PEXPIRE", blob, "1"}, {"SET", keys.statement("id"), "x"}});
    }
    if (role == Role::kPublisher) expect_refused({{"PEXPIRE", nodes.orders, "1"}});
    if (role != Role::kConsumer) continue;
    expect_refused({{"HSET", keys.index, "path", "entry"},
                    {"HDEL", keys.index, "path"},
                    {"SET", blob, "x"},
                    {"UNLINK", blob},
                    {"PEXPIRE", keys.meta, "1"},
                    {"SPUBLISH", keys.meta, ""},
                    {"EVAL", script, "1", keys.meta}});
    options.read_only = false;  // as a node that has only the password
    reopen();
    const auto published = remote.index->publish(group_of(scope, {entry("plain", "x")}), source, soon());
    EXPECT_TRUE(!published && published.error().code() == ErrorCode::kNotPermitted);
    EXPECT_FALSE(remote.operators->replace_orders("", "freeze", soon()));
  }
}

TEST(AclLine, IsOfThePrefixAndTheUserAndKeepsPasswords) {
  const std::string line = acl_line(Role::kOperator, "mine", "me");
  EXPECT_TRUE(line.starts_with("ACL SETUSER me on resetkeys resetchannels clearselectors -@all %R~mine:* ")) << line;
  EXPECT_EQ(line.find('$'), std::string::npos);
  EXPECT_EQ(line.find("ifs1"), std::string::npos);
}

}  // namespace
}  // namespace inductorfs::remote
