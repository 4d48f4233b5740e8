// SPDX-License-Identifier: Apache-2.0
#include "fuzz_target.h"
#include "ledger/records.h"

namespace fuzz = inductorfs::fuzz;
namespace ledger = inductorfs::ledger;

/// What a store has kept of jobs, as the disk gives it back: what was read is written so that it is read again.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::view(data, size);
  if (const auto kept = ledger::totals_from(text)) {
    const std::string record = ledger::to_record(*kept);
    const auto again = ledger::totals_from(record);
    INDUCTORFS_CHECK(again && ledger::to_record(*again) == record);
  }
  if (const auto job = ledger::job_from(text)) {
    const std::string record = ledger::to_record(*job);
    const auto again = ledger::job_from(record);
    INDUCTORFS_CHECK(again && ledger::to_record(*again) == record);
  }
  return 0;
}
