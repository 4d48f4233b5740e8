// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <unordered_set>
#include <vector>

#include "inductorfs/config/json_forward.h"
#include "inductorfs/control/requests.h"
#include "inductorfs/layout/layout.h"
#include "inductorfs/mount/warmer.h"
#include "inductorfs/remote/remote.h"

namespace inductorfs::mount {

/// One warming from the list of scopes to the last blob. Needs external synchronisation.
class Warming {
 public:
  Warming(const config::Settings& settings, const Layers& layers, control::WarmSelection selection)
      : settings_(settings), layers_(layers), selection_(std::move(selection)) {}

  [[nodiscard]] const control::WarmSelection& selection() const { return selection_; }
  /// Works until the deadline. An error ends the warming.
  [[nodiscard]] Result<void> go_on(Deadline slice, const std::function<bool()>& cancelled);
  [[nodiscard]] bool is_done() const { return phase_ == Phase::kDone; }
  [[nodiscard]] config::Json report() const;

 private:
  enum class Phase { kScopes, kEntries, kCompare, kFetch, kDone };
  struct Scope {
    remote::ScopeId id;
    std::vector<layout::Family> families;
    bool followed = false;  ///< jobs of this host use it now
  };
  struct Blob {
    codec::Digest digest;
    uint64_t size = 0;
  };
  struct Sum {
    uint64_t blobs = 0;
    uint64_t bytes = 0;
    void add(uint64_t size) {
      ++blobs;
      bytes += size;
    }
  };
  class Sink;

  [[nodiscard]] Result<void> find_scopes(remote::Index& index);
  [[nodiscard]] Result<void> narrow_to_scope(const std::vector<remote::ScopeInformation>& announced);
  void read_entries(remote::Index& index);
  void take(const codec::Entry& entry, const Scope& scope);
  void compare(Deadline slice);
  void fetch(remote::Blobs& blobs);
  [[nodiscard]] std::vector<Blob> next_batch();
  [[nodiscard]] uint64_t capacity() const;
  void settle(const Blob& blob, const Result<void>& outcome);
  void stop(std::string why);
  void check_own();
  void note_failure(const std::string& why) { ++failures_[why]; }

  const config::Settings& settings_;
  const Layers& layers_;
  const control::WarmSelection selection_;
  Phase phase_ = Phase::kScopes;
  std::vector<Scope> scopes_;
  uint64_t other_hosts_ = 0;
  size_t next_scope_ = 0;
  remote::Position position_;
  std::unordered_set<codec::Digest> seen_;  ///< cleared when all entries are read
  std::vector<std::pair<int64_t, Blob>> found_;
  size_t compared_ = 0;
  std::deque<Blob> missing_;          ///< newest first
  std::vector<codec::Digest> owned_;  ///< what this warming found or fetched, in the order in which the store saw it
  size_t oldest_owned_ = 0;
  uint64_t entries_ = 0;
  bool too_many_ = false;
  Sum all_;
  Sum here_;
  Sum fetched_;
  Sum left_;
  std::map<std::string, uint64_t> failures_;
  std::string stopped_;
  std::string waiting_;
};

}  // namespace inductorfs::mount
