// SPDX-License-Identifier: Apache-2.0
#pragma once

/// INDUCTORFS_SANITIZED is defined in a build with ASan or TSan, which stand between a program and its C library:
/// malloc is theirs, and mlock does nothing.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INDUCTORFS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define INDUCTORFS_SANITIZED 1
#endif
#endif
