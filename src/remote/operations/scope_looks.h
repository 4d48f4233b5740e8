// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "inductorfs/remote/index.h"
#include "remote/client/conversation.h"
#include "remote/formats/head.h"
#include "remote/formats/keys.h"

namespace inductorfs::remote {

/// Looks at the heads of scopes that somebody waits for. Scopes are known by their places in the list. What it is given
/// must outlive it. Its calls block. Confined to the calling thread.
class ScopeLooks {
 public:
  ScopeLooks(const std::string& prefix, HeadWatch& heads, const std::vector<std::pair<ScopeId, Position>>& scopes);

  [[nodiscard]] const std::vector<ScopeKeys>& keys() const { return keys_; }
  [[nodiscard]] std::vector<size_t> all() const;
  /// Returns those whose positions have not been seen to be heads.
  [[nodiscard]] std::vector<size_t> unconfirmed() const;
  /// Returns those of the scopes that have moved past their positions, or to another history.
  [[nodiscard]] Result<std::vector<ScopeId>> look_at(Conversation& channel, const std::vector<size_t>& places);

 private:
  [[nodiscard]] Result<std::vector<size_t>> with_history(Conversation& channel, const std::vector<size_t>& places);

  HeadWatch& heads_;
  const std::vector<std::pair<ScopeId, Position>>& scopes_;
  std::vector<ScopeKeys> keys_;
};

}  // namespace inductorfs::remote
