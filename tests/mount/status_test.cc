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
  config::Settings settings;
  settings.mountpoint = "/m";
  settings.also = {{"n", "/p"}, {"nobody was asked about", "/q"}};
  const Json where = Json::parse(where_json(settings, {"failed: in the way"}));
  EXPECT_EQ(where["mountpoint"], "/m");
  EXPECT_EQ(where["also"][0], (Json{{"name", "n"}, {"path", "/p"}, {"state", "failed: in the way"}}));
  EXPECT_EQ(where["also"][1]["state"], "not known");
}

}  // namespace
}  // namespace inductorfs::mount
