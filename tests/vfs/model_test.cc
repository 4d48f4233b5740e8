// SPDX-License-Identifier: Apache-2.0
#include "vfs/model.h"

#include <gtest/gtest.h>

#include "vfs/seeds.h"

namespace inductorfs::testing {
namespace {

constexpr int kSteps = 1500;

class Model : public ::testing::TestWithParam<uint32_t> {};

TEST_P(Model, OneHostIsALocalFileSystem) {
  ModelRun run(GetParam(), 1);
  EXPECT_TRUE(run.run(kSteps) && run.settle());
}

TEST_P(Model, TwoHostsShowTheirOwnFilesAndWholeArrivals) {
  ModelRun run(GetParam() + 1000, 2);
  EXPECT_TRUE(run.run(kSteps) && run.settle());
}

TEST_P(Model, WritersOfTheMountsEnvironmentAreLikeAnyOther) {
  ModelRun run(GetParam() + 2000, 2, ModelRun::Writers::kTheMounts);
  EXPECT_TRUE(run.run(kSteps) && run.settle());
}

TEST_P(Model, NothingOfAnotherEnvironmentEverLeavesItsHost) {
  ModelRun run(GetParam() + 3000, 2, ModelRun::Writers::kAnother);
  EXPECT_TRUE(run.run(kSteps) && run.settle());
}

INSTANTIATE_TEST_SUITE_P(Seeds, Model, ::testing::Range(1U, 1U + seeds()));

}  // namespace
}  // namespace inductorfs::testing
