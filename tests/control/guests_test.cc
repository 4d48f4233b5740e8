// SPDX-License-Identifier: Apache-2.0
// Users who are neither root nor the one who mounted, and the proxy between them and the server.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>
#include <utility>

#include "inductorfs/base/guarded.h"
#include "inductorfs/base/message.h"
#include "inductorfs/control/control.h"
#include "inductorfs/control/socket.h"
#include "inductorfs/supervisor/protocol.h"
#include "proxy.h"
#include "support/lacks.h"
#include "support/patience.h"
#include "support/temporary_directory.h"

namespace inductorfs::control {
namespace {

constexpr Milliseconds kPatience{10000 * testing::kSlowness};

Answer echo(std::string_view request, const Peer& peer) {
  return {std::string(request) + " from " + std::to_string(peer.uid), false};
}

/// Other users connect, whom a proxy hands over.
class GuestsControl : public ::testing::Test {
 protected:
  static constexpr uid_t kNobody = 65534;
  static constexpr uid_t kSomebody = 12345;
  static constexpr Milliseconds kSoon{3000 * testing::kSlowness};

  void SetUp() override {
    if (::geteuid() != 0) INDUCTORFS_LACKS("root, to connect as other users");
    for (const std::string& path : {directory_.path(), directory_ / "run"}) {
      ASSERT_TRUE(make_directories(path, 0755));
      ASSERT_EQ(::chmod(path.c_str(), 0755), 0);
    }
    const Result<Fd> listener = listen_for_guests(path_);
    ASSERT_TRUE(listener.has_value()) << listener.error().what();
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    guests_ = Fd(ends[0]);
    const Fd theirs(ends[1]);
    proxy_ = ::fork();
    if (proxy_ == 0) {
      guests_.reset();
      supervisor::pass_on_guests(listener->get(), theirs.get());
      ::_exit(0);
    }
    ASSERT_GT(proxy_, 0);
  }
  void TearDown() override {
    if (proxy_ <= 0) return;
    guests_.reset();
    int status = 0;
    EXPECT_EQ(::waitpid(proxy_, &status, 0), proxy_);
    EXPECT_TRUE(WIFEXITED(status)) << "it ends when nobody is left who would answer";
  }
  /// Runs on a thread that is the user's: the system call, as the C library's function changes all threads.
  template <typename Work>
  static void as(uid_t uid, Work&& work) {
    std::thread([&] {
      ASSERT_EQ(::syscall(SYS_setresuid, -1, uid, -1), 0);
      work();
    }).join();
  }
  std::vector<Fd> connect_as(uid_t uid, size_t number) {
    std::vector<Fd> made;
    as(uid, [&] {
      while (made.size() < number) made.push_back(connect_to(path_).value());
    });
    return made;
  }
  std::string ask_as(uid_t uid, const std::string& request) {
    std::string answer;
    as(uid, [&] {
      const Result<std::string> got = ask(path_, request, Deadline::after(kPatience));
      answer = got ? *got : got.error().what();
    });
    return answer;
  }
  static bool is_refused(const Fd& connection) {
    const Result<std::string> said = receive_line(connection.get(), kAnswerLimit, Deadline::after(kPatience));
    return said && said->find("too many requests") != std::string::npos;
  }

  std::unique_ptr<ControlServer> serve(RequestHandler handler) {
    Result<Fd> listener = listen(path_);
    EXPECT_TRUE(listener.has_value()) << listener.error().what();
    return ControlServer::open(std::move(listener).value(), std::move(handler), guests_.get());
  }

  /// Answers all but "wait" at once.
  std::unique_ptr<ControlServer> serve_until_released() {
    return serve([this](std::string_view request, const Peer& peer) {
      const auto set = [](bool value) { return value; };
      if (request == "wait") released_.wait_until(Deadline::after(kPatience).at(), set, [](bool) {});
      return echo(request, peer);
    });
  }
  std::vector<Fd> ask_to_wait(uid_t uid, size_t number) {
    std::vector<Fd> made = connect_as(uid, number);
    for (const Fd& one : made) (void)send_line(one.get(), "wait", Deadline::after(kPatience));  // or it is refused
    return made;
  }

