// SPDX-License-Identifier: Apache-2.0
#include "carriers.h"

#include <linux/fuse.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include "inductorfs/base/guarded.h"

namespace inductorfs::supervisor {
namespace {

/// A header, a fixed part and a name (FUSE_NAME_MAX of Linux 6.15, fs/fuse/fuse_i.h: PATH_MAX - 1).
constexpr size_t kNoticeLimit = 4096 + 256;
/// The kernel needs microseconds for one that nothing holds up.
constexpr std::chrono::milliseconds kPatience{200};
constexpr std::chrono::hours kIdle{1};
constexpr size_t kMostHeld = 512;
constexpr size_t kMostBehind = 100'000;

/// The directory or file that the notice is about; each notice that is sent begins with it.
uint64_t node_of(std::string_view notice) {
  uint64_t node = 0;
  if (notice.size() < sizeof(fuse_out_header) + sizeof node) return 0;
  std::memcpy(&node, notice.data() + sizeof(fuse_out_header), sizeof node);
  return node;
}

/// Safe for concurrent use.
class Carriers {
 public:
  Carriers(int device, int notices) : device_(device), notices_(notices) {}

  [[noreturn]] void run() {
    if (start_carrier()) watch();
    carry(turn());
    ::_exit(1);
  }

 private:
  struct State {
    uint64_t turn = 0;     ///< who reads the socket
    uint64_t serial = 0;   ///< of the notice that is told last
    bool telling = false;  ///< it is not told yet
    bool is_idle = false;  ///< the watching thread waits until something is told
    uint64_t node = 0;     ///< what it is about
    size_t behind = 0;
    std::map<uint64_t, std::deque<std::string>> held;  ///< by what they are about; what is told after each
  };

  uint64_t turn() const {
    return state_.with([](const State& state) { return state.turn; });
  }

  bool start_carrier() {
    try {
      std::thread([this, mine = turn()] { carry(mine); }).detach();
      return true;
    } catch (const std::system_error&) {  // a limit of threads
      return false;
    }
  }

  /// The kernel did not know the name, but its listing of the directory may lack it.
  void forget_listing(std::string_view notice) const {
    struct {
      fuse_out_header header;
      fuse_notify_inval_inode_out content;
    } message{};
    if (notice.size() < sizeof message.header + sizeof(fuse_notify_inval_entry_out)) return;
    std::memcpy(&message.header, notice.data(), sizeof message.header);
    if (message.header.error != FUSE_NOTIFY_INVAL_ENTRY) return;
    message.header.error = FUSE_NOTIFY_INVAL_INODE;
    message.header.len = sizeof message;
    message.content.ino = node_of(notice);
    (void)!::write(device_, &message, sizeof message);  // the kernel may not know the directory either
  }

  void tell(std::string_view notice) const {
    if (::write(device_, notice.data(), notice.size()) < 0) forget_listing(notice);
  }

  void take_off() const {
    std::array<char, 1> rest{};
    (void)::recv(notices_, rest.data(), rest.size(), 0);  // the rest of a record goes with it
  }

  /// One at a time reads the socket: whose turn it is. A notice leaves the socket when the kernel has it or holds it
  /// up, which no signal ends, so that whoever comes after a process that was killed tells it again: twice does no
  /// harm.
  void carry(uint64_t turn) {
    std::array<char, kNoticeLimit> buffer;
    while (true) {
      const ssize_t got = ::recv(notices_, buffer.data(), buffer.size(), MSG_PEEK);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) ::_exit(got == 0 ? 0 : 1);
      const std::string_view notice(buffer.data(), static_cast<size_t>(got));
      if (!begin(notice)) continue;
      tell(notice);
      if (!end(turn, node_of(notice))) return;
    }
  }

  /// False: it waits behind another one.
  bool begin(std::string_view notice) {
    bool wakes = false;
    const bool begun = state_.with([&](State& state) {
      const auto held = state.held.find(node_of(notice));
      if (held != state.held.end() && state.behind < kMostBehind) {
        held->second.emplace_back(notice);
        ++state.behind;
        take_off();
        return false;
      }
      state.telling = true;
      ++state.serial;
      state.node = node_of(notice);
      wakes = state.is_idle;
      return true;
    });
    if (wakes) state_.notify_with([](State&) {});
    return begun;
  }

  /// False: another has the turn by now, and what waited behind this one is told.
  bool end(uint64_t turn, uint64_t node) {
    const bool goes_on = state_.with([&](State& state) {
      if (turn != state.turn) return false;
      state.telling = false;
      take_off();
      return true;
    });
    if (goes_on) return true;
    while (const auto next = next_behind(node)) tell(*next);
    return false;
  }

  /// Nothing: none is left, and the next one waits for nobody.
  std::optional<std::string> next_behind(uint64_t node) {
    return state_.with([&](State& state) -> std::optional<std::string> {
      const auto held = state.held.find(node);
      if (held->second.empty()) {
        state.held.erase(held);
        return std::nullopt;
      }
      std::string next = std::move(held->second.front());
      held->second.pop_front();
      --state.behind;
      return next;
    });
  }

  /// Gives the turn to another when one is held up. Returns when there is no thread for that.
  void watch() {
    while (true) {
      state_.with([](State& state) { state.is_idle = true; });
      const auto telling = [](const State& state) { return state.telling; };
      const auto seen = state_.wait_until(std::chrono::steady_clock::now() + kIdle, telling, [](State& state) {
        state.is_idle = false;
        return state.serial;
      });
      const auto held_up = state_.wait_until(
          std::chrono::steady_clock::now() + kPatience, [](const State&) { return false; },
          [&](State& state) { return give_turn_away(state, seen); });
      if (held_up && !start_carrier()) return;
    }
  }

  /// False: it does not have to be.
  bool give_turn_away(State& state, uint64_t seen) const {
    if (!state.telling || state.serial != seen) return false;
    if (state.held.contains(state.node) || state.held.size() >= kMostHeld) return false;
    take_off();
    state.held[state.node];
    state.telling = false;
    ++state.turn;
    return true;
  }

  const int device_;
  const int notices_;
  Guarded<State> state_;
};

}  // namespace

void carry_notices(int device, int notices) {
  static auto* const carriers = new Carriers(device, notices);  // threads use it until the process ends
  carriers->run();
}

}  // namespace inductorfs::supervisor
