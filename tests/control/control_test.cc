// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/control/control.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "inductorfs/base/guarded.h"
#include "inductorfs/base/message.h"
#include "inductorfs/control/socket.h"
#include "support/patience.h"
#include "support/temporary_directory.h"

namespace inductorfs::control {
namespace {

constexpr Milliseconds kPatience{10000 * testing::kSlowness};

Answer echo(std::string_view request, const Peer& peer) {
  return {std::string(request) + " from " + std::to_string(peer.uid), false};
}

class Control : public ::testing::Test {
 protected:
  std::unique_ptr<ControlServer> serve(RequestHandler handler) {
    Result<Fd> listener = listen(path_);
    EXPECT_TRUE(listener.has_value()) << listener.error().what();
    return ControlServer::open(std::move(listener).value(), std::move(handler));
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

TEST_F(Control, TakesThePlaceOfWhoWasKilledAndIsStillClosing) {
  ASSERT_TRUE(make_directories(path_.substr(0, path_.rfind('/')), 0700));
  Result<Fd> dying = listen_at(path_, 8);
  ASSERT_TRUE(dying.has_value()) << dying.error().what();
  EXPECT_TRUE(is_listening(path_));
  std::jthread end([&] {
    EXPECT_TRUE(wait_for(dying->get(), POLLIN, Deadline::after(kPatience)));
    dying->reset();  // with the question unanswered
  });
  const auto server = listen(path_);
  EXPECT_TRUE(server.has_value()) << server.error().what();
}

TEST_F(Control, IsSeenAsWhoAnswersAndNotAsWhoMadeTheSocket) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  const Fd here(ends[0]);
  Fd there(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    const Result<Fd> made = listen(path_);
    const int listener = made ? made->get() : -1;
    ::_exit(send_message(there.get(), "x", {&listener, 1}, 0) ? 0 : 1);
  }
  std::string room(8, '\0');
  Fd listener;
  ASSERT_GT(receive_message(here.get(), room, {&listener, 1}).size, 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(listener);
  const auto server = ControlServer::open(std::move(listener), echo);
  const Result<Fd> client = connect_to(path_);
  ASSERT_TRUE(client.has_value());
  EXPECT_EQ(peer_of(client->get()), ::getpid());
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
  enum class Seen { kNothing, kRequest, kGone };
  Guarded<Seen> seen(Seen::kNothing);
  const auto waits_for = [&](Seen wanted) {
    return seen.wait_until(
        Deadline::after(kPatience).at(), [&](Seen s) { return s == wanted; }, [&](Seen s) { return s == wanted; });
  };
  const auto server = serve([&](std::string_view, const Peer& peer) {
    seen.notify_with([](Seen& s) { s = Seen::kRequest; });
    const Deadline deadline = Deadline::after(kPatience);
    while (!peer.gone() && !deadline.passed()) std::this_thread::yield();
    if (peer.gone()) seen.notify_with([](Seen& s) { s = Seen::kGone; });
    return Answer{"", false};
  });
  {
    const Result<Fd> client = connect_to(path_);
    ASSERT_TRUE(client.has_value());
    ASSERT_TRUE(send_line(client->get(), "sync", Deadline::after(kPatience)).has_value());
    EXPECT_TRUE(waits_for(Seen::kRequest)) << "who hangs up before is not served at all";
  }
  EXPECT_TRUE(waits_for(Seen::kGone));
}

TEST_F(Control, StopsAtOnce) {
  constexpr int kRounds = 20;
  std::chrono::steady_clock::duration stopping{0};
  for (int i = 0; i < kRounds; ++i) {
    const auto server = serve(echo);
    ASSERT_TRUE(ask(path_, "hello", Deadline::after(kPatience)).has_value()) << "it listens";
    const auto begin = std::chrono::steady_clock::now();
    server->stop();
    stopping += std::chrono::steady_clock::now() - begin;
  }
  EXPECT_LT(stopping, kRounds * Milliseconds(100) * testing::kSlowness);
}

TEST_F(Control, HoldsAConnectionThatWaitsForTheEnd) {
  const auto server = serve([](std::string_view, const Peer&) { return Answer{"ending", true}; });
  const Result<std::string> ended = ask_and_await_end(path_, "unmount", Deadline::after(Milliseconds(200)));
  ASSERT_FALSE(ended.has_value());
  EXPECT_EQ(ended.error().code(), ErrorCode::kTimedOut);
}

TEST_F(Control, SaysAgainAndAgainThatTheDaemonIsSilent) {
  const auto server = serve([](std::string_view, const Peer&) { return Answer{"ending", true}; });
  std::vector<pid_t> told;
  const auto ended = ask_and_await_end(path_, "unmount", Deadline::after(kPatience), [&](pid_t daemon) {
    told.push_back(daemon);
    return told.size() < 2;
  });
  ASSERT_FALSE(ended.has_value());
  EXPECT_EQ(ended.error().code(), ErrorCode::kTimedOut);
  EXPECT_EQ(told, (std::vector<pid_t>{::getpid(), ::getpid()}));
}

TEST_F(Control, SendsNothingThatIsTooLong) {
  const auto server = serve(echo);
  const std::string most(kRequestLimit, 'a');
  EXPECT_TRUE(ask(path_, most, Deadline::after(kPatience)).has_value());
  for (const auto& answer : {ask(path_, most + "a", Deadline::after(kPatience)),
                             ask_and_await_end(path_, most + "a", Deadline::after(kPatience))}) {
    ASSERT_FALSE(answer.has_value());
    EXPECT_EQ(answer.error().code(), ErrorCode::kInvalid);
    EXPECT_NE(answer.error().what().find("too long: 65537 bytes: at most 65536"), std::string::npos);
  }
}

TEST_F(Control, TellsThoseWhoWaitForTheEndWhatBecameOfIt) {
  const auto server = serve([](std::string_view, const Peer&) { return Answer{"ending", true}; });
  std::atomic<bool> over{false};
  std::jthread teller([&] {
    while (!over) {
      tell_those_who_hold("without a thread");
      std::this_thread::yield();
    }
  });
  const Result<std::string> ended = ask_and_await_end(path_, "unmount", Deadline::after(kPatience));
  over = true;
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(*ended, "without a thread");
}

TEST_F(Control, HasPlacesEnoughForItsUserAndSaysWhenNot) {
  const auto server = serve(echo);
  std::vector<Fd> silent;
  while (silent.size() < 64) silent.push_back(connect_to(path_).value());
  const Result<std::string> said = ask(path_, "status", Deadline::after(kPatience));
  EXPECT_NE(said.value_or("none").find("too many requests are under way"), std::string::npos);
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
  const auto second = listen(path_);
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
  const auto server = listen(path_);
  ASSERT_FALSE(server.has_value());
  EXPECT_EQ(server.error().code(), ErrorCode::kNotPermitted);
}

TEST_F(Control, RefusesADirectoryThatIsALink) {
  ASSERT_EQ(::mkdir((directory_ / "real").c_str(), 0700), 0);
  ASSERT_EQ(::symlink((directory_ / "real").c_str(), (directory_ / "run").c_str()), 0);
  EXPECT_FALSE(listen(path_).has_value());
}

TEST_F(Control, NamesAPathThatIsTooLongForASocket) {
  const Result<Fd> socket = listen_at("/tmp/" + std::string(200, 'x'), 1);
  ASSERT_FALSE(socket.has_value());
  EXPECT_EQ(socket.error().code(), ErrorCode::kNameTooLong);
}

}  // namespace
}  // namespace inductorfs::control
