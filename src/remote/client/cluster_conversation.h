// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "inductorfs/base/counters.h"
#include "remote/client/conversation.h"
#include "remote/client/server_link.h"
#include "remote/client/shards.h"

namespace inductorfs::remote {

/// A conversation with the shards of a Redis Cluster. Each pipeline is split by slot, all shards work on it at the same
/// time, and what a node redirects is sent again. It holds connections during a pipeline only, and waits for one while
/// it holds none, so that two conversations cannot wait for each other. Its calls block. Confined to the calling
/// thread.
class ClusterConversation final : public Conversation {
 public:
  ClusterConversation(Shards& shards, const CallTerms& terms, Counter& redirects)
      : shards_(shards), terms_(terms), redirects_(redirects) {}

  [[nodiscard]] Result<void> pipeline(const std::vector<redis::Command>& commands, const OnReply& on_reply) override;
  [[nodiscard]] Result<void> pipeline_in_any_order(const std::vector<redis::Command>& commands,
                                                   const OnReply& on_reply) override;
  [[nodiscard]] bool spans_servers() const override { return true; }
  [[nodiscard]] Deadline deadline() const override { return terms_.deadline; }

 private:
  Shards& shards_;
  const CallTerms terms_;
  Counter& redirects_;
};

}  // namespace inductorfs::remote
