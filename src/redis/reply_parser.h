// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include "inductorfs/base/result.h"
#include "inductorfs/redis/connection.h"

namespace inductorfs::redis {

/// The limits of a reply. hiredis has no limit on a bulk's length (it buffers the whole bulk: hiredis#616, #1373), and
/// before 1.2.1 none on depth: a hostile server could fill the memory or the stack of this process.
struct ReplyLimits {
  size_t depth = 8;
  size_t elements = size_t{1} << 18;      ///< in one reply, all levels together
  size_t bulk_bytes = size_t{8} << 20;    ///< one string, and the bytes that are buffered while it is not whole
  size_t reply_bytes = size_t{64} << 20;  ///< all strings of one reply
};

/// Parses RESP2 by hiredis' reader with reply functions of our own. After an error every further call fails too.
/// Needs external synchronisation.
class ReplyParser {
 public:
  explicit ReplyParser(ReplyLimits limits = {});
  ~ReplyParser();
  ReplyParser(const ReplyParser&) = delete;
  ReplyParser& operator=(const ReplyParser&) = delete;

  [[nodiscard]] Result<void> feed(std::string_view bytes);
  /// Returns the next whole reply; empty when more bytes are needed. kCorrupt: not the protocol, or over a limit.
  [[nodiscard]] Result<std::optional<Reply>> next();
  /// Says whether no byte of a further reply has been fed.
  [[nodiscard]] bool drained() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Appends one command as it is sent. kTooLarge when it is over kCommandBytesLimit.
inline constexpr size_t kCommandBytesLimit = size_t{32} << 20;
[[nodiscard]] Result<void> append_command(const Command& command, std::string& out);

}  // namespace inductorfs::redis
