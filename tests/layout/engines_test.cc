// SPDX-License-Identifier: Apache-2.0
// What the table of engines takes for granted of its rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "layout/engines/engine.h"

namespace inductorfs::layout {
namespace {

TEST(Engines, BeginTheirPathsWithNamesOfTheirOwn) {
  std::set<std::string_view> names;
  std::vector<bool (*)(std::string_view)> shapes;
  for (const Engine* const engine : kEngines) {
    for (const EngineTree& tree : engine->trees) {
      ASSERT_FALSE(tree.first.is_end() || tree.places.empty());
      EXPECT_EQ(tree.first.digits, 0U);
      if (tree.first.shape != nullptr) {
        shapes.push_back(tree.first.shape);
      } else {
        EXPECT_TRUE(names.insert(tree.first.text).second) << tree.first.text;
      }
    }
  }
  EXPECT_EQ(shapes.size(), 1U) << "two shapes could fit one name";
  for (const auto name : names)
    EXPECT_TRUE(std::ranges::none_of(shapes, [&](auto fits) { return fits(name); })) << name;
}

TEST(Engines, HaveAPathAndACheckForEachFamily) {
  std::set<Family> reached;
  for (const Engine* const engine : kEngines) {
    for (const EngineTree& tree : engine->trees) {
      for (const EnginePlace& place : tree.places) reached.insert(place.family);
    }
  }
  for (const Engine* const engine : kEngines) {
    EXPECT_FALSE(engine->caches.empty());
    EXPECT_NE(engine->check, nullptr);
    for (const Rule& rule : engine->rules) {
      EXPECT_TRUE(rule.shared) << rule.name << ": what is private is engine_private";
      EXPECT_TRUE(reached.contains(rule.family)) << rule.name;
      EXPECT_TRUE(needs_whole(rule.family)) << rule.name;
      EXPECT_EQ(engine_of(rule.family), engine);
    }
  }
  EXPECT_EQ(engine_of(Family::kFxGraph), nullptr);
  EXPECT_EQ(engine_of(Family::kDynamo), nullptr);
}

TEST(Engines, HaveAnIndexBesideWhatItNames) {
  const std::string tagged = "vllm/torch_compile_cache/0123456789/rank_0_0/backbone/";
  EXPECT_EQ(index_beside(tagged + "artifact_compile_range_1_128_subgraph_0"), tagged + "vllm_compile_cache.py");
  EXPECT_EQ(index_beside("mine/artifact_compile_range_1_128_subgraph_0"), std::nullopt);
  EXPECT_EQ(index_beside("notes"), std::nullopt);
}

TEST(UserCaches, HaveEachVariableOnce) {
  std::set<std::string_view> variables;
  for (const UserCache& cache : user_caches()) EXPECT_TRUE(variables.insert(cache.variable).second) << cache.variable;
  for (const char* name : {"TORCHINDUCTOR_CACHE_DIR", "VLLM_CACHE_ROOT", "CUDA_CACHE_PATH"}) {
    EXPECT_TRUE(variables.contains(name)) << name;
  }
}

}  // namespace
}  // namespace inductorfs::layout
