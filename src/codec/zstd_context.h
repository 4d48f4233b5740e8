// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <zstd.h>

#include <string>
#include <string_view>

#include "inductorfs/base/handle.h"

/// Keeps contexts of zstd, which are costly to make: each thread keeps one of each kind while it is idle. A context in
/// use is in no thread's cache, so uses may overlap (a sink that encodes again) and end on another thread.
namespace inductorfs::codec {

using CompressContext = Handle<ZSTD_CCtx, ZSTD_freeCCtx>;
using DecompressContext = Handle<ZSTD_DCtx, ZSTD_freeDCtx>;

/// Returns a context that is ready for one frame of this module's kind: level, no zstd checksum (the digest is the
/// check), content size on.
[[nodiscard]] CompressContext take_compress_context();
/// Compresses all bytes into `out`, which is as long as ZSTD_compressBound says, with the dictionary (dictionary.h), at
/// the dictionary's own level. Returns what zstd answers.
[[nodiscard]] size_t compress_with_dictionary(ZSTD_CCtx& context, std::string& out, std::string_view bytes);
/// Sets a context to the dictionary for the next frame.
void use_dictionary(ZSTD_DCtx& context);
void give_back(CompressContext context);

/// Returns a context that is ready for one frame, with the window limit set.
[[nodiscard]] DecompressContext take_decompress_context();
void give_back(DecompressContext context);

}  // namespace inductorfs::codec
