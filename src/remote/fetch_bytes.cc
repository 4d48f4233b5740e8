// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "inductorfs/codec/frame.h"
#include "inductorfs/remote/blobs.h"

namespace inductorfs::remote {
namespace {

/// One blob. Confined to the fetching thread.
class MemorySink final : public BlobSink {
 public:
  MemorySink(const codec::Digest& digest, uint64_t limit)
      : decoder_(digest, limit, [this](std::string_view bytes) -> Result<void> {
          bytes_ += bytes;
          return {};
        }) {}

  Result<void> piece(const codec::Digest&, std::string_view frame_piece) override { return decoder_.feed(frame_piece); }
  void done(const codec::Digest&, Result<void> outcome) override {
    outcome_ = outcome ? decoder_.finish() : std::move(outcome);
  }
  [[nodiscard]] Result<std::string> take() {
    return outcome_ ? Result<std::string>(std::move(bytes_)) : fail(outcome_.error());
  }

 private:
  std::string bytes_;
  codec::FrameDecoder decoder_;
  Result<void> outcome_ = fail(ErrorCode::kUnavailable, "the cluster gave no answer");
};

}  // namespace

Result<std::string> fetch_bytes(Blobs& blobs, const codec::Digest& digest, uint64_t limit, Deadline deadline) {
  MemorySink sink(digest, limit);
  blobs.fetch({&digest, 1}, sink, deadline);
  return sink.take();
}

}  // namespace inductorfs::remote
