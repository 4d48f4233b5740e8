// SPDX-License-Identifier: Apache-2.0
// A client that says nothing has its connection for kPeerPatience.
#include <gtest/gtest.h>
#include <poll.h>

#include "inductorfs/control/control.h"
#include "inductorfs/control/socket.h"
#include "support/patience.h"
#include "support/temporary_directory.h"

namespace inductorfs::control {
namespace {

constexpr Milliseconds kPatience{4 * kPeerPatience * testing::kSlowness};

TEST(ControlServer, DropsAClientThatStaysSilent) {
  const testing::TemporaryDirectory directory;
  const std::string path = directory / "run/x.sock";
  Result<Fd> listener = listen(path);
  ASSERT_TRUE(listener.has_value()) << listener.error().what();
  const auto server = ControlServer::open(std::move(*listener), [](std::string_view, const Peer&) {
    return Answer{"", false};
  });
  const Result<Fd> silent = connect_to(path);
  ASSERT_TRUE(silent.has_value()) << silent.error().what();
  pollfd item{silent->get(), POLLIN, 0};
  EXPECT_EQ(::poll(&item, 1, static_cast<int>(kPatience.count())), 1);
}

}  // namespace
}  // namespace inductorfs::control
