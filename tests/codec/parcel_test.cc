// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/codec/parcel.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "inductorfs/base/encoding.h"
#include "inductorfs/codec/entry.h"

namespace inductorfs::codec {
namespace {

std::vector<ParcelItem> some_items() {
  return {{"b", false, 0600, -5, 3}, {"a", true, 0755, 7, 0}, {"a/x", false, 0644, 1, 0}, {"a.txt", false, 0644, 2, 4}};
}

std::string head_of(std::vector<ParcelItem> items) {
  const auto head = encode_parcel_head(items);
  EXPECT_TRUE(head) << head.error().what();
  return head.value_or(std::string());
}

/// A head with these items as they are, in their order, whatever they are.
std::string raw_head(const std::vector<ParcelItem>& items) {
  std::string rest;
  append_integer(rest, static_cast<uint32_t>(items.size()));
  for (const ParcelItem& item : items) {
    append_integer(rest, static_cast<uint8_t>(item.directory ? 'D' : 'F'));
    append_integer(rest, static_cast<uint16_t>(item.mode));
    append_integer(rest, static_cast<uint64_t>(item.mtime_ns));
    append_integer(rest, item.size);
    append_integer(rest, static_cast<uint16_t>(item.path.size()));
    rest += item.path;
  }
  std::string head("IFSP\1\0\0\0", 8);
  append_integer(head, static_cast<uint32_t>(kParcelPreambleSize + rest.size()));
  return head + rest;
}

ErrorCode refusal(const std::string& bytes) {
  const auto head = decode_parcel_head(bytes);
  return head ? ErrorCode::kInternal : head.error().code();
}

TEST(Parcel, ComesBackAsItWas) {
  auto items = some_items();
  const auto head = encode_parcel_head(items);
  ASSERT_TRUE(head);
  std::vector<std::string> order;
  for (const ParcelItem& item : items) order.push_back(item.path);
  EXPECT_EQ(order, (std::vector<std::string>{"a", "a.txt", "a/x", "b"})) << "as bytes";
  EXPECT_EQ(*head, raw_head(items));

  const std::string parcel = *head + "text" + "bbb";
  EXPECT_EQ(parcel_head_size(parcel).value_or(0), head->size());
  const auto decoded = decode_parcel_head(parcel);
  ASSERT_TRUE(decoded) << decoded.error().what();
  EXPECT_EQ(decoded->items, items);
  EXPECT_EQ(decoded->size, head->size());
  EXPECT_EQ(decoded->whole(), parcel.size());
  const auto bodies = parcel_bodies(*decoded, parcel);
  ASSERT_TRUE(bodies);
  EXPECT_EQ(*bodies, (std::vector<std::string_view>{"", "text", "", "bbb"}));
}

TEST(Parcel, IsTheSameForTheSameFiles) {
  auto items = some_items();
  const std::string one = head_of(items);
  std::swap(items.front(), items.back());
  EXPECT_EQ(head_of(items), one);
}

TEST(Parcel, MayBeEmpty) {
  const std::string head = head_of({});
  const auto decoded = decode_parcel_head(head);
  ASSERT_TRUE(decoded);
  EXPECT_TRUE(decoded->items.empty());
  EXPECT_EQ(decoded->whole(), head.size());
  EXPECT_TRUE(parcel_bodies(*decoded, head));
}

TEST(Parcel, IsRefusedWhenItIsCutOffAnywhere) {
  const std::string head = head_of(some_items());
  for (size_t size = 0; size < head.size(); ++size) {
    EXPECT_EQ(refusal(head.substr(0, size)), ErrorCode::kCorrupt) << size;
    EXPECT_EQ(parcel_head_size(head.substr(0, size)).has_value(), size >= kParcelPreambleSize) << size;
  }
  const auto decoded = decode_parcel_head(head);
  ASSERT_TRUE(decoded);
  const std::string whole = head + "text" + "bbb";
  for (size_t size = head.size(); size < whole.size(); ++size) {
    EXPECT_FALSE(parcel_bodies(*decoded, std::string_view(whole).substr(0, size))) << size;
  }
  EXPECT_FALSE(parcel_bodies(*decoded, whole + "x"));
}

TEST(Parcel, IsRefusedWhenItsHeadIsDamaged) {
  const std::string head = head_of(some_items());
  const auto with = [&head](size_t at, char value) {
    std::string bytes = head;
    bytes[at] = value;
    return bytes;
  };
  EXPECT_EQ(refusal(with(0, 'X')), ErrorCode::kCorrupt);
  EXPECT_EQ(refusal(with(4, 0)), ErrorCode::kCorrupt) << "version 0";
  EXPECT_EQ(refusal(with(4, 2)), ErrorCode::kNotSupported) << "of a newer release";
  for (const size_t reserved : {5, 6, 7}) EXPECT_EQ(refusal(with(reserved, 1)), ErrorCode::kCorrupt);
  EXPECT_EQ(refusal(with(8, static_cast<char>(head[8] + 1)) + "more"), ErrorCode::kCorrupt) << "longer than its items";
  EXPECT_EQ(refusal(with(8, static_cast<char>(head[8] - 1))), ErrorCode::kCorrupt) << "shorter than its items";
  EXPECT_EQ(refusal(with(8, 3)), ErrorCode::kCorrupt) << "shorter than what is before it";
  EXPECT_EQ(refusal(with(11, 1)), ErrorCode::kCorrupt) << "over the limit";
  EXPECT_EQ(refusal(with(kParcelPreambleSize, 5)), ErrorCode::kCorrupt) << "one item more than there is";
  EXPECT_EQ(refusal(with(kParcelPreambleSize, 3)), ErrorCode::kCorrupt) << "one item fewer";
  EXPECT_EQ(refusal(with(kParcelPreambleSize + 4, 'L')), ErrorCode::kCorrupt) << "a link";
}

/// What the encoder refuses, the decoder refuses too: nothing that comes from another host reaches out of its
/// directory.
TEST(Parcel, HasNoItemThatCouldDoHarm) {
  const std::vector<std::pair<std::string, std::vector<ParcelItem>>> cases{
      {"up", {{"..", true}, {"../x", false}}},
      {"absolute", {{"/x", false}}},
      {"empty", {{"", false}}},
      {"dot", {{".", true}}},
      {"a NUL", {{std::string("a\0b", 3), false}}},
      {"an empty component", {{"a", true}, {"a//b", false}}},
      {"a trailing slash", {{"a/", true}}},
      {"longer than a path", {{std::string(kPathLimit + 1, 'x'), false}}},
      {"twice", {{"a", false}, {"a", false}}},
      {"in no directory", {{"a/x", false}}},
      {"below a file", {{"a", false}, {"a/x", false}}},
      {"below a directory of another's", {{"a", true}, {"a/b/x", false}}},
      {"a directory with bytes", {{"a", true, 0755, 0, 1}}},
      {"setuid", {{"a", false, 04755, 0, 0}}},
      {"sizes beyond all numbers",
       {{"a", false, 0644, 0, std::numeric_limits<int64_t>::max()}, {"b", false, 0644, 0, 1}}},
      {"a size beyond all numbers", {{"a", false, 0644, 0, std::numeric_limits<uint64_t>::max()}}},
  };
  for (const auto& [what, items] : cases) {
    EXPECT_EQ(refusal(raw_head(items)), ErrorCode::kCorrupt) << what;
    auto given = items;
    const auto encoded = encode_parcel_head(given);
    ASSERT_FALSE(encoded) << what;
    EXPECT_EQ(encoded.error().code(), ErrorCode::kInvalid) << what;
  }
  EXPECT_EQ(refusal(raw_head({{"b", false}, {"a", false}})), ErrorCode::kCorrupt) << "out of order";
}

TEST(Parcel, HasLimits) {
  const auto items = [](size_t count, size_t length) {
    std::vector<ParcelItem> many;
    for (size_t i = 0; i < count; ++i) {
      std::string path = std::to_string(i);
      path.resize(length, 'x');
      many.push_back({path, false});
    }
    return many;
  };
  auto most = items(kParcelItemLimit, 10);
  EXPECT_TRUE(encode_parcel_head(most));
  EXPECT_TRUE(decode_parcel_head(raw_head(most)));
  auto more = items(kParcelItemLimit + 1, 10);
  EXPECT_FALSE(encode_parcel_head(more));
  EXPECT_EQ(refusal(raw_head(more)), ErrorCode::kCorrupt);
  auto long_paths = items(kParcelItemLimit, kPathLimit);
  EXPECT_FALSE(encode_parcel_head(long_paths)) << "over kParcelHeadLimit";
  EXPECT_EQ(refusal(raw_head(long_paths)), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace inductorfs::codec
