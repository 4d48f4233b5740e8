// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/remote/write_condition.h"

#include <gtest/gtest.h>

#include "remote/operations/redis_operations.h"

namespace inductorfs::remote {
namespace {

using Write = WriteCondition::Write;

const Error kFull(ErrorCode::kUnavailable, "full");
const Error kReplica(ErrorCode::kUnavailable, "a replica");

TEST(WriteCondition, LastsUntilAWriteOfTheSameKindIsTaken) {
  WriteCondition condition;
  EXPECT_EQ(condition.refusal().why, "");
  EXPECT_EQ(condition.refusal().since, 0);
  condition.refused(Write::kPublish, kFull);
  condition.taken(Write::kRecord);
  EXPECT_EQ(condition.refusal().why, "full");
  EXPECT_GT(condition.refusal().since, 0);
  condition.taken(Write::kPublish);
  EXPECT_EQ(condition.refusal().why, "");
  EXPECT_EQ(condition.refusal().since, 0);
}

TEST(WriteCondition, TellsThePublishBeforeTheRecord) {
  WriteCondition condition;
  condition.refused(Write::kRecord, kReplica);
  EXPECT_EQ(condition.refusal().why, "a replica");
  condition.refused(Write::kPublish, kFull);
  EXPECT_EQ(condition.refusal().why, "full");
}

TEST(WriteCondition, IsOverWhenNothingIsRefusedAnyMore) {
  WriteCondition condition;
  const SteadyTime now = std::chrono::steady_clock::now();
  condition.refused(Write::kPublish, kFull, now);
  EXPECT_EQ(condition.refusal(now + WriteCondition::kRepeated).why, "full");
  EXPECT_EQ(condition.refusal(now + WriteCondition::kRepeated + std::chrono::seconds(1)).why, "");
}

TEST(RefusesWrites, TellsTheServersConditionFromTheUsersRights) {
  const auto error = [](const char* text) {
    redis::Reply reply;
    reply.kind = redis::Reply::Kind::kError;
    reply.text = text;
    return reply;
  };
  for (const char* text : {"OOM command not allowed", "MISCONF Redis is configured", "READONLY You can't write",
                           "NOREPLICAS Not enough good replicas"}) {
    EXPECT_TRUE(refuses_writes(error(text))) << text;
  }
  for (const char* text : {"NOPERM no permissions", "WRONGTYPE Operation", "OOMPH", ""}) {
    EXPECT_FALSE(refuses_writes(error(text))) << text;
  }
}

}  // namespace
}  // namespace inductorfs::remote
