// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "inductorfs/base/guarded.h"
#include "inductorfs/config/settings.h"
#include "inductorfs/control/requests.h"
#include "inductorfs/host/host_watch.h"
#include "inductorfs/mount/layers.h"
#include "inductorfs/mount/misses.h"
#include "inductorfs/mount/remote_watch.h"
#include "inductorfs/mount/store_watch.h"
#include "inductorfs/mount/supervision.h"
#include "inductorfs/mount/warmer.h"
#include "mount/cluster/heartbeat.h"
#include "mount/mounter/mounter.h"

namespace inductorfs::mount {

/// What a mount answers, and does, when it is asked at its control socket. Safe for concurrent use.
class Answers final : public control::MountControl {
 public:
  /// What it answers from, which must outlive it.
  struct Sources {
    const config::Settings& settings;
    Layers& layers;
    Supervision& supervision;
    const Mounter& mounter;
    StoreWatch& store_watch;
    const RemoteWatch& remote_watch;
    const Heartbeat& heartbeat;
    const host::HostWatch& host_watch;
    std::function<std::vector<std::string>()> also;                ///< Note::also
    std::function<std::string()> left_over;                        ///< of Mounter::uncover()
    std::function<std::map<uint32_t, size_t>()> requests_by_user;  ///< of fuse::Session
    std::function<void()> end;                                     ///< has the main thread end the mount
  };
  Answers(Sources sources, ClusterState cluster)
      : from_(std::move(sources)), cluster_(std::move(cluster)), warmer_(from_.settings, from_.layers) {}

  /// Ends the waits of those who have asked, and of those who ask from now on: the mount ends.
  void end_waits();
  /// Says whether unmount() has unmounted.
  [[nodiscard]] bool has_unmounted() const { return unmounted_; }
  /// Says whether the last unmount() had no answer, so that another one would have none either.
  [[nodiscard]] bool nobody_unmounts() const { return nobody_unmounts_; }
  /// Says whether upgrade() has agreed with the supervisor on the next worker.
  [[nodiscard]] bool hands_over() const { return hands_over_; }

  [[nodiscard]] std::string status(const control::Peer* guest) override;
  [[nodiscard]] std::string where() override;
  [[nodiscard]] Result<std::string> show_to(uid_t user, const std::function<bool()>& cancelled) override;
  [[nodiscard]] Result<std::string> explain(const std::string& path, const control::Peer* guest) override;
  [[nodiscard]] std::string stats(std::optional<uid_t> user) override;
  [[nodiscard]] std::string jobs(std::optional<uid_t> user) override;
  [[nodiscard]] std::string misses(uint64_t job, std::optional<uid_t> user) override;
  [[nodiscard]] Result<std::string> sync(Deadline deadline, const std::function<bool()>& cancelled) override;
  [[nodiscard]] Result<void> unmount(bool lazy) override;
  [[nodiscard]] Result<std::string> upgrade(const std::string& program, const Fd& executable) override;
  [[nodiscard]] Result<std::string> warm(const control::WarmSelection& selection, Milliseconds slice,
                                         const std::function<bool()>& cancelled) override;
  [[nodiscard]] Result<std::string> ask_cluster(const std::string& request,
                                                const std::function<bool()>& cancelled) override;

 private:
  /// What ends an answer that takes long: nobody waits for it any more, or the mount ends.
  [[nodiscard]] std::function<bool()> or_ending(const std::function<bool()>& cancelled) const;

  const Sources from_;
  const ClusterState cluster_;
  Warmer warmer_;
  Guarded<bool> ending_{false};
  std::atomic<bool> unmounted_{false};
  std::atomic<bool> nobody_unmounts_{false};
  std::atomic<bool> hands_over_{false};
};

}  // namespace inductorfs::mount
