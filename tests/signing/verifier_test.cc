// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/signing/verifier.h"

#include <thread>

#include "signing_fixture.h"

namespace inductorfs::signing {
namespace {

TEST_F(VerifierTest, AStatementIsVerifiedOnceForAllThatItCovers) {
  sign({entry("a"), entry("b"), entry("c")});
  EXPECT_FALSE(verifier_.known(kScope, entry("a")));
  EXPECT_EQ(examine({entry("a"), entry("unsigned"), entry("b")}),
            (std::vector{Standing::kTrusted, Standing::kUnsigned, Standing::kTrusted}));
  EXPECT_EQ(found_[0].key, key("k").public_key().fingerprint());
  EXPECT_EQ(found_[0].name, "k@host");
  EXPECT_EQ(found_[0].issued, now());
  EXPECT_EQ(found_[0].expires, now() + 3600);
  EXPECT_EQ(cluster_.questions, 1U);
  EXPECT_EQ(cluster_.statements, 1U);
  EXPECT_EQ(verifier_.known(kScope, entry("c"))->standing, Standing::kTrusted) << "nobody has asked for it yet";
  EXPECT_EQ(examine({entry("c"), entry("unsigned")}), (std::vector{Standing::kTrusted, Standing::kUnsigned}));
  EXPECT_EQ(cluster_.questions, 1U);
  EXPECT_FALSE(verifier_.known(kOtherScope, entry("c")));
  EXPECT_EQ(counters_.snapshot()["signing.verified"], 1U);
}

TEST_F(VerifierTest, OnlyWhatIsNamedWithItsBytesAndModeCounts) {
  sign({entry("a")});
  codec::Entry other = entry("a");
  other.mode = 0755;
  EXPECT_EQ(standing(other), Standing::kUnsigned);
  EXPECT_EQ(standing(entry("a", "other")), Standing::kUnsigned);
  // Whoever writes to the server says that the statement covers something else, too.
  put(trust::sign_statement(key("k"), stating({entry("a")}))->encode(), {entry("a"), entry("evil")});
  EXPECT_EQ(standing(entry("evil")), Standing::kUnsigned);
  EXPECT_EQ(found_[0].why, "the statement that is said to cover it does not name it");
  EXPECT_EQ(standing(entry("a")), Standing::kTrusted);
}

TEST_F(VerifierTest, WhatIsSignedLaterIsFoundLater) {
  EXPECT_EQ(standing(entry("a")), Standing::kUnsigned);
  sign({entry("a")});
  EXPECT_EQ(standing(entry("a")), Standing::kUnsigned) << "it is not asked for each time";
  clock_.advance(std::chrono::seconds(10));
  EXPECT_EQ(standing(entry("a")), Standing::kTrusted);
}

TEST_F(VerifierTest, WhatDoesNotCountSaysWhy) {
  make_key("stranger");
  sign({entry("a")}, "stranger");
  EXPECT_EQ(standing(entry("a")), Standing::kRefused);
  EXPECT_EQ(found_[0].verdict, Verdict::kUnknownKey);
  EXPECT_EQ(found_[0].key, key("stranger").public_key().fingerprint());
  auto damaged = *trust::sign_statement(key("k"), stating({entry("b")}));
  damaged.signature[0] ^= 1;
  put(damaged.encode(), {entry("b")});
  EXPECT_EQ(standing(entry("b")), Standing::kRefused);
  EXPECT_EQ(found_[0].verdict, Verdict::kBadSignature);
  put("garbage", {entry("c")});
  EXPECT_EQ(standing(entry("c")), Standing::kRefused);
  EXPECT_EQ(found_[0].verdict, Verdict::kMalformed);
  auto elsewhere = stating({entry("d")});
  elsewhere.scope = kOtherScope;
  put(trust::sign_statement(key("k"), elsewhere)->encode(), {entry("d")});
  EXPECT_EQ(standing(entry("d")), Standing::kRefused);
  EXPECT_EQ(found_[0].verdict, Verdict::kOtherScope);
  sign({entry("e")});
  principals_ = {};
  EXPECT_EQ(standing(entry("e")), Standing::kRefused) << "nobody may sign for a scope without principals";
  EXPECT_EQ(counters_.snapshot()["signing.refused"], 5U);
}

TEST_F(VerifierTest, OtherKeysDecideAnewWithoutTheCluster) {
  certify("k", "ca", "-I node-1 -n all -V 20200101:20980101");
  sign({entry("a"), entry("b")});
  EXPECT_EQ(standing(entry("a")), Standing::kRefused) << "its authority is unknown";
  EXPECT_EQ(use("* cert-authority " + line("ca.pub")), 0U);
  EXPECT_EQ(standing(entry("a")), Standing::kTrusted) << "a key that is added shows at once";
  const size_t asked = cluster_.questions;
  EXPECT_EQ(use("all cert-authority " + line("ca.pub")), 0U);
  EXPECT_EQ(verifier_.known(kScope, entry("b"))->standing, Standing::kTrusted);
  trust::RevokedKeys revoked;
  ASSERT_TRUE(revoked.add_fingerprint(key("k").public_key().fingerprint()));
  EXPECT_EQ(use("all cert-authority " + line("ca.pub"), revoked), 1U);
  EXPECT_EQ(cluster_.questions, asked);
  EXPECT_FALSE(verifier_.known(kScope, entry("b")));
  EXPECT_EQ(standing(entry("b")), Standing::kRefused);
  EXPECT_EQ(found_[0].verdict, Verdict::kRevoked);
  // Somebody whose key counts signs the same bytes.
  make_key("second");
  sign({entry("b")}, "second");
  EXPECT_EQ(use("all " + line("second.pub"), revoked), 0U);
  EXPECT_EQ(standing(entry("b")), Standing::kTrusted);
}

TEST_F(VerifierTest, WhatHasExpiredCountsNoMore) {
  sign({entry("a")});
  EXPECT_EQ(standing(entry("a")), Standing::kTrusted);
  clock_.advance(std::chrono::seconds(3599));
  EXPECT_EQ(verifier_.look_at_clock(), 0U);
  EXPECT_EQ(verifier_.known(kScope, entry("a"))->standing, Standing::kTrusted);
  clock_.advance(std::chrono::seconds(1));
  EXPECT_FALSE(verifier_.known(kScope, entry("a")));
  EXPECT_EQ(verifier_.look_at_clock(), 1U);
  EXPECT_EQ(verifier_.look_at_clock(), 0U);
  EXPECT_EQ(standing(entry("a")), Standing::kRefused);
  EXPECT_EQ(found_[0].verdict, Verdict::kStatementExpired);
}

TEST_F(VerifierTest, AClusterThatIsAwayIsNoVerdict) {
  sign({entry("a")});
  cluster_.is_away = true;
  EXPECT_EQ(standing(entry("a")), Standing::kNotNow);
  cluster_.is_away = false;
  EXPECT_EQ(standing(entry("a")), Standing::kTrusted) << "at once";
}

class VerifierFlood : public VerifierTest {
 protected:
  std::vector<codec::Entry> forge(int count, const std::string& scope) {
    const trust::SigningKey signing = key("stranger");
    std::vector<codec::Entry> all;
    for (int i = 0; i < count; ++i) {
      all.push_back(entry("bad/" + std::to_string(i)));
      trust::TrustStatement statement = stating({all.back()});
      statement.scope = scope;
      const std::vector<std::string> keys{cover_key(all.back())};
      const auto bytes = trust::sign_statement(signing, statement)->encode();
      EXPECT_TRUE(cluster_.put_statement(scope, bytes, keys, kLong, soon()));
    }
    return all;
  }
  void SetUp() override {
    VerifierTest::SetUp();
    if (!IsSkipped()) make_key("stranger");
  }
  static ptrdiff_t count(const std::vector<Standing>& found, Standing which) {
    return std::ranges::count(found, which);
  }
};

TEST_F(VerifierFlood, OfBadSignaturesCostsLittleAndReadsLittle) {
  const auto all = forge(400, kScope);
  EXPECT_EQ(count(examine(all), Standing::kRefused), 25) << "a quarter of those of a second";
  const size_t asked = cluster_.statements;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(count(examine(all), Standing::kRefused), 25);
  EXPECT_EQ(cluster_.statements, asked) << "nothing more is read in this second";
  clock_.advance(std::chrono::seconds(1));
  EXPECT_EQ(count(examine(all), Standing::kRefused), 50);
}

TEST_F(VerifierFlood, OfManyScopesLeavesSomethingToEach) {
  for (char digit = '1'; digit <= '8'; ++digit) {
    const std::string scope(64, digit);
    (void)examine(forge(60, scope), scope);
  }
  sign({entry("a")});
  EXPECT_EQ(standing(entry("a")), Standing::kTrusted);
}

TEST_F(VerifierFlood, OfAScopeLetsItRestForAMinute) {
  const auto all = forge(static_cast<int>(StatementVerifier::kBadOfScope), kScope);
  sign({entry("honest")});
  // What does not count is remembered for ten seconds, and 25 more are looked at in each.
  for (size_t i = 0; i < all.size(); i += 25) {
    EXPECT_EQ(standing(entry("none/" + std::to_string(i))), Standing::kUnsigned) << i;
    (void)examine({all.begin() + static_cast<ptrdiff_t>(i), all.begin() + static_cast<ptrdiff_t>(i + 25)});
    clock_.advance(std::chrono::seconds(1));
  }
  const size_t asked = cluster_.questions;
  EXPECT_EQ(standing(entry("honest")), Standing::kNotNow);
  EXPECT_EQ(cluster_.questions, asked);
  EXPECT_EQ(examine({entry("later")}, kOtherScope).front(), Standing::kUnsigned) << "others do not rest";
  clock_.advance(std::chrono::seconds(61));
  EXPECT_EQ(standing(entry("honest")), Standing::kTrusted);
}

TEST_F(VerifierTest, ManyNamesThatNobodyHasSignedHideNothing) {
  std::vector<codec::Entry> all;
  for (size_t i = 0; i < 2 * StatementVerifier::kBadOfScope; ++i) all.push_back(entry("none/" + std::to_string(i)));
  (void)examine(all);
  sign({entry("a")});
  EXPECT_EQ(standing(entry("a")), Standing::kTrusted);
}

TEST_F(VerifierTest, AnAnswerIsOfTheKeysOfItsEnd) {
  sign({entry("a")});
  sign({entry("b")});
  EXPECT_EQ(standing(entry("a")), Standing::kTrusted);
  const uint64_t before = found_[0].epoch;
  cluster_.while_reading = [this] {
    trust::RevokedKeys revoked;
    ASSERT_TRUE(revoked.add_fingerprint(key("k").public_key().fingerprint()));
    EXPECT_EQ(use("* " + line("k.pub"), revoked), 1U);
  };
  EXPECT_EQ(examine({entry("a"), entry("b")}), (std::vector{Standing::kNotNow, Standing::kRefused}));
  EXPECT_GT(verifier_.epoch(), before);
}

TEST_F(VerifierTest, OtherThreadsChangeKeysDuringAnExamination) {
  std::vector<codec::Entry> all;
  for (int i = 0; i < 200; ++i) {
    all.push_back(entry("all/" + std::to_string(i)));
    sign({all.back()});
  }
  const trust::TrustedKeys trusted = trust::TrustedKeys::parse("* " + line("k.pub") + "\n", "trusted").value();
  std::jthread changing([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      (void)verifier_.use_keys(trusted, {});
      (void)verifier_.look_at_clock();
    }
  });
  for (int i = 0; i < 20; ++i) {
    for (const Standing one : examine(all)) EXPECT_TRUE(one == Standing::kTrusted || one == Standing::kNotNow);
  }
}

}  // namespace
}  // namespace inductorfs::signing
