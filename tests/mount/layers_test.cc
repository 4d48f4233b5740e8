// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/mount/layers.h"

#include <gtest/gtest.h>

namespace inductorfs::mount {
namespace {

TEST(WrongServer, IsOneThatAnsweredSo) {
  EXPECT_TRUE(is_wrong_server(Error(ErrorCode::kInvalid)));
  EXPECT_TRUE(is_wrong_server(Error(ErrorCode::kNotSupported)));
  EXPECT_TRUE(is_wrong_server(Error(ErrorCode::kNotPermitted)));
  EXPECT_FALSE(is_wrong_server(Error(ErrorCode::kUnavailable)));
  EXPECT_FALSE(is_wrong_server(Error(ErrorCode::kTimedOut)));
}

TEST(LogPath, IsInTheStoreUnlessInTheForeground) {
  config::Settings settings;
  settings.store = "/s";
  EXPECT_EQ(log_path(settings), "/s/log");
  settings.foreground = true;
  EXPECT_EQ(log_path(settings), "");
  settings.log = "/l";
  EXPECT_EQ(log_path(settings), "/l");
}

TEST(FactsRequest, IsWhatTheSettingsSay) {
  config::Settings settings;
  settings.store = "/s";
  settings.python = "/p";
  settings.environment = {{"TRITON_DEFAULT_FP_FUSION", "0"}};
  const host::FactsRequest request = facts_request(settings);
  EXPECT_EQ(request.python, "/p");
  EXPECT_EQ(request.cache_file, "/s/fingerprint.cache");
  EXPECT_EQ(request.environment, settings.environment);
  EXPECT_EQ(request.file, "");
}

}  // namespace
}  // namespace inductorfs::mount
