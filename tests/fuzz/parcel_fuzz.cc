// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "fuzz_target.h"
#include "inductorfs/codec/entry.h"
#include "inductorfs/codec/parcel.h"

namespace codec = inductorfs::codec;
namespace fuzz = inductorfs::fuzz;

/// What is accepted has one encoding, and no item of it reaches out of its directory.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input = fuzz::view(data, size);
  const auto head = codec::decode_parcel_head(input);
  if (!head) {
    const auto code = head.error().code();
    INDUCTORFS_CHECK(code == inductorfs::ErrorCode::kCorrupt || code == inductorfs::ErrorCode::kNotSupported);
    return 0;
  }
  const auto head_size = codec::parcel_head_size(input);
  INDUCTORFS_CHECK(head_size && *head_size == head->size && head->size <= input.size());
  auto items = head->items;
  const auto again = codec::encode_parcel_head(items);
  INDUCTORFS_CHECK(again && *again == input.substr(0, head->size) && items == head->items);
  for (const codec::ParcelItem& item : items) INDUCTORFS_CHECK(codec::is_clean_path(item.path));
  const auto bodies = codec::parcel_bodies(*head, input);
  INDUCTORFS_CHECK(bodies.has_value() == (head->whole() == input.size()));
  if (bodies) {
    for (size_t i = 0; i < items.size(); ++i) INDUCTORFS_CHECK((*bodies)[i].size() == items[i].size);
  }
  return 0;
}
