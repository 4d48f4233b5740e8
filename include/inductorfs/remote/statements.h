// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/result.h"

/// Statements: what publishers have signed about entries. They lie beside the index, so that a release that knows
/// nothing of them reads the entries all the same. To the cluster a statement is bytes, and so is what it covers;
/// whoever reads one must take it for anybody's, and verify it (inductorfs/trust).
namespace inductorfs::remote {

/// The first 16 bytes of the SHA-256 of a statement's bytes.
inline constexpr size_t kStatementIdSize = 16;
inline constexpr size_t kStatementLimit = size_t{64} << 10;  ///< bytes
/// Names an entry with its digest, size and mode: bytes of a hash of them.
inline constexpr size_t kCoverKeySize = 8;
inline constexpr size_t kCoveredLimit = 256;  ///< entries of one statement, and keys of one question

/// Returns the id of these bytes.
[[nodiscard]] std::string statement_id(std::string_view bytes);

/// The statements of a cluster. Calls block and fail as those of a Remote. Safe for concurrent use.
class Statements {
 public:
  virtual ~Statements() = default;

  /// Writes a statement with this lifetime, and that it covers these entries, in one round trip. What covered them
  /// before covers them no more. It is to be written before the entries are published, so that nobody finds them
  /// without it. `keys`: 1 .. kCoveredLimit of kCoverKeySize bytes. kInvalid beyond a limit; kNotPermitted: this user
  /// may only read.
  [[nodiscard]] virtual Result<void> put_statement(const std::string& scope, std::string_view bytes,
                                                   std::span<const std::string> keys, Milliseconds lifetime,
                                                   Deadline deadline) = 0;
  /// Returns the id of what covers each of these, in order; empty where nothing does, and where there is no id.
  [[nodiscard]] virtual Result<std::vector<std::string>> find_statements(const std::string& scope,
                                                                         std::span<const std::string> keys,
                                                                         Deadline deadline) = 0;
  /// Returns the bytes of each of these, in order, at most kCoveredLimit; empty where the lifetime is over, and where
  /// they are not those of the id. So many kilobytes may take several round trips.
  [[nodiscard]] virtual Result<std::vector<std::string>> read_statements(const std::string& scope,
                                                                         std::span<const std::string> ids,
                                                                         Deadline deadline) = 0;
};

/// Says whether put_statement() takes these.
[[nodiscard]] Result<void> check_statement(std::string_view bytes, std::span<const std::string> keys);

}  // namespace inductorfs::remote
