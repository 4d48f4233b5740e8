// SPDX-License-Identifier: Apache-2.0
#include "notes.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>

#include "inductorfs/codec/digest.h"
#include "inductorfs/config/json.h"

namespace inductorfs::mount {

using config::Json;

namespace {

/// Two notes, the older of which is overwritten: sparse, so the room costs nothing.
constexpr uint64_t kHalf = 16ULL << 20;
constexpr uint64_t kMagic = 0x69667373746f6e31;
constexpr int kHalves = 2;

std::string encode(const Noted& noted) {
  Json also = Json::array();
  for (const places::AlsoState& state : noted.also) {
    also.push_back({{"name", state.also.name},
                    {"path", state.also.path},
                    {"kind", static_cast<int>(state.kind)},
                    {"why", state.why},
                    {"made", state.made},
                    {"mount", state.bound.mount},
                    {"device", state.bound.device}});
  }
  const Json json = {{"facts", noted.facts.to_json()},
                     {"learned", noted.learned},
                     {"traces", noted.traces},
                     {"also", std::move(also)}};
  const std::vector<uint8_t> bytes = Json::to_cbor(json);
  return {bytes.begin(), bytes.end()};
}

std::optional<Noted> decode(std::string_view bytes) {
  try {
    const Json json = Json::from_cbor(bytes);
    Result<fingerprint::Fingerprint> facts = fingerprint::Fingerprint::from_json(json.at("facts").get<std::string>());
    if (!facts) return std::nullopt;
    Noted noted{std::move(*facts), json.at("learned").get<std::time_t>(), json.at("traces").get<std::string>(), {}};
    for (const Json& one : json.at("also")) {
      const int kind = one.at("kind").get<int>();
      if (kind < 0 || kind > static_cast<int>(places::AlsoState::Kind::kFailed)) return std::nullopt;
      noted.also.push_back({{one.at("name").get<std::string>(), one.at("path").get<std::string>()},
                            static_cast<places::AlsoState::Kind>(kind),
                            one.at("why").get<std::string>(),
                            one.at("made").get<std::vector<std::string>>(),
                            {one.value("mount", uint64_t{0}), one.value("device", "")}});
    }
    return noted;
  } catch (const std::exception&) {
    return std::nullopt;  // another version's: everything is found out again
  }
}

}  // namespace

/// Written last, in one step.
struct Notes::Head {
  uint64_t magic = 0;
  uint64_t number = 0;
  uint64_t size = 0;
  std::array<char, 8> check{};
};

std::optional<Notes::Head> Notes::head(int half) const {
  Head head;
  const Result<size_t> got =
      pread_full(memory_.get(), reinterpret_cast<char*>(&head), sizeof head, static_cast<uint64_t>(half) * kHalf);
  if (!got || *got != sizeof head || head.magic != kMagic || head.size > kHalf - sizeof head) return std::nullopt;
  return head;
}

std::optional<Noted> Notes::read() const {
  std::array<std::pair<uint64_t, int>, kHalves> order;
  for (int half = 0; half < kHalves; ++half) {
    const std::optional<Head> found = head(half);
    order[static_cast<size_t>(half)] = {found ? found->number : 0, half};
  }
  std::sort(order.rbegin(), order.rend());
  for (const auto& [number, half] : order) {
    const std::optional<Head> found = head(half);
    if (number == 0 || !found) continue;
    std::string bytes(static_cast<size_t>(found->size), '\0');
    const Result<size_t> got =
        pread_full(memory_.get(), bytes.data(), bytes.size(), static_cast<uint64_t>(half) * kHalf + sizeof(Head));
    if (!got || *got != bytes.size()) continue;
    const std::string digest = codec::digest_of(bytes).to_hex();
    if (std::memcmp(digest.data(), found->check.data(), found->check.size()) != 0) continue;
    if (std::optional<Noted> noted = decode(bytes)) return noted;
  }
  return std::nullopt;
}

Result<void> Notes::write(const Noted& noted) {
  if (!memory_) return {};
  const std::string bytes = encode(noted);
  if (bytes.size() > kHalf - sizeof(Head)) return fail(ErrorCode::kTooLarge, "notes for the next worker");
  const std::optional<Head> first = head(0);
  const std::optional<Head> second = head(1);
  const uint64_t newest = std::max(first ? first->number : 0, second ? second->number : 0);
  const int half = first && first->number == newest ? 1 : 0;
  const uint64_t at = static_cast<uint64_t>(half) * kHalf;
  Head fresh;
  // What stood here is no note any more while it is overwritten.
  INDUCTORFS_TRY(pwrite_full(memory_.get(), {reinterpret_cast<const char*>(&fresh), sizeof fresh}, at));
  INDUCTORFS_TRY(pwrite_full(memory_.get(), bytes, at + sizeof fresh));
  fresh.magic = kMagic;
  fresh.number = newest + 1;
  fresh.size = bytes.size();
  std::memcpy(fresh.check.data(), codec::digest_of(bytes).to_hex().data(), fresh.check.size());
  return pwrite_full(memory_.get(), {reinterpret_cast<const char*>(&fresh), sizeof fresh}, at);
}

}  // namespace inductorfs::mount
