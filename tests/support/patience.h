// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How much longer a test waits, and lets something take, in a build with a sanitizer.
namespace inductorfs::testing {

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define INDUCTORFS_TEST_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INDUCTORFS_TEST_SANITIZED 1
#endif

#ifdef INDUCTORFS_TEST_SANITIZED
inline constexpr int kSlowness = 6;
#else
inline constexpr int kSlowness = 1;
#endif

}  // namespace inductorfs::testing
