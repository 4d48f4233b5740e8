// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/counters.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/codec/entry.h"
#include "inductorfs/remote/statements.h"
#include "inductorfs/trust/statement.h"

/// Which entries of the cluster somebody who is trusted has signed.
namespace inductorfs::signing {

/// What is known of the signature over one entry.
struct SignatureFinding {
  enum class Standing {
    kTrusted,
    kUnsigned,  ///< no statement covers it
    kRefused,   ///< one covers it, and does not count: `verdict`
    kNotNow,    ///< the cluster did not answer, or there are too many that do not count
  };
  Standing standing = Standing::kNotNow;
  trust::Verdict verdict = trust::Verdict::kTrusted;
  std::string key;      ///< fingerprint of who signed, where a signature was looked at
  std::string name;     ///< of the certificate or of the line of the trusted keys: bytes of others
  std::string why;      ///< a sentence for people; empty if trusted
  uint64_t issued = 0;  ///< Unix seconds, as the next
  uint64_t expires = 0;
  uint64_t epoch = 0;  ///< StatementVerifier::epoch() at the time of the answer
};

struct SignatureOptions {
  std::string cluster;  ///< its id; of another cluster a statement counts for nothing
  /// Returns all principals that a signer needs for this scope; if there are none, nothing of it counts.
  std::function<std::vector<std::string>(const std::string& scope)> principals;
  Milliseconds ask_again{10'000};  ///< how long it is remembered that something does not count
};

/// Finds and verifies statements at the first use of an entry, and remembers what they cover until it is told of other
/// keys. A statement that counts is verified once, whatever number of its entries is used; of what does not count, some
/// kBadAtOnce signatures are verified in a second, no more than a quarter of them of one scope, and after kBadOfScope
/// in a minute a scope's are not asked for during the next. Safe for concurrent use.
///
/// An answer is of the keys of its time: whoever keeps "trusted" compares SignatureFinding::epoch with epoch() under
/// the lock under which it hides what use_keys() has taken away.
class StatementVerifier {
 public:
  /// Entries that are remembered; beyond it those of the statements that were verified first are forgotten, and asked
  /// for again.
  static constexpr size_t kMostEntries = 262'144;
  /// Those that do not count; beyond it all of them are forgotten.
  static constexpr size_t kMostBad = 65'536;
  /// Some 15 ms of a core.
  static constexpr size_t kBadAtOnce = 100;
  static constexpr size_t kBadOfScope = 1'000;
  /// In any second a scope has so many, whatever the others need.
  static constexpr size_t kBadOfAny = 5;

  /// `statements` and `counters` must outlive it.
  StatementVerifier(SignatureOptions options, remote::Statements& statements, Counters& counters,
                    const Clock& clock = system_clock());
  ~StatementVerifier();
  StatementVerifier(const StatementVerifier&) = delete;
  StatementVerifier& operator=(const StatementVerifier&) = delete;

  /// Takes these keys in place of those before. What was found under those is decided anew without the cluster; what
  /// did not count is asked for again. Returns how many statements counted and count no more: what they covered is to
  /// be hidden.
  size_t use_keys(trust::TrustedKeys trusted, trust::RevokedKeys revoked);
  /// Does the same for the time that has passed: of keys, certificates and statements whose time is over. Looks at
  /// keys and certificates once a minute.
  size_t look_at_clock();
  /// Grows whenever something counts no more.
  [[nodiscard]] uint64_t epoch() const;

  enum class From { kMemory, kCluster };
  /// Finds out what counts for these entries of one scope, in order. Blocks on the cluster, up to the deadline. From
  /// the cluster: what is remembered is asked for again, because the cluster may have lost it.
  [[nodiscard]] std::vector<SignatureFinding> examine(const std::string& scope, std::span<const codec::Entry> entries,
                                                      Deadline deadline, From from = From::kMemory);
  /// Says what is known of an entry without asking; nothing if it has to be asked for.
  [[nodiscard]] std::optional<SignatureFinding> known(const std::string& scope, const codec::Entry& entry) const;
  /// Forgets these, because somebody has signed them.
  void forget(const std::string& scope, std::span<const codec::Entry> entries);

 private:
  struct State;
  class Examination;
  [[nodiscard]] size_t decide_again();
  [[nodiscard]] uint64_t seconds() const;

  const SignatureOptions options_;
  remote::Statements& statements_;
  const Clock& clock_;
  Counter& verified_;
  Counter& bad_;
  Counter& unsigned_;
  std::unique_ptr<Guarded<State>> state_;
};

/// Returns the key under which the cluster has the statement that covers an entry (remote/statements.h).
[[nodiscard]] std::string cover_key(const codec::Entry& entry);

}  // namespace inductorfs::signing
