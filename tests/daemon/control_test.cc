// SPDX-License-Identifier: Apache-2.0
#include "control.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "inductorfs/base/guarded.h"
#include "socket.h"
#include "support/patience.h"
#include "support/temporary_directory.h"

namespace inductorfs::daemon {
namespace {

constexpr Milliseconds kPatience{10000 * testing::kSlowness};

Answer echo(std::string_view request, const Peer& peer) {
  return {std::string(request) + " from " + std::to_string(peer.uid), false};
}

class Control : public ::testing::Test {
 protected:
  std::unique_ptr<ControlServer> serve(RequestHandler handler) {
    Result<std::unique_ptr<ControlServer>> server = ControlServer::open(path_, std::move(handler));
    EXPECT_TRUE(server.has_value()) << server.error().what();
    return std::move(*server);
  }
  testing::TemporaryDirectory directory_;
  std::string path_ = directory_ / "run/x.sock";
};

TEST_F(Control, AnswersOneLineWithOneLine) {
  const auto server = serve(echo);
  const Result<std::string> answer = ask(path_, "hello", Deadline::after(kPatience));
  ASSERT_TRUE(answer.has_value()) << answer.error().what();
  EXPECT_EQ(*answer, "hello from " + std::to_string(::geteuid()));
}

TEST_F(Control, CarriesALargeAnswer) {
  const std::string large(3 << 20, 'x');
  const auto server = serve([&](std::string_view, const Peer&) { return Answer{large, false}; });
  EXPECT_EQ(ask(path_, "?", Deadline::after(kPatience)).value(), large);
}

TEST_F(Control, AnswersWhileAnotherRequestWaits) {
  Guarded<bool> released(false);
  const auto server = serve([&](std::string_view request, const Peer&) {
    if (request == "long")
      released.wait_until(
          Deadline::after(kPatience).at(), [](bool r) { return r; }, [](bool) {});
    return Answer{"done " + std::string(request), false};
  });
  std::string late;
  std::thread slow([&] { late = ask(path_, "long", Deadline::after(kPatience)).value_or("failed"); });

  EXPECT_EQ(ask(path_, "short", Deadline::after(kPatience)).value(), "done short");

  released.notify_with([](bool& r) { r = true; });
  slow.join();
  EXPECT_EQ(late, "done long");
}

TEST_F(Control, TurnsAwayARequestThatIsTooLong) {
  std::atomic<int> calls = 0;
  const auto server = serve([&](std::string_view, const Peer&) {
    ++calls;
    return Answer{"no", false};
  });
  EXPECT_FALSE(ask(path_, std::string(kRequestLimit + 1, 'x'), Deadline::after(kPatience)).has_value());
  EXPECT_EQ(calls, 0);
}

TEST_F(Control, SeesAClientThatHasGone) {
  Guarded<bool> noticed(false);
  const auto server = serve([&](std::string_view, const Peer& peer) {
    const Deadline deadline = Deadline::after(kPatience);
    while (!peer.gone() && !deadline.passed()) std::this_thread::yield();
    noticed.notify_with([&](bool& value) { value = peer.gone(); });
    return Answer{"", false};
  });
  {
    const Result<Fd> client = connect_to(path_);
    ASSERT_TRUE(client.has_value());
    ASSERT_TRUE(send_line(client->get(), "sync", Deadline::after(kPatience)).has_value());
  }
  EXPECT_TRUE(noticed.wait_until(
      Deadline::after(kPatience).at(), [](bool value) { return value; }, [](bool value) { return value; }));
}

TEST_F(Control, HoldsAConnectionThatWaitsForTheEnd) {
  const auto server = serve([](std::string_view, const Peer&) { return Answer{"ending", true}; });
  const Result<std::string> ended = ask_and_await_end(path_, "unmount", Deadline::after(Milliseconds(200)));
  ASSERT_FALSE(ended.has_value());
  EXPECT_EQ(ended.error().code(), ErrorCode::kTimedOut);
}

TEST_F(Control, TellsAbsentFromDead) {
  EXPECT_EQ(ask(path_, "?", Deadline::after(kPatience)).error().code(), ErrorCode::kNotFound);
  {
    const auto server = serve(echo);
    EXPECT_TRUE(is_listening(path_));
  }
  EXPECT_FALSE(is_listening(path_));

  const Result<Fd> left = listen_at(path_, 1);  // a daemon that was killed leaves its socket
  ASSERT_TRUE(left.has_value());
  ASSERT_EQ(::rename(path_.c_str(), (path_ + ".moved").c_str()), 0);
  {
    const Result<Fd> dead = listen_at(path_, 1);
    ASSERT_TRUE(dead.has_value());
  }
  EXPECT_EQ(ask(path_, "?", Deadline::after(kPatience)).error().code(), ErrorCode::kUnavailable);
}

TEST_F(Control, ReplacesADeadSocketButNotALivingOne) {
  const auto server = serve(echo);
  const auto second = ControlServer::open(path_, echo);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), ErrorCode::kBusy);

  server->stop();
  {
    const Result<Fd> dead = listen_at(path_, 1);
    ASSERT_TRUE(dead.has_value());
  }
  const auto third = serve(echo);
  EXPECT_TRUE(is_listening(path_));
}

TEST_F(Control, KeepsItsDirectoryFromOthers) {
  const auto server = serve(echo);
  struct stat found {};
  ASSERT_EQ(::stat((directory_ / "run").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 022U, 0U);
}

TEST_F(Control, RefusesADirectoryThatOthersMayWriteTo) {
  ASSERT_EQ(::mkdir((directory_ / "run").c_str(), 0755), 0);
  ASSERT_EQ(::chmod((directory_ / "run").c_str(), 0777), 0);
  const auto server = ControlServer::open(path_, echo);
  ASSERT_FALSE(server.has_value());
  EXPECT_EQ(server.error().code(), ErrorCode::kNotPermitted);
}

TEST_F(Control, RefusesADirectoryThatIsALink) {
  ASSERT_EQ(::mkdir((directory_ / "real").c_str(), 0700), 0);
  ASSERT_EQ(::symlink((directory_ / "real").c_str(), (directory_ / "run").c_str()), 0);
  EXPECT_FALSE(ControlServer::open(path_, echo).has_value());
}

TEST_F(Control, NamesAPathThatIsTooLongForASocket) {
  const Result<Fd> socket = listen_at("/tmp/" + std::string(200, 'x'), 1);
  ASSERT_FALSE(socket.has_value());
  EXPECT_EQ(socket.error().code(), ErrorCode::kNameTooLong);
}

}  // namespace
}  // namespace inductorfs::daemon
