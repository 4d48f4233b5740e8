// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "inductorfs/base/guarded.h"
#include "support/scripted_server.h"

namespace inductorfs::testing {

/// Stands between a client and a real redis-server, and does what neither would do on demand. Safe for concurrent use.
class FaultProxy {
 public:
  enum class Mode {
    kNone,         ///< every byte goes through
    kRefused,      ///< connections are cut, new ones refused
    kSilent,       ///< connections are taken, nothing is answered
    kHangMidway,   ///< of a reply over kLongReply bytes the first half comes, then nothing
    kResetMidway,  ///< ... then RST
    kBytewise,     ///< each byte in a packet of its own
    kDrip,         ///< the same with a pause after each
    kAnswer,       ///< `bytes` are the answer to each command
    kTurnAway,     ///< connections are cut; who connects gets `bytes` for his first command, then the end
  };
  static constexpr size_t kLongReply = 1024;

  explicit FaultProxy(std::string socket_path);
  ~FaultProxy();

  void set(Mode mode, std::string bytes = {});
  [[nodiscard]] std::string url(const std::string& credentials = "") const { return server_->url(credentials); }
  /// That clients sent since the last set().
  [[nodiscard]] int commands() const { return commands_; }

 private:
  struct State {
    Mode mode = Mode::kNone;
    std::string bytes;
    uint64_t version = 0;
  };
  struct Upstream;

  [[nodiscard]] State state() const;
  [[nodiscard]] bool changed(uint64_t version) const;
  void serve(ScriptedClient& client);
  /// False when the connection is to end.
  [[nodiscard]] bool answer(ScriptedClient& client, Upstream& upstream, const std::vector<std::string>& command);
  [[nodiscard]] bool relay(ScriptedClient& client, const State& now, const std::string& reply);
  void idle_until_change(ScriptedClient& client, uint64_t version);

  const std::string socket_path_;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> commands_ = 0;
  Guarded<State> state_;
  std::unique_ptr<ScriptedServer> server_;
};

}  // namespace inductorfs::testing
