// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

/// How every fallible function of this project answers: with a value, or with one Error of a closed set of codes.
///
/// A miss is not an error: functions named `find` answer an empty optional. This project throws no exceptions for its
/// own errors; those of libraries are caught at the FUSE boundary and at thread entries (ADR 0003).
namespace inductorfs {

/// What went wrong, in terms on which callers can act. The mapping to errno is in exactly one place (fuse/errno_map.h)
/// and is printed in docs/semantics/file-operations.md; a test walks all codes.
enum class ErrorCode {
  kNotFound,
  kExists,
  kNotDirectory,
  kIsDirectory,
  kNotEmpty,
  kInvalid,
  kNameTooLong,
  kTooLarge,
  kNoSpace,
  kOverQuota,  ///< of the mount's own limits by user; a quota of the disk is kNoSpace
  kReadOnly,
  kNotPermitted,
  kNotSupported,
  kCrossDevice,
  kNoData,
  kNoSuchOffset,
  kBusy,
  kUnavailable,
  kTimedOut,
  kCorrupt,
  kInternal,
};

/// Returns the code's name as it appears in logs and documents, e.g. "not_found".
[[nodiscard]] std::string_view to_string(ErrorCode code) noexcept;

/// A code and, for codes that a person will read about, one line: what, where, and the remedy if there is one. Codes on
/// the hot path (kNotFound, kExists) carry no text and allocate nothing. Needs external synchronisation.
class [[nodiscard]] Error {
 public:
  explicit Error(ErrorCode code) noexcept : code_(code) {}
  Error(ErrorCode code, std::string what) noexcept : code_(code), what_(std::move(what)) {}

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }
  [[nodiscard]] const std::string& what() const noexcept { return what_; }
  /// Returns "code: text", for logs and the command line.
  /// For the log: "unavailable: connection refused".
  [[nodiscard]] std::string to_string() const;
  /// For people: "connection refused"; where nobody has said more, what the code means.
  [[nodiscard]] std::string text() const;
  /// Returns the same error with "context: " before its text; the code stays.
  [[nodiscard]] Error with_context(std::string_view context) &&;

 private:
  ErrorCode code_;
  std::string what_;
};

template <typename T>
using Result = tl::expected<T, Error>;

[[nodiscard]] inline tl::unexpected<Error> fail(ErrorCode code) { return tl::make_unexpected(Error(code)); }
[[nodiscard]] inline tl::unexpected<Error> fail(ErrorCode code, std::string what) {
  return tl::make_unexpected(Error(code, std::move(what)));
}
[[nodiscard]] inline tl::unexpected<Error> fail(Error error) { return tl::make_unexpected(std::move(error)); }

/// Converts errno to an Error; the only place that does so. ENOENT and EEXIST carry no text; all others say "operation
/// path: strerror".
[[nodiscard]] Error error_from_errno(int saved_errno, std::string_view operation, std::string_view path = {});
[[nodiscard]] inline tl::unexpected<Error> fail_errno(std::string_view operation, std::string_view path = {}) {
  return tl::make_unexpected(error_from_errno(errno, operation, path));
}

/// Ends the process with a message because an invariant is broken; this stays on in release builds.
[[noreturn]] void check_failed(const char* expression, const char* file, int line) noexcept;

}  // namespace inductorfs

#define INDUCTORFS_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::inductorfs::check_failed(#condition, __FILE__, __LINE__))

/// Returns the error of a Result<> from the calling function, which itself returns some Result.
#define INDUCTORFS_TRY(...)                                         \
  do {                                                              \
    if (auto&& try_result_ = (__VA_ARGS__); !try_result_) {         \
      return ::tl::make_unexpected(std::move(try_result_).error()); \
    }                                                               \
  } while (false)

/// Evaluates a Result<T>. Returns its error from the calling function if it has one; else initialises or assigns
/// `target` with its value:   INDUCTORFS_TRY_ASSIGN(const auto file, open_at(directory, name, O_RDONLY));
#define INDUCTORFS_TRY_ASSIGN(target, ...) \
  INDUCTORFS_TRY_ASSIGN_TO_(INDUCTORFS_TRY_NAME_(try_result_, __LINE__), target, __VA_ARGS__)
#define INDUCTORFS_TRY_NAME_(name, line) INDUCTORFS_TRY_NAME_OF_LINE_(name, line)
#define INDUCTORFS_TRY_NAME_OF_LINE_(name, line) name##line
#define INDUCTORFS_TRY_ASSIGN_TO_(result, target, ...)                    \
  auto result = (__VA_ARGS__);                                            \
  if (!(result)) return ::tl::make_unexpected(std::move(result).error()); \
  target = *std::move(result)
