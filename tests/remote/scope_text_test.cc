// SPDX-License-Identifier: Apache-2.0
#include "remote/formats/scope_text.h"

#include <gtest/gtest.h>

#include "inductorfs/codec/digest.h"

namespace inductorfs::remote {
namespace {

ScopeInformation scope_of(const std::string& text) { return {codec::digest_of(text).to_hex(), "triton_kernel", text}; }

TEST(ScopeText, ComesBackAsItWas) {
  for (const std::string& text :
       {std::string("facet=gpu\nH100 \xc3\xbc\t80 GB\n"), std::string(kScopeTextLimit, 'x'), std::string()}) {
    const ScopeInformation scope = scope_of(text);
    ASSERT_TRUE(check_information(scope));
    const std::string value = encode_information(scope);
    EXPECT_LE(value.size(), kInformationLimit);
    EXPECT_EQ(decode_information(scope.id, value), scope);
  }
}

TEST(ScopeText, TheIdIsTheTextsDigest) {
  ScopeInformation scope = scope_of("facet=gpu\nH100\n");
  const std::string value = encode_information(scope);
  EXPECT_EQ(decode_information(codec::digest_of("other").to_hex(), value), std::nullopt);
  EXPECT_EQ(decode_information("", value), std::nullopt);
  scope.text += " ";
  EXPECT_FALSE(check_information(scope));
}

TEST(ScopeText, RefusesWhatIsTooLongOrWouldSpeakToATerminal) {
  EXPECT_FALSE(check_information(scope_of(std::string(kScopeTextLimit + 1, 'x'))));
  for (const char* text : {"\x1b[2J", "a\rb", "a\x7f", "a\x08"})
    EXPECT_FALSE(check_information(scope_of(text))) << text;
  EXPECT_FALSE(check_information(scope_of(std::string("a\0b", 3))));
  ScopeInformation scope = scope_of("text");
  for (const std::string& family : {std::string(), std::string(kScopeFamilyLimit + 1, 'f'), std::string("\x1b[1m")}) {
    scope.family = family;
    EXPECT_FALSE(check_information(scope)) << family.size();
  }
}

TEST(ScopeText, NoBytesButItsOwnAreOne) {
  const ScopeInformation scope = scope_of("text");
  const std::string value = encode_information(scope);
  for (size_t size = 0; size < value.size(); ++size) {
    EXPECT_EQ(decode_information(scope.id, std::string_view(value).substr(0, size)), std::nullopt) << size;
  }
  EXPECT_EQ(decode_information(scope.id, value + "x"), std::nullopt);
  std::string newer = value;
  newer[0] = 2;
  EXPECT_EQ(decode_information(scope.id, newer), std::nullopt);
  std::string longer = value;
  longer[1] = '\xff';
  EXPECT_EQ(decode_information(scope.id, longer), std::nullopt);
}

TEST(Announcements, SendsOnceAndAgainAfterAFailureOrAnInterval) {
  Announcements announcements(Milliseconds(1000));
  const SteadyTime start{};
  const ScopeInformation scope = scope_of("a");
  EXPECT_EQ(announcements.due(scope.id, start + Milliseconds(5000)), std::nullopt) << "nobody has announced it";
  EXPECT_TRUE(announcements.claim(scope, start));
  EXPECT_FALSE(announcements.claim(scope, start));
  announcements.failed(scope.id);
  EXPECT_TRUE(announcements.claim(scope, start));
  EXPECT_EQ(announcements.due(scope.id, start + Milliseconds(999)), std::nullopt);
  EXPECT_EQ(announcements.due(scope.id, start + Milliseconds(1000)), scope);
  EXPECT_EQ(announcements.due(scope.id, start + Milliseconds(1999)), std::nullopt);
  EXPECT_EQ(announcements.due(scope.id, start + Milliseconds(2000)), scope);
}

TEST(Announcements, ForgetsTheOldestBeyondItsLimit) {
  Announcements announcements(Milliseconds(1000));
  const auto at = [](size_t i) { return SteadyTime{} + Milliseconds(i); };
  for (size_t i = 0; i <= Announcements::kLimit; ++i) {
    EXPECT_TRUE(announcements.claim(scope_of(std::to_string(i)), at(i)));
  }
  EXPECT_FALSE(announcements.claim(scope_of("1"), at(999)));
  EXPECT_TRUE(announcements.claim(scope_of("0"), at(999)));
}

}  // namespace
}  // namespace inductorfs::remote
