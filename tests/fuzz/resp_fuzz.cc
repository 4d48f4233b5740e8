// SPDX-License-Identifier: Apache-2.0
// The reply parser. The first byte says where the rest is cut, so that every state between two feeds is reached; limits
// are small, so that the fuzzer meets them. The answer must not depend on the cuts.
#include "fuzz_target.h"
#include "reply_parser.h"

namespace {

using inductorfs::redis::Reply;
using inductorfs::redis::ReplyParser;
namespace fuzz = inductorfs::fuzz;

void append(const Reply& reply, std::string& out) {
  out += static_cast<char>('a' + static_cast<int>(reply.kind));
  out += std::to_string(reply.integer) + "," + reply.text + "(";
  for (const Reply& item : reply.items) append(item, out);
  out += ")";
}

// Everything that the parser made of the bytes. Errors are left out: a limit may be met earlier or later.
std::string replies_of(std::string_view bytes, size_t step) {
  ReplyParser parser({.depth = 4, .elements = 64, .bulk_bytes = 256, .reply_bytes = 1024});
  std::string out;
  while (!bytes.empty()) {
    const std::string_view part = bytes.substr(0, step);
    bytes.remove_prefix(part.size());
    if (!parser.feed(part)) return out;
    while (true) {
      auto reply = parser.next();
      if (!reply) return out;
      if (!*reply) break;
      append(**reply, out);
    }
  }
  return out;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input = fuzz::view(data, size);
  if (input.size() < 2) return 0;
  const size_t step = size_t{1} + fuzz::take_byte(input) % 16U;
  const std::string cut = replies_of(input, step);
  const std::string whole = replies_of(input, input.size());
  INDUCTORFS_CHECK(whole.starts_with(cut) || cut.starts_with(whole));
  return 0;
}
