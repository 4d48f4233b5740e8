// SPDX-License-Identifier: Apache-2.0
#include "support/lacks.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace inductorfs::testing {
namespace {

/// CI as a test wants it, while this object lives.
class Ci {
 public:
  explicit Ci(const char* value) {
    if (const char* old = std::getenv("CI")) old_ = old;
    set(value);
  }
  ~Ci() { set(old_ ? old_->c_str() : nullptr); }
  Ci(const Ci&) = delete;
  Ci& operator=(const Ci&) = delete;

 private:
  static void set(const char* value) { value != nullptr ? ::setenv("CI", value, 1) : ::unsetenv("CI"); }
  std::optional<std::string> old_;
};

void lacking(bool& went_on) {
  INDUCTORFS_LACKS(std::string("wings"));
  went_on = true;
}

/// What lacking() says; nothing of it counts for this test.
::testing::TestPartResult result_of_lacking() {
  ::testing::TestPartResultArray results;
  bool went_on = false;
  {
    const ::testing::ScopedFakeTestPartResultReporter reporter(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    lacking(went_on);
  }
  EXPECT_FALSE(went_on);
  EXPECT_EQ(results.size(), 1);
  return results.GetTestPartResult(0);
}

TEST(Lacks, AreSkipsThatSayWhatIsMissing) {
  for (const char* ci : {static_cast<const char*>(nullptr), ""}) {
    const Ci environment(ci);
    const auto result = result_of_lacking();
    EXPECT_TRUE(result.skipped());
    EXPECT_NE(std::string(result.message()).find("lacks wings"), std::string::npos) << result.message();
  }
}

TEST(Lacks, AreFailuresInCi) {
  const Ci environment("true");
  const auto result = result_of_lacking();
  EXPECT_TRUE(result.fatally_failed());
  EXPECT_NE(std::string(result.message()).find("lacks wings"), std::string::npos) << result.message();
}

}  // namespace
}  // namespace inductorfs::testing
