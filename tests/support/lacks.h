// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

namespace inductorfs::testing {

/// Where CI is set nothing may be lacking: a test that is skipped there is one that nobody runs.
[[nodiscard]] inline bool skips_are_failures() {
  const char* ci = std::getenv("CI");
  return ci != nullptr && *ci != '\0';
}

}  // namespace inductorfs::testing

/// Ends the test (or SetUp) here, because this host lacks `what`: a skip that says so, a failure where CI is set;
/// lack() of inductorfs_testing/fixtures.py is its like. The only place that may skip a test of gtest.
#define INDUCTORFS_LACKS(what)                                                       \
  do {                                                                               \
    if (::inductorfs::testing::skips_are_failures()) {                               \
      FAIL() << "this test may not be skipped in CI, and the host lacks " << (what); \
    } else {                                                                         \
      GTEST_SKIP() << "NOT TESTED: this host lacks " << (what);                      \
    }                                                                                \
  } while (false)
