// SPDX-License-Identifier: Apache-2.0
// What a node of a Redis Cluster says of the others: the answer to CLUSTER SLOTS, or a redirection. A server may say
// anything; what is made of it stays within its limits, and is an address that a client may connect to.
#include "fuzz_target.h"
#include "remote/client/slot_map.h"
#include "reply_parser.h"

namespace {

namespace fuzz = inductorfs::fuzz;
namespace redis = inductorfs::redis;
namespace remote = inductorfs::remote;

void check_address(const redis::HostPort& address) {
  constexpr size_t kHostLimit = 253;
  INDUCTORFS_CHECK(!address.host.empty() && address.host.size() <= kHostLimit && address.port != 0);
  for (const char c : address.host) INDUCTORFS_CHECK(c > ' ' && c < '\x7f' && c != '/' && c != '@' && c != '?');
}

void check_map(const remote::SlotMap& map) {
  INDUCTORFS_CHECK(map.masters.size() <= remote::kMastersLimit && map.owners.size() == remote::kSlots);
  for (const redis::HostPort& master : map.masters) check_address(master);
  size_t served = 0;
  for (const uint16_t owner : map.owners) {
    INDUCTORFS_CHECK(owner == remote::SlotMap::kNobody || owner < map.masters.size());
    served += owner == remote::SlotMap::kNobody ? 0 : 1;
  }
  INDUCTORFS_CHECK(served + map.uncovered() == remote::kSlots);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input = fuzz::view(data, size);
  const redis::HostPort asked{"asked.example", 7000};
  if (const auto redirect = remote::parse_redirect(input, asked)) {
    INDUCTORFS_CHECK(redirect->slot < remote::kSlots);
    check_address(redirect->to);
  }
  INDUCTORFS_CHECK(remote::slot_of_key(input) < remote::kSlots);
  redis::ReplyParser parser;
  if (!parser.feed(input)) return 0;
  for (auto reply = parser.next(); reply && *reply; reply = parser.next()) {
    if (const auto map = remote::parse_slots(**reply, asked)) check_map(*map);
  }
  return 0;
}
