// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cerrno>
#include <map>

#include "../../src/fuse/convert.h"

namespace inductorfs::fuse {
namespace {

// docs/semantics/file-operations.md prints this table.
const std::map<ErrorCode, int> kExpected = {{ErrorCode::kNotFound, ENOENT},
                                            {ErrorCode::kExists, EEXIST},
                                            {ErrorCode::kNotDirectory, ENOTDIR},
                                            {ErrorCode::kIsDirectory, EISDIR},
                                            {ErrorCode::kNotEmpty, ENOTEMPTY},
                                            {ErrorCode::kInvalid, EINVAL},
                                            {ErrorCode::kNameTooLong, ENAMETOOLONG},
                                            {ErrorCode::kTooLarge, EFBIG},
                                            {ErrorCode::kNoSpace, ENOSPC},
                                            {ErrorCode::kOverQuota, EDQUOT},
                                            {ErrorCode::kReadOnly, EROFS},
                                            {ErrorCode::kNotPermitted, EPERM},
                                            {ErrorCode::kNotSupported, EOPNOTSUPP},
                                            {ErrorCode::kCrossDevice, EXDEV},
                                            {ErrorCode::kNoData, ENODATA},
                                            {ErrorCode::kBusy, EBUSY},
                                            {ErrorCode::kUnavailable, EIO},
                                            {ErrorCode::kTimedOut, ETIMEDOUT},
                                            {ErrorCode::kCorrupt, EIO},
                                            {ErrorCode::kInternal, EIO},
                                            {ErrorCode::kNoSuchOffset, ENXIO}};

constexpr int kCodes = static_cast<int>(ErrorCode::kInternal) + 1;

TEST(ErrnoMap, GivesEachCodeItsErrno) {
  ASSERT_EQ(kExpected.size(), static_cast<size_t>(kCodes));
  for (int i = 0; i < kCodes; ++i) {
    const auto code = static_cast<ErrorCode>(i);
    EXPECT_EQ(to_errno(code), kExpected.at(code)) << to_string(code);
  }
}

TEST(ErrnoMap, NeverSaysENOSYSWhichTheKernelWouldRememberForEver) {
  for (int i = 0; i < kCodes; ++i) EXPECT_NE(to_errno(static_cast<ErrorCode>(i)), ENOSYS);
}

TEST(ErrnoMap, IsTheInverseOfErrorFromErrnoWhereAFileSystemSpeaks) {
  for (const int value : {ENOENT, EEXIST, ENOTDIR, EISDIR, ENOTEMPTY, EINVAL, ENAMETOOLONG, EFBIG, ENOSPC, EROFS, EPERM,
                          EOPNOTSUPP, EXDEV, ENODATA, EBUSY, ENXIO}) {
    EXPECT_EQ(to_errno(error_from_errno(value, "test").code()), value);
  }
}

}  // namespace
}  // namespace inductorfs::fuse
