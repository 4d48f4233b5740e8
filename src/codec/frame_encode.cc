// SPDX-License-Identifier: Apache-2.0
#include <zstd.h>

#include <algorithm>
#include <utility>

#include "frame_layout.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/codec/frame.h"
#include "zstd_context.h"

namespace inductorfs::codec {
namespace {

/// Blobs up to this size are compressed in one go and stored raw exactly when that does not shrink them. Of larger ones
/// the first bytes decide: the codec stands in the header, before anything is known of the rest.
constexpr size_t kSampleSize = 1ULL << 20;
constexpr size_t kReadPiece = 128ULL * 1024;

/// Reads up to `size` bytes at an offset, fewer only at the end.
using ReadAt = std::function<Result<size_t>(char* out, size_t size, uint64_t offset)>;

/// Cuts a stream of bytes into pieces of one length. Needs external synchronisation.
class PieceCutter {
 public:
  PieceCutter(size_t piece, const ByteSink& sink) : piece_(piece), sink_(sink) {}

  Result<void> append(std::string_view bytes) {
    while (!bytes.empty()) {
      const size_t taken = std::min(piece_ - pending_.size(), bytes.size());
      pending_.append(bytes.substr(0, taken));
      bytes.remove_prefix(taken);
      if (pending_.size() == piece_) INDUCTORFS_TRY(flush());
    }
    return {};
  }
  Result<void> flush() {
    if (pending_.empty()) return {};
    auto taken = sink_(pending_);
    pending_.clear();
    return taken;
  }

 private:
  size_t piece_;
  const ByteSink& sink_;
  std::string pending_;
};

/// One frame on its way out. Needs external synchronisation.
class Encoder {
 public:
  Encoder(const ReadAt& read, uint64_t raw_size, const Digest& digest, PieceCutter& out)
      : read_(read), raw_size_(raw_size), digest_(digest), out_(out), context_(take_compress_context()) {}
  ~Encoder() { give_back(std::move(context_)); }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  Result<void> run() {
    std::string sample(static_cast<size_t>(std::min<uint64_t>(raw_size_, kSampleSize)), '\0');
    INDUCTORFS_TRY(read_exactly(sample.data(), sample.size(), 0));
    const std::string compressed = compress(sample);
    const bool shrinks = compressed.size() < sample.size();
    if (raw_size_ <= kSampleSize) {
      hasher_.update(sample);
      INDUCTORFS_TRY(check_end());
      INDUCTORFS_TRY(out_.append(frame_header(shrinks ? kCodecDictionary : kCodecStored, raw_size_, digest_)));
      INDUCTORFS_TRY(out_.append(shrinks ? compressed : sample));
    } else {
      INDUCTORFS_TRY(out_.append(frame_header(shrinks ? kCodecZstd : kCodecStored, raw_size_, digest_)));
      INDUCTORFS_TRY(shrinks ? stream_compressed() : stream_stored());
      INDUCTORFS_TRY(check_end());
    }
    return out_.flush();
  }

 private:
  [[nodiscard]] static tl::unexpected<Error> changed() {
    return fail(ErrorCode::kCorrupt, "encode frame: the file is not the bytes that its digest names");
  }

  Result<void> read_exactly(char* out, size_t size, uint64_t offset) {
    const auto got = read_(out, size, offset);
    INDUCTORFS_TRY(got);
    if (*got != size) return changed();
    return {};
  }

  [[nodiscard]] std::string compress(std::string_view bytes) {
    std::string out(ZSTD_compressBound(bytes.size()), '\0');
    const size_t size = raw_size_ <= kSampleSize
                            ? compress_with_dictionary(*context_, out, bytes)
                            : ZSTD_compress2(context_.get(), out.data(), out.size(), bytes.data(), bytes.size());
    INDUCTORFS_CHECK(ZSTD_isError(size) == 0);
    out.resize(size);
    return out;
  }

  /// Nothing may follow what was read, and it must have been the right bytes.
  Result<void> check_end() {
    char extra = 0;
    const auto got = read_(&extra, 1, raw_size_);
    INDUCTORFS_TRY(got);
    if (*got != 0 || hasher_.finish() != digest_) return changed();
    return {};
  }

  /// Gives all raw bytes in pieces, hashing them on the way.
  template <typename Use>
  Result<void> for_each_piece(Use&& use) {
    std::string piece(kReadPiece, '\0');
    for (uint64_t offset = 0; offset < raw_size_;) {
      const auto size = static_cast<size_t>(std::min<uint64_t>(piece.size(), raw_size_ - offset));
      INDUCTORFS_TRY(read_exactly(piece.data(), size, offset));
      const auto bytes = std::string_view(piece).substr(0, size);
      hasher_.update(bytes);
      offset += size;
      INDUCTORFS_TRY(use(bytes, offset == raw_size_));
    }
    return {};
  }

  Result<void> stream_stored() {
    return for_each_piece([this](std::string_view bytes, bool /*last*/) { return out_.append(bytes); });
  }

  Result<void> stream_compressed() {
    INDUCTORFS_CHECK(ZSTD_isError(ZSTD_CCtx_setPledgedSrcSize(context_.get(), raw_size_)) == 0);
    std::string buffer(ZSTD_CStreamOutSize(), '\0');
    return for_each_piece([&](std::string_view bytes, bool last) -> Result<void> {
      ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
      for (;;) {
        ZSTD_outBuffer out{buffer.data(), buffer.size(), 0};
        const size_t left = ZSTD_compressStream2(context_.get(), &out, &in, last ? ZSTD_e_end : ZSTD_e_continue);
        INDUCTORFS_CHECK(ZSTD_isError(left) == 0);
        if (auto put = out_.append(std::string_view(buffer).substr(0, out.pos)); !put) return put;
        if (last ? left == 0 : in.pos == in.size) return {};
      }
    });
  }

  const ReadAt& read_;
  uint64_t raw_size_;
  const Digest& digest_;
  PieceCutter& out_;
  CompressContext context_;
  Hasher hasher_;
};

}  // namespace

Result<void> encode_frame(const ReadAt& read, uint64_t raw_size, const Digest& digest, size_t piece,
                          const ByteSink& sink) {
  INDUCTORFS_CHECK(piece > 0);
  PieceCutter cutter(piece, sink);
  return Encoder(read, raw_size, digest, cutter).run();
}

Result<std::string> encode_frame(std::string_view raw) {
  std::string frame;
  const ByteSink sink = [&frame](std::string_view bytes) -> Result<void> {
    frame.append(bytes);
    return {};
  };
  const ReadAt read = [raw](char* out, size_t size, uint64_t offset) -> Result<size_t> {
    return raw.substr(std::min<size_t>(offset, raw.size())).copy(out, size);
  };
  PieceCutter cutter(kReadPiece, sink);
  INDUCTORFS_TRY(Encoder(read, raw.size(), digest_of(raw), cutter).run());
  return frame;
}

}  // namespace inductorfs::codec
