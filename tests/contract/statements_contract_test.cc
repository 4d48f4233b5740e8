// SPDX-License-Identifier: Apache-2.0
// Statements (remote/statements.h) over each cluster.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "clusters.h"

namespace inductorfs::remote {
namespace {

constexpr Milliseconds kLong{60'000};
const std::string kScope(64, 'a');
const std::string kOtherScope(64, 'b');
using Texts = std::vector<std::string>;

std::string key(size_t number) {
  std::string text = std::to_string(number);
  return std::string(kCoverKeySize - text.size(), '\0') + text;
}

bool eventually(const std::function<bool()>& condition) {
  const Deadline deadline = Deadline::after(Milliseconds(20'000));
  while (!condition()) {
    if (deadline.passed()) return false;
  }
  return true;
}

class StatementsContract : public OverClusters {
 protected:
  Result<void> put(std::string_view bytes, const Texts& keys, Milliseconds lifetime = kLong) {
    return remote.statements->put_statement(kScope, bytes, keys, lifetime, soon());
  }
  Texts find(const Texts& keys, const std::string& scope = kScope) {
    return other.statements->find_statements(scope, keys, soon()).value();
  }
  Texts read(const Texts& ids, const std::string& scope = kScope) {
    return other.statements->read_statements(scope, ids, soon()).value();
  }
};

TEST_P(StatementsContract, WhatIsCoveredHasTheStatementOfItsScope) {
  const std::string bytes("one\0statement", 13);
  ASSERT_TRUE(put(bytes, {key(1), key(2)}));
  const std::string id = statement_id(bytes);
  EXPECT_EQ(id.size(), kStatementIdSize);
  EXPECT_EQ(find({key(2), key(3), key(1)}), (Texts{id, "", id}));
  EXPECT_EQ(find({key(1)}, kOtherScope), Texts{""});
  EXPECT_EQ(read({std::string(kStatementIdSize, 'x'), id}), (Texts{"", bytes}));
  EXPECT_EQ(read({id}, kOtherScope), Texts{""});
  EXPECT_TRUE(find({}).empty());
  EXPECT_TRUE(read({}).empty());
}

TEST_P(StatementsContract, TheLastStatementCovers) {
  ASSERT_TRUE(put("first", {key(1), key(2)}));
  ASSERT_TRUE(put("second", {key(2)}));
  EXPECT_EQ(find({key(1), key(2)}), (Texts{statement_id("first"), statement_id("second")}));
  EXPECT_EQ(read({statement_id("first"), statement_id("second")}), (Texts{"first", "second"}));
}

TEST_P(StatementsContract, AStatementEndsWithItsLifetimeAndIsWrittenAnew) {
  ASSERT_TRUE(put("text", {key(1)}, Milliseconds(50)));
  EXPECT_TRUE(eventually([&] { return read({statement_id("text")}) == Texts{""}; }));
  ASSERT_TRUE(put("text", {key(1)}));
  EXPECT_EQ(read({statement_id("text")}), Texts{"text"});
}

TEST_P(StatementsContract, ManyAndLargeOnesComeInTheirOrder) {
  Texts keys;
  Texts ids;
  Texts all;
  for (size_t i = 0; i < kCoveredLimit; ++i) {
    keys.push_back(key(i));
    all.push_back(std::to_string(i) + std::string(kStatementLimit - 8, 's'));
    ids.push_back(statement_id(all.back()));
    ASSERT_TRUE(put(all.back(), {keys.back()}));
  }
  EXPECT_EQ(find(keys), ids);
  EXPECT_TRUE(read(ids) == all);
  ASSERT_TRUE(put("of all", keys));
  EXPECT_EQ(find(keys), Texts(kCoveredLimit, statement_id("of all")));
}

TEST_P(StatementsContract, WhatIsNoStatementIsRefused) {
  EXPECT_EQ(put("", {key(1)}).error().code(), ErrorCode::kInvalid);
  EXPECT_EQ(put(std::string(kStatementLimit + 1, 's'), {key(1)}).error().code(), ErrorCode::kInvalid);
  EXPECT_EQ(put("text", {}).error().code(), ErrorCode::kInvalid);
  EXPECT_EQ(put("text", {"short"}).error().code(), ErrorCode::kInvalid);
  EXPECT_EQ(put("text", Texts(kCoveredLimit + 1, key(1))).error().code(), ErrorCode::kInvalid);
  EXPECT_EQ(put("text", {key(1)}, Milliseconds(0)).error().code(), ErrorCode::kInvalid);
  EXPECT_FALSE(other.statements->find_statements(kScope, Texts(kCoveredLimit + 1, key(1)), soon()));
  EXPECT_FALSE(other.statements->read_statements(kScope, Texts(kCoveredLimit + 1, "id"), soon()));
  EXPECT_EQ(find({key(1)}), Texts{""});
}

INSTANTIATE_TEST_SUITE_P(Over, StatementsContract, shared_clusters(), name_of_kind);

}  // namespace
}  // namespace inductorfs::remote
