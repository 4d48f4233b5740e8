// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <thread>

#include "inductorfs/base/guarded.h"
#include "mount/mounter/mounter.h"

namespace inductorfs::mount {

/// Has the mounter do for the further places of users what no user asks for: show them when the mount begins, and take
/// those away whose directory was removed from the mount. It owns the `places` thread. Safe for concurrent use.
class PlacesWatch {
 public:
  PlacesWatch(int mounter, std::function<void()> stands_still) : mounter_(mounter, std::move(stands_still)) {}
  ~PlacesWatch() { stop(); }
  PlacesWatch(const PlacesWatch&) = delete;
  PlacesWatch& operator=(const PlacesWatch&) = delete;

  /// `begins`: the mount does, and not only this worker.
  void start(bool begins);
  /// Ends the thread. Idempotent.
  void stop();
  /// A directory was removed that may be shown somewhere. Does not block.
  void removed();

 private:
  struct State {
    bool shows = false;
    bool drops = false;
    bool stopping = false;
  };
  void run();

  const Mounter mounter_;
  Guarded<State> state_;
  std::jthread thread_;
};

}  // namespace inductorfs::mount
