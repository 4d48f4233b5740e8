// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <thread>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/result.h"
#include "inductorfs/redis/url.h"

namespace inductorfs::redis {

class Connection;

/// Asks the Sentinels of an endpoint each second who the master is, over one connection, and notes another answer
/// (Sentinels::changes): the one before goes on answering for some seconds, and what it acknowledges then is lost. It
/// owns a thread. Safe for concurrent use.
class MasterWatch {
 public:
  static constexpr Milliseconds kInterval{1'000};

  /// Requires: the endpoint has Sentinels.
  explicit MasterWatch(Endpoint endpoint);
  ~MasterWatch();
  MasterWatch(const MasterWatch&) = delete;
  MasterWatch& operator=(const MasterWatch&) = delete;

  /// Asks now; kUnavailable, with what each Sentinel said, when none knows a master. Blocks up to the deadline.
  [[nodiscard]] Result<void> ask_now(Deadline deadline) const;
  [[nodiscard]] uint64_t changes() const { return endpoint_.sentinels->changes.load(); }

 private:
  void look();

  const Endpoint endpoint_;
  std::unique_ptr<Connection> connection_;  ///< to the Sentinel that answered last: the thread's
  std::jthread thread_;
};

}  // namespace inductorfs::redis
