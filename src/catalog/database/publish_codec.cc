// SPDX-License-Identifier: Apache-2.0
#include "catalog/database/publish_codec.h"

#include <cstdint>
#include <optional>

#include "inductorfs/base/encoding.h"

namespace inductorfs::catalog {
namespace {

constexpr uint8_t kPayloadVersion = 2;
constexpr size_t kCheckSize = 4;
/// More than any scope, path or entry value has; keeps a damaged length from asking for memory.
constexpr uint32_t kStringLimit = 64 * 1024;

void put_number(std::string& out, uint32_t number) {
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>((number >> shift) & 0xff);
}

void put_string(std::string& out, std::string_view text) {
  put_number(out, static_cast<uint32_t>(text.size()));
  out += text;
}

/// Reads fields from the front; after the first that does not fit, all further ones are empty and ok() is false.
/// Needs external synchronisation.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  uint8_t byte() {
    const std::string_view field = take(1);
    return field.empty() ? uint8_t{0} : static_cast<uint8_t>(field.front());
  }
  uint32_t number() {
    uint32_t value = 0;
    int shift = 0;
    for (const char c : take(4)) {
      value |= uint32_t{static_cast<uint8_t>(c)} << shift;
      shift += 8;
    }
    return value;
  }
  std::string_view string() {
    const uint32_t size = number();
    if (size > kStringLimit) ok_ = false;
    return take(size);
  }
  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] bool at_end() const { return ok_ && rest_.empty(); }

 private:
  std::string_view take(size_t size) {
    if (!ok_ || rest_.size() < size) {
      ok_ = false;
      return {};
    }
    const std::string_view field = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return field;
  }

  std::string_view rest_;
  bool ok_ = true;
};

std::optional<Publish::Kind> kind_from(uint8_t number) {
  for (const auto kind : {Publish::Kind::kPlain, Publish::Kind::kFirst, Publish::Kind::kCandidate,
                          Publish::Kind::kMerge, Publish::Kind::kFirstOfPath}) {
    if (static_cast<uint8_t>(kind) == number) return kind;
  }
  return std::nullopt;
}

}  // namespace

std::string encode_publish(const Publish& publish) {
  std::string out;
  out += static_cast<char>(kPayloadVersion);
  out += static_cast<char>(publish.kind);
  put_string(out, publish.scope);
  put_string(out, publish.contest);
  put_number(out, static_cast<uint32_t>(publish.seen.size()));
  for (const auto& path : publish.seen) put_string(out, path);
  put_number(out, static_cast<uint32_t>(publish.entries.size()));
  for (const auto& entry : publish.entries) {
    put_string(out, entry.path);
    put_string(out, codec::encode_entry(entry));
  }
  put_number(out, crc32(out));
  return out;
}

Result<Publish> decode_publish(std::string_view payload) {
  if (payload.size() < kCheckSize) return fail(ErrorCode::kCorrupt, "queued publish: wrong length");
  const std::string_view checked = payload.substr(0, payload.size() - kCheckSize);
  Reader reader(checked);
  if (Reader(payload.substr(checked.size())).number() != crc32(checked)) {
    return fail(ErrorCode::kCorrupt, "queued publish: it is damaged");
  }
  if (reader.byte() != kPayloadVersion) return fail(ErrorCode::kNotSupported, "queued publish: of another release");
  const auto kind = kind_from(reader.byte());
  if (!kind) return fail(ErrorCode::kCorrupt, "queued publish: unknown kind");
  Publish publish;
  publish.kind = *kind;
  publish.scope = reader.string();
  publish.contest = reader.string();
  for (uint32_t left = reader.number(); left > 0 && reader.ok(); --left) {
    publish.seen.emplace_back(reader.string());
  }
  for (uint32_t left = reader.number(); left > 0 && reader.ok(); --left) {
    const std::string_view path = reader.string();
    const std::string_view value = reader.string();
    if (!reader.ok()) break;
    auto entry = codec::decode_entry(path, value);
    if (!entry) return fail(std::move(entry).error().with_context("queued publish"));
    publish.entries.push_back(std::move(*entry));
  }
  if (!reader.at_end() || publish.entries.empty()) {
    return fail(ErrorCode::kCorrupt, "queued publish: wrong length");
  }
  return publish;
}

}  // namespace inductorfs::catalog
