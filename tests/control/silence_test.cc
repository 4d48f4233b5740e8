// SPDX-License-Identifier: Apache-2.0
// A client that says nothing has its connection for kPeerPatience.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "inductorfs/control/control.h"
#include "inductorfs/control/socket.h"
#include "proxy.h"
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

/// A guest who asks, and takes no more of the answer than there is room for on the way.
TEST(Proxy, DropsAGuestThatTakesNothing) {
  const testing::TemporaryDirectory directory;
  const std::string path = directory / "run/x.sock";
  Result<Fd> own = listen(path);
  ASSERT_TRUE(own.has_value()) << own.error().what();
  const Result<Fd> listener = listen_for_guests(path);
  ASSERT_TRUE(listener.has_value()) << listener.error().what();
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  Fd ours(ends[0]);
  Fd theirs(ends[1]);
  const pid_t proxy = ::fork();
  if (proxy == 0) {
    ours.reset();
    supervisor::pass_on_guests(listener->get(), theirs.get());
    ::_exit(0);
  }
  theirs.reset();
  const std::string large(8 << 20, 'x');
  const auto server = ControlServer::open(
      std::move(*own),
      [&](std::string_view, const Peer&) {
        return Answer{large, false};
      },
      ours.get());
  const auto ask_for_much = [&] {
    Fd guest = connect_to(guests_path(path)).value();
    (void)send_line(guest.get(), "status", Deadline::after(kPatience));  // who is refused may be gone
    return guest;
  };
  std::vector<Fd> silent;
  while (silent.size() < 4) silent.push_back(ask_for_much());
  const Deadline deadline = Deadline::after(kPatience);
  std::string said = "too many requests";
  while (said.find("too many requests") != std::string::npos && !deadline.passed()) {
    const Fd one = ask_for_much();
    said = receive_line(one.get(), kAnswerLimit, deadline).value_or("none");
  }
  EXPECT_EQ(said.size(), large.size());
  server->stop();
  ours.reset();
  int status = 0;
  EXPECT_EQ(::waitpid(proxy, &status, 0), proxy);
}

}  // namespace
}  // namespace inductorfs::control
