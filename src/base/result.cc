// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/result.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace inductorfs {
namespace {

struct Mapping {
  int number;
  ErrorCode code;
};

/// What is not named here is kInternal: EIO, EMFILE, ENOMEM and the like have no caller who could do better.
constexpr Mapping kMappings[] = {
    {ENOENT, ErrorCode::kNotFound},
    {EEXIST, ErrorCode::kExists},
    {ENOTDIR, ErrorCode::kNotDirectory},
    {EISDIR, ErrorCode::kIsDirectory},
    {ENOTEMPTY, ErrorCode::kNotEmpty},
    {EINVAL, ErrorCode::kInvalid},
    {ELOOP, ErrorCode::kInvalid},
    {ENAMETOOLONG, ErrorCode::kNameTooLong},
    {EFBIG, ErrorCode::kTooLarge},
    {E2BIG, ErrorCode::kTooLarge},
    {EOVERFLOW, ErrorCode::kTooLarge},
    {ENOSPC, ErrorCode::kNoSpace},
    {EDQUOT, ErrorCode::kNoSpace},
    {EROFS, ErrorCode::kReadOnly},
    {EPERM, ErrorCode::kNotPermitted},
    {EACCES, ErrorCode::kNotPermitted},
    {EOPNOTSUPP, ErrorCode::kNotSupported},
    {ENOTTY, ErrorCode::kNotSupported},
    {ENOSYS, ErrorCode::kNotSupported},
    {EXDEV, ErrorCode::kCrossDevice},
    {ENODATA, ErrorCode::kNoData},
    {ENXIO, ErrorCode::kNoSuchOffset},
    {EBUSY, ErrorCode::kBusy},
    {EAGAIN, ErrorCode::kBusy},
    {ETXTBSY, ErrorCode::kBusy},
    {ECONNREFUSED, ErrorCode::kUnavailable},
    {ECONNRESET, ErrorCode::kUnavailable},
    {ECONNABORTED, ErrorCode::kUnavailable},
    {EHOSTUNREACH, ErrorCode::kUnavailable},
    {EHOSTDOWN, ErrorCode::kUnavailable},
    {ENETUNREACH, ErrorCode::kUnavailable},
    {ENETDOWN, ErrorCode::kUnavailable},
    {ENOTCONN, ErrorCode::kUnavailable},
    {EADDRNOTAVAIL, ErrorCode::kUnavailable},
    {EPIPE, ErrorCode::kUnavailable},
    {ETIMEDOUT, ErrorCode::kTimedOut},
    {EBADMSG, ErrorCode::kCorrupt},
    {EUCLEAN, ErrorCode::kCorrupt},
};

ErrorCode code_from_errno(int saved_errno) noexcept {
  for (const Mapping& mapping : kMappings) {
    if (mapping.number == saved_errno) return mapping.code;
  }
  return ErrorCode::kInternal;
}

}  // namespace

std::string_view to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kExists:
      return "exists";
    case ErrorCode::kNotDirectory:
      return "not_directory";
    case ErrorCode::kIsDirectory:
      return "is_directory";
    case ErrorCode::kNotEmpty:
      return "not_empty";
    case ErrorCode::kInvalid:
      return "invalid";
    case ErrorCode::kNameTooLong:
      return "name_too_long";
    case ErrorCode::kTooLarge:
      return "too_large";
    case ErrorCode::kNoSpace:
      return "no_space";
    case ErrorCode::kOverQuota:
      return "over_quota";
    case ErrorCode::kReadOnly:
      return "read_only";
    case ErrorCode::kNotPermitted:
      return "not_permitted";
    case ErrorCode::kNotSupported:
      return "not_supported";
    case ErrorCode::kCrossDevice:
      return "cross_device";
    case ErrorCode::kNoData:
      return "no_data";
    case ErrorCode::kNoSuchOffset:
      return "no_such_offset";
    case ErrorCode::kBusy:
      return "busy";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kTimedOut:
      return "timed_out";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "internal";
}

std::string Error::to_string() const {
  std::string text(inductorfs::to_string(code_));
  if (!what_.empty()) text.append(": ").append(what_);
  return text;
}

std::string Error::text() const {
  std::string words = what_.empty() ? std::string(inductorfs::to_string(code_)) : what_;
  if (what_.empty()) std::ranges::replace(words, '_', ' ');
  return words;
}

Error Error::with_context(std::string_view context) && {
  std::string text(context);
  if (!what_.empty()) text.append(": ").append(what_);
  return {code_, std::move(text)};
}

Error error_from_errno(int saved_errno, std::string_view operation, std::string_view path) {
  const ErrorCode code = code_from_errno(saved_errno);
  if (code == ErrorCode::kNotFound || code == ErrorCode::kExists) return Error(code);
  std::string text(operation);
  if (!path.empty()) text.append(" ").append(path);
  text.append(": ").append(std::generic_category().message(saved_errno));
  return {code, std::move(text)};
}

void check_failed(const char* expression, const char* file, int line) noexcept {
  // Straight to standard error: the log may be what is broken.
  (void)std::fprintf(stderr, "inductorfs: invariant broken: %s (%s:%d)\n", expression, file, line);  // about to abort
  std::abort();
}

}  // namespace inductorfs
