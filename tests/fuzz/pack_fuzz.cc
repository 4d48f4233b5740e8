// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "fuzz_target.h"
#include "inductorfs/base/encoding.h"
#include "store/pack.h"

namespace fuzz = inductorfs::fuzz;
namespace store = inductorfs::store;

/// A record of a pack's index. Its check is made to fit, or nearly all inputs would end there.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(fuzz::view(data, size));
  (void)store::PackRecord::decode(bytes);
  bytes.resize(store::kPackRecordSize, '\0');
  std::string check;
  inductorfs::append_integer(check, inductorfs::crc32(std::string_view(bytes).substr(0, store::PackRecord::kStateAt)));
  std::memcpy(bytes.data() + store::PackRecord::kCheckAt, check.data(), check.size());
  const auto record = store::PackRecord::decode(bytes);
  if (!record) return 0;
  INDUCTORFS_CHECK(record->encode() == bytes);
  INDUCTORFS_CHECK(record->size <= store::kPackedMost && record->offset < store::kPackBytes);
  INDUCTORFS_CHECK(record->offset % store::kPackBlock == 0);
  return 0;
}
