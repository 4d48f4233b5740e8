// SPDX-License-Identifier: Apache-2.0
#include "catalog/database/publish_codec.h"
#include "fuzz_target.h"

namespace catalog = inductorfs::catalog;
namespace codec = inductorfs::codec;
namespace fuzz = inductorfs::fuzz;

/// A row of the publish queue. Accepted is what encodes to the same bytes again.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input = fuzz::view(data, size);
  if (input.empty()) return 0;
  // The entry inside has a check of its own: with one, the fuzzer gets behind it by the seeds alone.
  const bool as_it_is = fuzz::take_byte(input) % 2 == 0;
  const std::string payload = as_it_is ? std::string(input) : fuzz::checked(input);
  const auto publish = catalog::decode_publish(payload);
  if (!publish) return 0;
  INDUCTORFS_CHECK(!publish->entries.empty());
  for (const codec::Entry& entry : publish->entries) INDUCTORFS_CHECK(codec::is_clean_path(entry.path));
  INDUCTORFS_CHECK(catalog::encode_publish(*publish) == payload);
  return 0;
}
