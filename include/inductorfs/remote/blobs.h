// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "inductorfs/base/budget.h"
#include "inductorfs/base/clock.h"
#include "inductorfs/base/result.h"
#include "inductorfs/codec/digest.h"

namespace inductorfs::remote {

/// Receives blobs, one after the other. Confined to the thread that called fetch().
class BlobSink {
 public:
  virtual ~BlobSink() = default;
  /// Takes the next piece of the blob's frame (codec/frame.h); pieces come in order.
  [[nodiscard]] virtual Result<void> piece(const codec::Digest& digest, std::string_view frame_piece) = 0;
  /// Ends one digest; called exactly once for each digest that was asked for. Success: all pieces have been given.
  /// kNotFound: the cluster does not have the blob (evicted). kNotSupported: the cluster has it, but only a newer
  /// release can read it. kCorrupt: it is damaged. An error that piece() answered is handed back. Any other error: the
  /// bytes could not be had now.
  virtual void done(const codec::Digest& digest, Result<void> outcome) = 0;
};

/// Provides the frame of a blob that is to be stored. Confined to the thread that called publish().
class BlobSource {
 public:
  virtual ~BlobSource() = default;
  /// Calls `sink` with the pieces of the frame, each but the last exactly `piece` bytes long.
  [[nodiscard]] virtual Result<void> read(const codec::Digest& digest, size_t piece,
                                          const std::function<Result<void>(std::string_view)>& sink) = 0;
};

/// Larger blobs have little in common with others that they have not in themselves.
inline constexpr uint64_t kGatheredBlobLimit = uint64_t{768} << 10;

/// What Blobs::gather() did.
struct GatherReport {
  uint64_t blobs = 0;         ///< that are members of a solid block now and were not before
  uint64_t blocks = 0;        ///< that were written
  uint64_t bytes_before = 0;  ///< in the cluster, of these blobs
  uint64_t bytes_after = 0;   ///< of their blocks, and of what is left of them
};

/// The blobs of a cluster, by digest. Calls block and fail as those of a Remote. Safe for concurrent use.
class Blobs {
 public:
  virtual ~Blobs() = default;

  /// Fetches all of `digests` in one pipeline, with at most a few MiB in flight.
  virtual void fetch(std::span<const codec::Digest> digests, BlobSink& sink, Deadline deadline) = 0;
  /// Fetches for a waiting caller: everything, from a free connection over each round trip to a second try, takes no
  /// longer than the budget. An implementation that does not measure progress takes the budget's total as the deadline.
  virtual void fetch_within(std::span<const codec::Digest> digests, BlobSink& sink, Budget& budget) {
    fetch(digests, sink, budget.total());
  }
  /// Says whether a fetch would be refused at once, because the breaker is open and no probe is due.
  [[nodiscard]] virtual bool resting() const { return false; }

  /// Begins the lifetime of these blobs anew, because a host uses them, if a part of it is over. Best effort; cheap
  /// when they are fresh.
  [[nodiscard]] virtual Result<void> renew(std::span<const codec::Digest> /*digests*/, Deadline /*deadline*/) {
    return {};
  }

  /// Puts the small ones of these blobs, in this order, into solid blocks (codec/solid_block.h) where that takes less
  /// of the cluster's memory, so like should stand beside like. fetch() gives each blob as before; releases without
  /// blocks cannot read it. What is a member already, not there, or gathered by another host just now stays as it is.
  [[nodiscard]] virtual Result<GatherReport> gather(std::span<const codec::Digest> /*digests*/, Deadline /*deadline*/) {
    return GatherReport{};
  }

  /// Makes another handle to the same blobs, whose calls end soon with kUnavailable once `cancelled` says so; for
  /// threads whose end somebody waits for. This object itself, if none of its calls blocks for long. The handle must
  /// not outlive this object.
  [[nodiscard]] virtual std::shared_ptr<Blobs> blobs_until(std::function<bool()> /*cancelled*/) {
    return {std::shared_ptr<Blobs>(), this};
  }
};

/// Fetches one blob into memory. kTooLarge beyond `limit`; other errors are those of BlobSink::done().
[[nodiscard]] Result<std::string> fetch_bytes(Blobs& blobs, const codec::Digest& digest, uint64_t limit,
                                              Deadline deadline);

}  // namespace inductorfs::remote
