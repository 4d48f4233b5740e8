// SPDX-License-Identifier: Apache-2.0
#include "remote/client/slot_map.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "inductorfs/base/number.h"

namespace inductorfs::remote {
namespace {

using redis::HostPort;
using redis::Reply;

constexpr size_t kHostLimit = 253;  // of a name in the DNS

// CRC16 of XMODEM, as the cluster specification has it.
constexpr std::array<uint16_t, 256> make_table() {
  constexpr uint16_t kPolynomial = 0x1021;
  std::array<uint16_t, 256> table{};
  for (size_t i = 0; i < table.size(); ++i) {
    auto value = static_cast<uint16_t>(i << 8);
    for (int bit = 0; bit < 8; ++bit) {
      value = static_cast<uint16_t>((value & 0x8000) != 0 ? (value << 1) ^ kPolynomial : value << 1);
    }
    table[i] = value;
  }
  return table;
}

uint16_t crc16(std::string_view bytes) {
  static constexpr auto kTable = make_table();
  uint16_t crc = 0;
  for (const char c : bytes) {
    crc = static_cast<uint16_t>((crc << 8) ^ kTable[((crc >> 8) ^ static_cast<unsigned char>(c)) & 0xff]);
  }
  return crc;
}

std::optional<uint16_t> to_number(std::string_view text, uint16_t limit) {
  const auto value = number_in<uint16_t>(text);
  return value && *value <= limit ? value : std::nullopt;
}

bool is_good_host(std::string_view host) {
  const auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' ||
           c == '_' || c == ':';
  };
  return !host.empty() && host.size() <= kHostLimit && std::all_of(host.begin(), host.end(), plain);
}

// A node that does not know its own address leaves it out; one that is to be known by a name that it has not says "?".
std::optional<std::string> host_in(std::string_view text, const HostPort& asked) {
  if (text.empty()) return asked.host;
  if (!is_good_host(text)) return std::nullopt;
  return std::string(text);
}

tl::unexpected<Error> bad_slots(std::string_view what) {
  return fail(ErrorCode::kCorrupt, "the answer to CLUSTER SLOTS: " + std::string(what));
}

/// Builds a map from one answer. Confined to the calling thread.
class SlotReader {
 public:
  explicit SlotReader(const HostPort& asked) : asked_(asked) {}

  Result<SlotMap> read(const Reply& reply) {
    if (reply.kind != Reply::Kind::kArray) return bad_slots("it is no list");
    for (const Reply& range : reply.items) INDUCTORFS_TRY(add(range));
    return std::move(map_);
  }

 private:
  // [first slot, last slot, [endpoint, port, ...] of the master, those of its replicas...]
  Result<void> add(const Reply& range) {
    const auto& items = range.items;
    if (range.kind != Reply::Kind::kArray || items.size() < 3 || items[2].items.size() < 2) {
      return bad_slots("a range has not the form of one");
    }
    const int64_t first = items[0].integer;
    const int64_t last = items[1].integer;
    if (first < 0 || first > last || last >= static_cast<int64_t>(kSlots)) return bad_slots("a slot out of range");
    if (items[0].kind != Reply::Kind::kInteger || items[1].kind != Reply::Kind::kInteger) {
      return bad_slots("a slot is no number");
    }
    const Reply& endpoint = items[2].items[0];
    if (endpoint.text == "?") return {};  // nobody can be asked for these slots
    const auto host = host_in(endpoint.text, asked_);
    const int64_t port = items[2].items[1].integer;
    if (!host || port <= 0 || port > 65535) return bad_slots("a master without a usable address");
    INDUCTORFS_TRY_ASSIGN(const uint16_t place, place_of({*host, static_cast<uint16_t>(port)}));
    for (int64_t slot = first; slot <= last; ++slot) {
      uint16_t& owner = map_.owners[static_cast<size_t>(slot)];
      if (owner != SlotMap::kNobody) return bad_slots("a slot has two masters");
      owner = place;
    }
    return {};
  }

  Result<uint16_t> place_of(const HostPort& master) {
    const auto [found, added] = places_.try_emplace(master, static_cast<uint16_t>(map_.masters.size()));
    if (!added) return found->second;
    if (map_.masters.size() == kMastersLimit) return bad_slots("too many masters");
    map_.masters.push_back(master);
    return found->second;
  }

  const HostPort& asked_;
  SlotMap map_;
  std::map<HostPort, uint16_t> places_;
};

}  // namespace

uint16_t slot_of_key(std::string_view key) {
  const size_t open = key.find('{');
  if (open != std::string_view::npos) {
    const size_t close = key.find('}', open + 1);
    if (close != std::string_view::npos && close > open + 1) key = key.substr(open + 1, close - open - 1);
  }
  return static_cast<uint16_t>(crc16(key) % kSlots);
}

std::optional<uint16_t> slot_of(const redis::Command& command) {
  constexpr std::array<std::string_view, 5> kWithoutKeys = {"TIME", "INFO", "PING", "CLUSTER", "ASKING"};
  if (command.size() < 2 || std::ranges::find(kWithoutKeys, command[0]) != kWithoutKeys.end()) return std::nullopt;
  size_t key = 1;
  if (command[0] == "EVAL") {
    key = 3;
  } else if (command[0] == "XREAD") {
    const auto streams = std::ranges::find(command, std::string_view("STREAMS"));
    key = static_cast<size_t>(streams - command.begin()) + 1;
  }
  if (key >= command.size()) return std::nullopt;
  return slot_of_key(command[key]);
}

size_t SlotMap::uncovered() const { return static_cast<size_t>(std::ranges::count(owners, kNobody)); }

Result<SlotMap> parse_slots(const Reply& reply, const HostPort& asked) { return SlotReader(asked).read(reply); }

std::optional<Redirect> parse_redirect(std::string_view error, const HostPort& asked) {
  Redirect redirect;
  if (error.starts_with("MOVED ")) {
    error.remove_prefix(6);
  } else if (error.starts_with("ASK ")) {
    redirect.kind = Redirect::Kind::kAsk;
    error.remove_prefix(4);
  } else {
    return std::nullopt;
  }
  const size_t space = error.find(' ');
  const size_t colon = error.rfind(':');
  if (space == std::string_view::npos || colon == std::string_view::npos || colon < space) return std::nullopt;
  const auto slot = to_number(error.substr(0, space), kSlots - 1);
  const auto host = host_in(error.substr(space + 1, colon - space - 1), asked);
  const auto port = to_number(error.substr(colon + 1), 65535);
  if (!slot || !host || !port || *port == 0) return std::nullopt;
  redirect.slot = *slot;
  redirect.to = {*host, *port};
  return redirect;
}

}  // namespace inductorfs::remote
