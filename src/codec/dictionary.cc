// SPDX-License-Identifier: Apache-2.0
#include "dictionary.h"

// As C++20 has no #embed: the assembler includes the file (gcc and clang).
__asm__(
    ".section .rodata\n"
    ".balign 16\n"
    ".globl inductorfs_codec_dictionary_begin\n"
    "inductorfs_codec_dictionary_begin:\n"
    ".incbin \"" INDUCTORFS_DICTIONARY_FILE
    "\"\n"
    ".globl inductorfs_codec_dictionary_end\n"
    "inductorfs_codec_dictionary_end:\n"
    ".byte 0\n"
    ".text\n");

extern "C" {
extern const char inductorfs_codec_dictionary_begin[];
extern const char inductorfs_codec_dictionary_end[];
}

namespace inductorfs::codec {

std::string_view dictionary() {
  return {inductorfs_codec_dictionary_begin,
          static_cast<size_t>(inductorfs_codec_dictionary_end - inductorfs_codec_dictionary_begin)};
}

}  // namespace inductorfs::codec