  Guarded<bool> released_{false};
  testing::TemporaryDirectory directory_;
  std::string path_ = directory_ / "run/x.sock";
  Fd guests_;
  pid_t proxy_ = -1;
};

TEST_F(GuestsControl, TakesADescriptorOfItsOwnUserAndOfNoOther) {
  const auto server = serve([](std::string_view, const Peer& peer) {
    return Answer{peer.descriptor ? "with a descriptor" : "without", false};
  });
  const auto ask_with_one = [&] {
    const auto answer = ask_and_await_end(path_, "hello", Deadline::after(kPatience), {}, STDERR_FILENO);
    return answer ? *answer : answer.error().what();
  };
  EXPECT_EQ(ask_with_one(), "with a descriptor");
  as(kNobody, [&] { EXPECT_EQ(ask_with_one(), "without"); });

  // Who gives one all the same is refused by the kernel, or it goes no further than to the proxy.
  as(kNobody, [&] {
    const Result<Fd> theirs = connect_to(path_);
    ASSERT_TRUE(theirs.has_value());
    if (!send_message(theirs->get(), "hello\n", std::array{STDERR_FILENO})) {
      EXPECT_EQ(errno, EPERM);
      return;
    }
    EXPECT_EQ(receive_line(theirs->get(), kAnswerLimit, Deadline::after(kPatience)).value_or("none"), "without");
  });
}

TEST_F(GuestsControl, LetsNobodyElseConnectToWhatIsItsOwn) {
  const auto server = serve(echo);
  as(kNobody, [&] {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof address.sun_path - 1);
    const Fd own(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_NE(::connect(own.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(errno, EACCES);
  });
}

TEST_F(GuestsControl, TellsWhoAGuestIs) {
  const auto server = serve([](std::string_view, const Peer& peer) {
    std::string text = std::to_string(peer.uid) + (peer.pid == ::getpid() ? " of this process" : "");
    for (const gid_t group : peer.groups) text += " " + std::to_string(group);
    return Answer{text, false};
  });
  std::string said;
  std::thread([&] {
    const std::array<gid_t, 2> groups{4711, 4712};
    ASSERT_EQ(::syscall(SYS_setgroups, groups.size(), groups.data()), 0);
    ASSERT_EQ(::syscall(SYS_setresuid, -1, kNobody, -1), 0);
    said = ask(path_, "who", Deadline::after(kPatience)).value_or("none");
  }).join();
  EXPECT_EQ(said, "65534 of this process 4711 4712 " + std::to_string(::getegid()));
}

TEST_F(GuestsControl, CarriesWhatIsLarge) {
  const std::string large(3 << 20, 'x');
  const std::string most(kRequestLimit, 'a');
  const auto server = serve([&](std::string_view request, const Peer&) {
    return Answer{request == most ? large : "another request", false};
  });
  EXPECT_EQ(ask_as(kNobody, most), large);
}

TEST_F(GuestsControl, AnswersOneWhoSaysNothingMore) {
  const auto server = serve(echo);
  as(kNobody, [&] {
    const Result<Fd> theirs = connect_to(path_);
    ASSERT_TRUE(theirs.has_value());
    ASSERT_TRUE(send_line(theirs->get(), "status", Deadline::after(kPatience)));
    ASSERT_EQ(::shutdown(theirs->get(), SHUT_WR), 0);
    EXPECT_EQ(receive_line(theirs->get(), kAnswerLimit, Deadline::after(kPatience)).value_or("none"),
              "status from 65534");
  });
}

TEST_F(GuestsControl, SeesAGuestThatHasGone) {
  Guarded<int> seen(0);
  const auto becomes = [&](int wanted) {
    return seen.wait_until(
        Deadline::after(kPatience).at(), [&](int now) { return now == wanted; },
        [&](int now) { return now == wanted; });
  };
  const auto server = serve([&](std::string_view, const Peer& peer) {
    seen.notify_with([](int& now) { now = 1; });
    const Deadline deadline = Deadline::after(kPatience);
    while (!peer.gone() && !deadline.passed()) std::this_thread::yield();
    if (peer.gone()) seen.notify_with([](int& now) { now = 2; });
    return Answer{"", false};
  });
  {
    const std::vector<Fd> guest = connect_as(kNobody, 1);
    ASSERT_TRUE(send_line(guest.front().get(), "nodes", Deadline::after(kPatience)));
    EXPECT_TRUE(becomes(1));
  }
  EXPECT_TRUE(becomes(2));
}

TEST_F(GuestsControl, WaitForTheNextWhoServes) {
  Result<Fd> own = listen(path_);
  ASSERT_TRUE(own.has_value()) << own.error().what();
  std::string said;
  std::jthread guest([&] { said = ask_as(kNobody, "status"); });
  pollfd item{guests_.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&item, 1, static_cast<int>(kPatience.count())), 1) << "it is handed over while nobody serves";
  const auto server = ControlServer::open(std::move(*own), echo, guests_.get());
  guest.join();
  EXPECT_EQ(said, "status from 65534");
}

TEST_F(GuestsControl, HearTheEndWhenWhoServesHasGone) {
  Result<Fd> own = listen(path_);
  ASSERT_TRUE(own.has_value()) << own.error().what();
  std::string said;
  std::jthread guest([&] { said = ask_as(kNobody, "status"); });
  pollfd item{guests_.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&item, 1, static_cast<int>(kPatience.count())), 1);
  supervisor::Guest who;
  Fd connection;
  ASSERT_EQ(supervisor::receive_guest(guests_.get(), who, connection), supervisor::Receipt::kWord);
  EXPECT_EQ(who.uid, kNobody);
  connection.reset();
  guest.join();
  EXPECT_NE(said.find("gone"), std::string::npos) << said;
}

TEST_F(GuestsControl, AnswersRootWhileAnotherUserIsSilentOnManyConnections) {
  const auto server = serve(echo);
  const std::vector<Fd> silent = connect_as(kNobody, 40);
  const Result<std::string> answer = ask(path_, "unmount", Deadline::after(kSoon));
  ASSERT_TRUE(answer.has_value()) << answer.error().what();
  EXPECT_EQ(*answer, "unmount from 0");
}

TEST_F(GuestsControl, AnswersRootWhileOtherUsersRequestsTakeLong) {
  Guarded<bool> released(false);
  const auto server = serve([&](std::string_view request, const Peer& peer) {
    const auto set = [](bool value) { return value; };
    if (peer.uid != 0) released.wait_until(Deadline::after(kPatience).at(), set, [](bool) {});
    return echo(request, peer);
  });
  std::vector<Fd> waiting;
  for (uid_t uid = kSomebody; uid < kSomebody + 20; ++uid) {
    for (Fd& one : connect_as(uid, 4)) {
      (void)send_line(one.get(), "explain", Deadline::after(kPatience));  // a closed one is as good here
      waiting.push_back(std::move(one));
    }
  }
  EXPECT_EQ(ask(path_, "unmount", Deadline::after(kSoon)).value_or("none"), "unmount from 0");
  released.notify_with([](bool& value) { value = true; });
}

TEST_F(GuestsControl, HaveAFewPlacesEachAndAreToldSo) {
  const auto server = serve_until_released();
  std::vector<Fd> waiting = ask_to_wait(kNobody, 10);
  for (size_t i = 4; i < waiting.size(); ++i) EXPECT_TRUE(is_refused(waiting[i])) << i;

  EXPECT_NE(ask_as(kNobody, "status").find("too many requests of the user 65534"), std::string::npos);
  EXPECT_EQ(ask_as(kSomebody, "status"), "status from 12345");

  released_.notify_with([](bool& value) { value = true; });
  const Deadline deadline = Deadline::after(kPatience);
  while (ask_as(kNobody, "status") != "status from 65534" && !deadline.passed()) std::this_thread::yield();
  EXPECT_FALSE(deadline.passed());
}

/// Or who hangs up at once has as many answered as he likes.
TEST_F(GuestsControl, KeepTheirPlacesUntilWhoServesHasEnded) {
  Guarded<bool> released(false);
  std::atomic<size_t> answered{0};
  const auto server = serve([&](std::string_view request, const Peer& peer) {
    ++answered;
    released.wait_until(
        Deadline::after(kPatience).at(), [](bool value) { return value; }, [](bool) {});
    return echo(request, peer);
  });
  const auto ask_and_hang_up = [&] {
    const std::vector<Fd> one = connect_as(kNobody, 1);
    (void)send_line(one.front().get(), "nodes", Deadline::after(kPatience));
    const size_t before = answered;
    for (const Deadline soon = Deadline::after(Milliseconds(50)); answered == before && !soon.passed();) {
      std::this_thread::yield();
    }
  };
  const Deadline deadline = Deadline::after(kPatience);
  while (answered < 4 && !deadline.passed()) ask_and_hang_up();
  for (int i = 0; i < 100; ++i) {
    const std::vector<Fd> one = connect_as(kNobody, 1);
    (void)send_line(one.front().get(), "nodes", Deadline::after(kPatience));  // who is refused may be gone
    EXPECT_TRUE(is_refused(one.front()));
  }
  EXPECT_EQ(answered, 4U);
  released.notify_with([](bool& value) { value = true; });
  while (ask_as(kNobody, "status") != "status from 65534" && !deadline.passed()) std::this_thread::yield();
  EXPECT_FALSE(deadline.passed());
}

/// As a process that has no room for it receives it.
TEST_F(GuestsControl, AreHeardAfterOneThatWasNotReceived) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const Fd theirs(ends[1]);
  const Fd own(std::exchange(guests_, Fd(ends[0])));  // so that the test is the proxy
  const auto server = serve(echo);
  const supervisor::Guest guest{kNobody, 1, 0, {}};
  ASSERT_TRUE(send_message(theirs.get(), {reinterpret_cast<const char*>(&guest), sizeof guest}, {}));
  ASSERT_TRUE(send_message(theirs.get(), "x", std::array{STDERR_FILENO}));
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Fd here(ends[0]);
  Fd there(ends[1]);
  ASSERT_TRUE(supervisor::send_guest(theirs.get(), guest, there.get()));
  there.reset();
  ASSERT_TRUE(send_line(here.get(), "status", Deadline::after(kPatience)));
  EXPECT_EQ(receive_line(here.get(), kAnswerLimit, Deadline::after(kPatience)).value_or("none"), "status from 65534");
  guests_.reset();
}

TEST_F(GuestsControl, AreNotTooManyAltogether) {
  const auto server = serve_until_released();
  std::vector<Fd> waiting;
  for (uid_t uid = kSomebody; uid < kSomebody + 8; ++uid) {
    for (Fd& one : ask_to_wait(uid, 4)) waiting.push_back(std::move(one));
  }
  EXPECT_NE(ask_as(kNobody, "status").find("too many requests of the user 65534, or of all users"), std::string::npos);
  released_.notify_with([](bool& value) { value = true; });
  const Deadline deadline = Deadline::after(kPatience);
  while (ask_as(kNobody, "status") != "status from 65534" && !deadline.passed()) std::this_thread::yield();
  EXPECT_FALSE(deadline.passed());
}

}  // namespace
}  // namespace inductorfs::control
