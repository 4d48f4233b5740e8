// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/layout/start_list.h"

#include <algorithm>
#include <unordered_set>

#include "families.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/codec/entry.h"
#include "name_shapes.h"

namespace inductorfs::layout {
namespace {

constexpr std::string_view kHeader = "inductorfs-starts-v1\n";
/// A digit and a space before the key.
constexpr size_t kPrefix = 2;

}  // namespace

std::string start_list_path(std::string_view key) {
  return std::string(kStartLists) + "/" + codec::digest_of(key).to_hex();
}

bool is_start_list(std::string_view path) {
  const size_t slash = kStartLists.size();
  return path.starts_with(kStartLists) && path.substr(slash).starts_with('/') &&
         is_text_of(path.substr(slash + 1), kSha256HexLength, kHex);
}

Result<std::vector<StartKey>> start_list_keys(std::string_view bytes) {
  if (bytes.size() > kStartListBytes) return fail(ErrorCode::kCorrupt, "is larger than a list of a start may be");
  if (!bytes.starts_with(kHeader)) return fail(ErrorCode::kCorrupt, "is no list of a start of this version");
  bytes.remove_prefix(kHeader.size());
  std::vector<StartKey> keys;
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    if (end == std::string_view::npos) return fail(ErrorCode::kCorrupt, "ends within a line");
    const std::string_view line = bytes.substr(0, end);
    bytes.remove_prefix(end + 1);
    const bool fits = line.size() > kPrefix && line.size() <= kPrefix + codec::kPathLimit && is_in(line[0], kDigit) &&
                      line[1] == ' ' && split(line.substr(kPrefix)).clean;
    if (!fits || keys.size() >= kStartListKeys) return fail(ErrorCode::kCorrupt, "has a line that names no key");
    keys.push_back({std::string(line.substr(kPrefix)), static_cast<unsigned>(line[0] - '0')});
  }
  return keys;
}

std::string start_list_text(const std::vector<StartKey>& keys) {
  std::string text(kHeader);
  size_t count = 0;
  for (const StartKey& one : keys) {
    if (one.key.find('\n') != std::string::npos) continue;
    if (text.size() + kPrefix + one.key.size() + 1 > kStartListBytes || ++count > kStartListKeys) break;
    text += static_cast<char>('0' + std::min(one.passed_over, 9U));
    text.append(" ").append(one.key).append("\n");
  }
  return text;
}

std::vector<StartKey> next_start_list(const std::vector<StartKey>& earlier, const std::vector<std::string>& asked,
                                      bool judges) {
  std::vector<StartKey> next;
  std::unordered_set<std::string_view> known;
  for (const std::string& key : asked) {
    if (known.insert(key).second) next.push_back({key, 0});
  }
  for (const StartKey& one : earlier) {
    const unsigned passed_over = one.passed_over + (judges ? 1 : 0);
    if (passed_over < kForgotten && known.insert(one.key).second) next.push_back({one.key, passed_over});
  }
  return next;
}

}  // namespace inductorfs::layout
