// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/status.h"

#include <gtest/gtest.h>

#include "inductorfs/config/json.h"

namespace inductorfs::mount {

using config::Json;
using config::to_line;

namespace {

TEST(ExplanationJson, TakesAPathOfAnyBytes) {
  vfs::Explanation explanation;
  explanation.path = "a\xff\n";
  const Json json = Json::parse(explanation_json(explanation, Json::object()));
  EXPECT_TRUE(json["path"].is_string());
  EXPECT_EQ(json["visible"], false);
  EXPECT_EQ(explanation_json(explanation, Json::object()).find('\n'), std::string::npos);
}

TEST(WhereJson, NamesTheFurtherPlaces) {
  places::AlsoState state;
  state.also = {"n", "/p"};
  state.kind = places::AlsoState::Kind::kFailed;
  state.why = "in the way";
  const Json where = Json::parse(where_json("/m", {state}));
  EXPECT_EQ(where["mountpoint"], "/m");
  EXPECT_EQ(where["also"][0]["state"], "failed: in the way");
}

}  // namespace
}  // namespace inductorfs::mount
