// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/result.h"

#include <gtest/gtest.h>

#include <set>

namespace inductorfs {
namespace {

TEST(ErrorCode, EveryCodeHasItsOwnName) {
  std::set<std::string_view> names;
  const int last = static_cast<int>(ErrorCode::kInternal);
  for (int code = 0; code <= last; ++code) names.insert(to_string(static_cast<ErrorCode>(code)));
  EXPECT_EQ(names.size(), static_cast<size_t>(last) + 1);
}

TEST(Error, TextIsCodeThenWhat) {
  EXPECT_EQ(Error(ErrorCode::kNotFound).to_string(), "not_found");
  EXPECT_EQ(Error(ErrorCode::kBusy, "held").to_string(), "busy: held");
}

TEST(Error, ContextComesFirstAndTheCodeStays) {
  const Error error = Error(ErrorCode::kBusy, "held").with_context("open store");
  EXPECT_EQ(error.code(), ErrorCode::kBusy);
  EXPECT_EQ(error.what(), "open store: held");
  EXPECT_EQ(Error(ErrorCode::kNotFound).with_context("blob").what(), "blob");
}

TEST(ErrorFromErrno, MapsWhatCallersActOn) {
  EXPECT_EQ(error_from_errno(ENOENT, "open", "x").code(), ErrorCode::kNotFound);
  EXPECT_EQ(error_from_errno(ENOSPC, "write").code(), ErrorCode::kNoSpace);
  EXPECT_EQ(error_from_errno(EDQUOT, "write").code(), ErrorCode::kNoSpace);
  EXPECT_EQ(error_from_errno(EROFS, "write").code(), ErrorCode::kReadOnly);
  EXPECT_EQ(error_from_errno(EACCES, "open").code(), ErrorCode::kNotPermitted);
  EXPECT_EQ(error_from_errno(EXDEV, "link").code(), ErrorCode::kCrossDevice);
  EXPECT_EQ(error_from_errno(EIO, "read").code(), ErrorCode::kInternal);
}

TEST(ErrorFromErrno, HotCodesCarryNoText) {
  EXPECT_TRUE(error_from_errno(ENOENT, "open", "x").what().empty());
  EXPECT_TRUE(error_from_errno(EEXIST, "mkdir", "x").what().empty());
  EXPECT_EQ(error_from_errno(ENOSPC, "write", "/x").what(), "write /x: No space left on device");
}

Result<int> doubled(Result<int> input) {
  INDUCTORFS_TRY(input);
  return *input * 2;
}

TEST(Result, TryHandsTheErrorOn) {
  EXPECT_EQ(doubled(4).value(), 8);
  EXPECT_EQ(doubled(fail(ErrorCode::kTimedOut)).error().code(), ErrorCode::kTimedOut);
}

TEST(CheckDeathTest, BrokenInvariantEndsTheProcess) {
  EXPECT_DEATH(INDUCTORFS_CHECK(1 + 1 == 3), "invariant broken: 1 \\+ 1 == 3");
}

}  // namespace
}  // namespace inductorfs
