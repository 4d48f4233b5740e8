// SPDX-License-Identifier: Apache-2.0
#include <cerrno>

#include "convert.h"

namespace inductorfs::fuse {

int to_errno(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kNotFound:
      return ENOENT;
    case ErrorCode::kExists:
      return EEXIST;
    case ErrorCode::kNotDirectory:
      return ENOTDIR;
    case ErrorCode::kIsDirectory:
      return EISDIR;
    case ErrorCode::kNotEmpty:
      return ENOTEMPTY;
    case ErrorCode::kInvalid:
      return EINVAL;
    case ErrorCode::kNameTooLong:
      return ENAMETOOLONG;
    case ErrorCode::kTooLarge:
      return EFBIG;
    case ErrorCode::kNoSpace:
      return ENOSPC;
    case ErrorCode::kOverQuota:
      return EDQUOT;
    case ErrorCode::kReadOnly:
      return EROFS;
    case ErrorCode::kNotPermitted:
      return EPERM;
    case ErrorCode::kNotSupported:
      return EOPNOTSUPP;
    case ErrorCode::kCrossDevice:
      return EXDEV;
    case ErrorCode::kNoData:
      return ENODATA;
    case ErrorCode::kNoSuchOffset:
      return ENXIO;
    case ErrorCode::kBusy:
      return EBUSY;
    case ErrorCode::kTimedOut:
      return ETIMEDOUT;
    // What no local file system would say: a reader can only treat it as a failed disk.
    case ErrorCode::kUnavailable:
    case ErrorCode::kCorrupt:
    case ErrorCode::kInternal:
      return EIO;
  }
  return EIO;
}

}  // namespace inductorfs::fuse
