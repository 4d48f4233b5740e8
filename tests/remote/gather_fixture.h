// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "inductorfs/codec/frame.h"
#include "inductorfs/codec/solid_block.h"
#include "remote_fakes.h"

namespace inductorfs::remote {

/// Frames of real blobs, which a remote that gathers them looks into. Needs external synchronisation.
class FramedSource final : public BlobSource {
 public:
  codec::Digest add(const std::string& raw) {
    const codec::Digest digest = codec::digest_of(raw);
    raw_[digest] = raw;
    return digest;
  }
  Result<void> read(const codec::Digest& digest, size_t piece,
                    const std::function<Result<void>(std::string_view)>& sink) override {
    ++reads;
    INDUCTORFS_TRY_ASSIGN(const std::string frame, codec::encode_frame(raw_.at(digest)));
    for (size_t at = 0; at < frame.size(); at += piece) INDUCTORFS_TRY(sink(std::string_view(frame).substr(at, piece)));
    return {};
  }
  [[nodiscard]] const std::string& raw(const codec::Digest& digest) const { return raw_.at(digest); }
  int reads = 0;

 private:
  std::map<codec::Digest, std::string> raw_;
};

/// Texts of some KiB that have nearly all in common and are nothing that zstd's dictionary knows.
inline std::string like_text(uint32_t number) {
  return test_bytes(4000, 77) + "the member of number " + std::to_string(number) + test_bytes(20, number);
}

/// What fetch() gives of these blobs; "error" and its code for those that it does not give.
inline std::vector<std::string> fetched(const Remote& remote, const std::vector<codec::Digest>& digests) {
  FakeSink sink;
  remote.blobs->fetch(digests, sink, soon());
  std::vector<std::string> all;
  for (const codec::Digest& digest : digests) {
    if (const auto error = sink.error_of(digest)) {
      all.push_back("error " + std::to_string(static_cast<int>(*error)));
      continue;
    }
    const auto raw = codec::decode_frame(sink.frames[digest], digest, codec::kSolidBlockLimit);
    all.push_back(raw ? *raw : raw.error().to_string());
  }
  return all;
}

}  // namespace inductorfs::remote
