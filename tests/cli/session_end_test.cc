// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/session_end.h"

#include <gtest/gtest.h>

namespace inductorfs::cli {
namespace {

const std::string kSession = "0::/user.slice/user-1000.slice/session-3.scope\n";
const std::string kService = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/inductorfs@a.service\n";

TEST(SessionEndWarning, SaysWhatEndsTheMountAndWhatDoesNot) {
  const std::string text = session_end_warning(kSession, {"[Login]\nKillUserProcesses=yes\n"});
  EXPECT_NE(text.find("this mount ends when you log out"), std::string::npos) << text;
  EXPECT_NE(text.find("loginctl enable-linger"), std::string::npos) << text;
}

TEST(SessionEndWarning, TakesTheLastSetting) {
  EXPECT_EQ(session_end_warning(kSession, {"[Login]\nKillUserProcesses=yes\n", "[Login]\nKillUserProcesses=no\n"}), "");
  EXPECT_NE(session_end_warning(kSession, {"[Login]\nKillUserProcesses=no\n", "[Login]\nKillUserProcesses=1\n"}), "");
}

TEST(SessionEndWarning, IsSilentWhereNothingEnds) {
  EXPECT_EQ(session_end_warning(kSession, {}), "") << "the default of Debian";
  EXPECT_EQ(session_end_warning(kSession, {"[Login]\n#KillUserProcesses=yes\n"}), "") << "a comment";
  EXPECT_EQ(session_end_warning(kService, {"[Login]\nKillUserProcesses=yes\n"}), "")
      << "a unit of the user outlives it";
  EXPECT_EQ(session_end_warning("", {"[Login]\nKillUserProcesses=yes\n"}), "");
}

}  // namespace
}  // namespace inductorfs::cli
