// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace inductorfs::codec {

/// Returns the dictionary that zstd uses for small artefacts (codec 2 of a frame): libraries, sources and pickles of
/// torch have most of their bytes in common. It was trained by `zstd --train-fastcover --maxdict=112640` on the
/// artefacts of scripts/dictionary_corpus.py, whose jobs are none of the tests'. Its bytes are part of the format:
/// another dictionary gets another codec number, and this one stays for ever.
[[nodiscard]] std::string_view dictionary();

}  // namespace inductorfs::codec
