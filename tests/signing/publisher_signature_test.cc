// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/signing/publisher_signature.h"

#include "signing_fixture.h"

namespace inductorfs::signing {
namespace {

class PublisherSignatureTest : public VerifierTest {
 protected:
  std::vector<codec::Entry> many(size_t count) {
    std::vector<codec::Entry> entries;
    for (size_t i = 0; i < count; ++i) entries.push_back(entry("many/" + std::to_string(i)));
    return entries;
  }
  static PublisherSignature::Sign with(const trust::SigningKey& signing) {
    return [&signing](const trust::TrustStatement& statement) { return trust::sign_statement(signing, statement); };
  }
  size_t signed_now(const std::vector<codec::Entry>& entries, const std::string& name = "k") {
    const size_t before = counters_.snapshot()["signing.signed"];
    const trust::SigningKey signing = key(name);
    PublisherSignature signature("cluster-1", with(signing), cluster_, verifier_, counters_, clock_);
    EXPECT_TRUE(signature.sign(kScope, entries, soon()));
    return counters_.snapshot()["signing.signed"] - before;
  }
};

TEST_F(PublisherSignatureTest, WhatIsSignedCountsAtOnceForReaders) {
  const auto entries = many(600);
  EXPECT_EQ(standing(entries[0]), Standing::kUnsigned);
  EXPECT_EQ(signed_now(entries), 600U);
  EXPECT_EQ(std::ranges::count(examine(entries), Standing::kTrusted), 600);
  EXPECT_EQ(counters_.snapshot()["signing.verified"], 3U) << "statements of 256";
  EXPECT_EQ(found_[0].expires, now() + trust::kStatementLifetime);
}

TEST_F(PublisherSignatureTest, WhatSomebodyWhoCountsHasSignedIsNotSignedAgain) {
  make_key("other");
  use("* " + line("k.pub") + "\n* " + line("other.pub"));
  EXPECT_EQ(signed_now({entry("a"), entry("b"), entry("a")}), 2U) << "one that comes twice";
  EXPECT_EQ(signed_now({entry("a"), entry("c")}, "other"), 1U);
  EXPECT_EQ(standing(entry("a")), Standing::kTrusted);
  EXPECT_EQ(found_[0].name, "k@host");
}

TEST_F(PublisherSignatureTest, WhatAStrangerHasSignedIsSignedAgain) {
  make_key("stranger");
  sign({entry("a")}, "stranger");
  EXPECT_EQ(standing(entry("a")), Standing::kRefused);
  EXPECT_EQ(signed_now({entry("a")}), 1U);
  EXPECT_EQ(standing(entry("a")), Standing::kTrusted) << "at once";
}

TEST_F(PublisherSignatureTest, WhatEndsSoonIsSignedAnew) {
  EXPECT_EQ(signed_now({entry("a")}), 1U);
  clock_.advance(std::chrono::seconds(trust::kStatementLifetime / 10 * 9 - 1));
  EXPECT_EQ(signed_now({entry("a")}), 0U);
  clock_.advance(std::chrono::seconds(1));
  EXPECT_EQ(signed_now({entry("a")}), 1U);
  EXPECT_EQ(standing(entry("a")), Standing::kTrusted);
  EXPECT_EQ(found_[0].issued, now());
}

TEST_F(PublisherSignatureTest, WhatTheClusterHasLostIsSignedAgain) {
  EXPECT_EQ(signed_now({entry("a")}), 1U);
  EXPECT_EQ(standing(entry("a")), Standing::kTrusted);
  cluster_.empty();
  EXPECT_EQ(standing(entry("a")), Standing::kTrusted) << "it was verified";
  EXPECT_EQ(signed_now({entry("a")}), 1U);
}

TEST_F(PublisherSignatureTest, AClusterThatIsAwayIsAnErrorAndSignsNothing) {
  cluster_.is_away = true;
  const trust::SigningKey signing = key("k");
  PublisherSignature signature("cluster-1", with(signing), cluster_, verifier_, counters_, clock_);
  EXPECT_FALSE(signature.sign(kScope, many(2), soon()));
  EXPECT_EQ(counters_.snapshot()["signing.signed"], 0U);
}

}  // namespace
}  // namespace inductorfs::signing
