// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/config/also_json.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "inductorfs/base/fd.h"
#include "inductorfs/places/also_record.h"
#include "inductorfs/places/also_state_json.h"
#include "support/temporary_directory.h"

namespace inductorfs::places {
namespace {

using config::Json;

AlsoState failed() {
  return {{"headers", "/tmp/\xff \n"}, AlsoState::Kind::kFailed, "in the way", {"/tmp/\xff"}, {77, "0:51"}};
}

void expect_equal(const AlsoState& one, const AlsoState& other) {
  EXPECT_EQ(one.also, other.also);
  EXPECT_EQ(one.kind, other.kind);
  EXPECT_EQ(one.why, other.why);
  EXPECT_EQ(one.made, other.made);
  EXPECT_EQ(one.bound, other.bound);
}

TEST(AlsoJson, KeepsAPlace) {
  const config::Also also{"headers", "/tmp/\xff"};
  EXPECT_EQ(config::also_from_json(Json::from_cbor(Json::to_cbor(config::also_to_json(also)))), also);
  for (const Json& other : {Json(), Json(7), Json::array(), Json{{"name", "n"}}, Json{{"name", "n"}, {"path", 1}}}) {
    EXPECT_FALSE(config::also_from_json(other).has_value()) << other;
  }
}

TEST(AlsoJson, KeepsAState) {
  const auto read = state_from_json(Json::from_cbor(Json::to_cbor(state_to_json(failed()))));
  ASSERT_TRUE(read.has_value());
  expect_equal(*read, failed());
}

TEST(AlsoJson, IsNothingElse) {
  const Json whole = state_to_json(failed());
  for (const char* name : {"name", "path", "kind", "why", "made"}) {
    Json damaged = whole;
    damaged.erase(name);
    EXPECT_FALSE(state_from_json(damaged).has_value()) << name;
    damaged[name] = Json::object();
    EXPECT_FALSE(state_from_json(damaged).has_value()) << name;
  }
  Json unknown = whole;
  unknown["kind"] = 4;
  EXPECT_FALSE(state_from_json(unknown).has_value());
}

}  // namespace
}  // namespace inductorfs::places
