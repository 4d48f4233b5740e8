// SPDX-License-Identifier: Apache-2.0
#include "layers.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "inductorfs/base/fd.h"
#include "support/temporary_directory.h"

namespace inductorfs::daemon {
namespace {

using fingerprint::Facet;
using fingerprint::Fact;
using fingerprint::Fingerprint;

Fact known(const std::string& value) {
  Fact fact;
  fact.known = true;
  fact.value = value;
  return fact;
}

Fingerprint all_known() {
  Fingerprint facts;
  for (const Facet facet : fingerprint::kAllFacets) {
    facts.set(facet, known("v=" + std::string(fingerprint::to_string(facet))));
  }
  return facts;
}

const std::string kCode = "ab/cab" + std::string(49, 'a') + ".py";

TEST(Scopes, AcceptAnEntryOnlyInTheScopeOfItsFamily) {
  const Scopes scopes(all_known());
  const std::string code = scopes.of(layout::Family::kGeneratedCode).id;
  const std::string dynamo = scopes.of(layout::Family::kFxGraph).id;
  ASSERT_FALSE(code.empty());
  ASSERT_NE(code, dynamo);

  EXPECT_TRUE(scopes.accepts(code, kCode));
  EXPECT_FALSE(scopes.accepts(dynamo, kCode));
  EXPECT_FALSE(scopes.accepts("", kCode));
  EXPECT_FALSE(scopes.accepts(code, "locks/x.lock"));
  EXPECT_FALSE(scopes.accepts(code, "../etc/passwd"));
}

TEST(Scopes, AreDistinctIdsOfSharedFamilies) {
  const std::vector<remote::ScopeId> ids = Scopes(all_known()).ids();
  ASSERT_FALSE(ids.empty());
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), ids.size());
  EXPECT_FALSE(std::find(ids.begin(), ids.end(), "") != ids.end());
}

TEST(Scopes, LeaveAFamilyPrivateWhenAFactIsNotKnown) {
  Fingerprint facts = all_known();
  Fact unknown;
  unknown.problem = "no torch here";
  facts.set(Facet::kTorch, unknown);
  const Scopes scopes(facts);

  EXPECT_TRUE(scopes.of(layout::Family::kGeneratedCode).id.empty());
  EXPECT_FALSE(scopes.accepts("", kCode));
  bool named = false;
  for (const PrivateFamily& family : private_families(scopes)) {
    named = named || (family.family == layout::rule_of(layout::Family::kGeneratedCode).name &&
                      family.why.find("no torch here") != std::string::npos);
  }
  EXPECT_TRUE(named);
  EXPECT_TRUE(private_families(Scopes(all_known())).empty());
}

TEST(LearnFacts, TakesAFileInsteadOfTheHost) {
  const testing::TemporaryDirectory directory;
  const std::string file = directory / "f.json";
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, file, all_known().to_json()).has_value());

  const Result<Fingerprint> facts = learn_facts(file, "", "");

  ASSERT_TRUE(facts.has_value()) << facts.error().what();
  EXPECT_EQ(facts->get(Facet::kGpu).value, "v=gpu");
}

TEST(LearnFacts, NamesAFileThatIsNone) {
  const testing::TemporaryDirectory directory;
  const std::string file = directory / "f.json";
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, file, "[]").has_value());
  EXPECT_EQ(learn_facts(file, "", "").error().what().find("no fingerprint: " + file + ": "), 0U);
  EXPECT_NE(learn_facts(directory / "none", "", "").error().what().find("it does not exist"), std::string::npos);
}

TEST(WrongServer, IsOneThatAnsweredSo) {
  EXPECT_TRUE(is_wrong_server(Error(ErrorCode::kInvalid)));
  EXPECT_TRUE(is_wrong_server(Error(ErrorCode::kNotSupported)));
  EXPECT_TRUE(is_wrong_server(Error(ErrorCode::kNotPermitted)));
  EXPECT_FALSE(is_wrong_server(Error(ErrorCode::kUnavailable)));
  EXPECT_FALSE(is_wrong_server(Error(ErrorCode::kTimedOut)));
}

TEST(LogPath, IsInTheStoreUnlessInTheForeground) {
  Settings settings;
  settings.store = "/s";
  EXPECT_EQ(log_path(settings), "/s/log");
  settings.foreground = true;
  EXPECT_EQ(log_path(settings), "");
  settings.log = "/l";
  EXPECT_EQ(log_path(settings), "/l");
}

}  // namespace
}  // namespace inductorfs::daemon
