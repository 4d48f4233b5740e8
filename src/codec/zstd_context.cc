// SPDX-License-Identifier: Apache-2.0
#include "zstd_context.h"

#include <utility>

#include "dictionary.h"
#include "inductorfs/base/result.h"

namespace inductorfs::codec {
namespace {

constexpr int kLevel = 3;
/// Small artefacts are most of a cache, and compressed once by one node in the background: level 9 leaves 9 % less of
/// them than 3 in the same time. A precompiled header of 150 MB would take seconds longer.
constexpr int kDictionaryLevel = 9;
/// Larger blobs cost some milliseconds more, for the dictionary, and leave less.
constexpr uint64_t kPreparedLimit = 128ULL << 10;
/// Neither level asks for a window over 2^22; a frame that asks for more than this is not one of ours.
constexpr int kWindowLogLimit = 27;
/// A context that a foreign frame has blown up beyond this is not kept.
constexpr size_t kIdleSizeLimit = 8ULL << 20;

CompressContext& idle_compress() {
  thread_local CompressContext context;
  return context;
}

DecompressContext& idle_decompress() {
  thread_local DecompressContext context;
  return context;
}

void check(size_t zstd_answer) { INDUCTORFS_CHECK(ZSTD_isError(zstd_answer) == 0); }

}  // namespace

size_t compress_with_dictionary(ZSTD_CCtx& context, std::string& out, std::string_view bytes) {
  const std::string_view words = dictionary();
  // The tables of a prepared dictionary are as small as small blobs need them.
  if (bytes.size() > kPreparedLimit) {
    return ZSTD_compress_usingDict(&context, out.data(), out.size(), bytes.data(), bytes.size(), words.data(),
                                   words.size(), kDictionaryLevel);
  }
  static const Handle<ZSTD_CDict, ZSTD_freeCDict> prepared(
      ZSTD_createCDict(words.data(), words.size(), kDictionaryLevel));
  INDUCTORFS_CHECK(prepared != nullptr);
  check(ZSTD_CCtx_refCDict(&context, prepared.get()));
  return ZSTD_compress2(&context, out.data(), out.size(), bytes.data(), bytes.size());
}

void use_dictionary(ZSTD_DCtx& context) {
  static const Handle<ZSTD_DDict, ZSTD_freeDDict> prepared(ZSTD_createDDict(dictionary().data(), dictionary().size()));
  INDUCTORFS_CHECK(prepared != nullptr);
  check(ZSTD_DCtx_refDDict(&context, prepared.get()));
}

CompressContext take_compress_context() {
  CompressContext context = std::move(idle_compress());
  if (!context) context.reset(ZSTD_createCCtx());
  INDUCTORFS_CHECK(context != nullptr);
  check(ZSTD_CCtx_reset(context.get(), ZSTD_reset_session_and_parameters));
  check(ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kLevel));
  check(ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 0));
  check(ZSTD_CCtx_setParameter(context.get(), ZSTD_c_contentSizeFlag, 1));
  return context;
}

void give_back(CompressContext context) {
  if (context && ZSTD_sizeof_CCtx(context.get()) <= kIdleSizeLimit) idle_compress() = std::move(context);
}

DecompressContext take_decompress_context() {
  DecompressContext context = std::move(idle_decompress());
  if (!context) context.reset(ZSTD_createDCtx());
  INDUCTORFS_CHECK(context != nullptr);
  check(ZSTD_DCtx_reset(context.get(), ZSTD_reset_session_and_parameters));
  check(ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, kWindowLogLimit));
  return context;
}

void give_back(DecompressContext context) {
  if (context && ZSTD_sizeof_DCtx(context.get()) <= kIdleSizeLimit) idle_decompress() = std::move(context);
}

}  // namespace inductorfs::codec
