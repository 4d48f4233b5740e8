// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace inductorfs::codec {

/// What zstd knows in advance of small artefacts (codec 2 of a frame): libraries, sources and pickles of torch have
/// most of their bytes in common. Trained by `zstd --train-fastcover --maxdict=112640` on the artefacts of
/// scripts/dictionary_corpus.py, whose jobs are none of the tests'. Its bytes are part of the format: another
/// dictionary is another codec number, and this one stays for ever.
[[nodiscard]] std::string_view dictionary();

}  // namespace inductorfs::codec
