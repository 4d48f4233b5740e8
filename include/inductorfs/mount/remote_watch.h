// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "inductorfs/base/guarded.h"
#include "inductorfs/remote/operators.h"
#include "inductorfs/remote/write_condition.h"

namespace inductorfs::mount {

/// Watches the server in the background, by a thread of its own: it learns what the server is as soon as that answers,
/// and tells the log and systemd when the server goes and comes back, or refuses writes. The remote must outlive it.
/// Safe for concurrent use.
class RemoteWatch {
 public:
  struct Knowledge {
    std::optional<remote::ServerFacts> facts;
    /// Mounts that ended without saying so; empty where the server does not tell.
    std::optional<size_t> missing_nodes{};
    std::string wrong;  ///< why this server cannot be used; empty as long as no unusable server has answered
  };

  using Renew = std::function<bool(const std::function<bool()>& cancelled)>;

  /// `address` goes into the log, so it must be without secrets; empty when the mount has no remote. `entries` returns
  /// how many entries of the cluster the mount knows; any thread calls it, and it may wait for the catalog. `renew` has
  /// the files of the remote read anew, by the thread, now and then; false: some were never read, so soon again.
  RemoteWatch(remote::Operators& remote, std::shared_ptr<const remote::WriteCondition> writes, std::string address,
              std::function<uint64_t()> entries, Renew renew)
      : remote_(remote),
        writes_(std::move(writes)),
        address_(std::move(address)),
        entries_(std::move(entries)),
        renew_(std::move(renew)) {}
  ~RemoteWatch() { stop(); }
  RemoteWatch(const RemoteWatch&) = delete;
  RemoteWatch& operator=(const RemoteWatch&) = delete;

  void start();
  /// Ends the thread. Idempotent.
  void stop();
  [[nodiscard]] Knowledge knowledge() const;
  /// Returns how full the server is that takes nothing more for it; empty when it takes something, as far as is known.
  [[nodiscard]] std::string why_full() const;
  /// Returns one line for `systemctl status`: "serving, 1,234 entries; remote redis://... away since ...".
  [[nodiscard]] std::string summary() const;

 private:
  void watch_until(const std::stop_token& stop);
  void learn();
  void note(const remote::Operators::Health& health);
  void note_refusal(const std::string& why);

  remote::Operators& remote_;
  std::shared_ptr<const remote::WriteCondition> writes_;
  std::string address_;
  std::function<uint64_t()> entries_;
  const Renew renew_;
  Guarded<Knowledge> knowledge_;
  Guarded<std::optional<std::time_t>> away_since_;  ///< empty while the server answers
  Guarded<bool> stopping_{false};
  std::jthread thread_;
};

}  // namespace inductorfs::mount
