// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/signing/verifier.h"

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

TEST_F(VerifierTest, AFloodOfBadSignaturesCostsLittle) {
  make_key("stranger");
  const trust::SigningKey signing = key("stranger");
  std::vector<codec::Entry> all;
  for (int i = 0; i < 400; ++i) {
    all.push_back(entry("bad/" + std::to_string(i)));
    put(trust::sign_statement(signing, stating({all.back()}))->encode(), {all.back()});
  }
  const auto count = [](const std::vector<Standing>& found, Standing which) {
    return std::ranges::count(found, which);
  };
  auto found = examine(all);
  EXPECT_EQ(count(found, Standing::kRefused), static_cast<ptrdiff_t>(StatementVerifier::kBadAtOnce));
  EXPECT_EQ(count(found, Standing::kNotNow), 300);
  clock_.advance(std::chrono::seconds(1));
  EXPECT_EQ(count(examine(all), Standing::kRefused), 200) << "another hundred";
}

TEST_F(VerifierTest, AScopeOfManyThatDoNotCountRestsForAMinute) {
  std::vector<codec::Entry> all;
  for (size_t i = 0; i < StatementVerifier::kBadOfScope; ++i) all.push_back(entry("none/" + std::to_string(i)));
  EXPECT_EQ(standing(entry("first")), Standing::kUnsigned);
  (void)examine(all);
  const size_t asked = cluster_.questions;
  EXPECT_EQ(standing(entry("later")), Standing::kNotNow);
  EXPECT_EQ(cluster_.questions, asked);
  EXPECT_EQ(examine({entry("later")}, kOtherScope).front(), Standing::kUnsigned) << "others do not rest";
  clock_.advance(std::chrono::seconds(61));
  sign({entry("later")});
  EXPECT_EQ(standing(entry("later")), Standing::kTrusted);
}

}  // namespace
}  // namespace inductorfs::signing
