// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/signing/verifier.h"

#include <algorithm>
#include <deque>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "inductorfs/base/guarded.h"
#include "inductorfs/trust/ssh_signature.h"

namespace inductorfs::signing {

using Standing = SignatureFinding::Standing;

namespace {

constexpr Milliseconds kSecond{1'000};
constexpr Milliseconds kMinute{60'000};

/// A statement whose signature is genuine, and what the keys of now say of its signer.
struct Genuine {
  std::string scope;
  std::shared_ptr<const trust::Signer> signer;
  trust::Decision by;
  uint64_t issued = 0;
  uint64_t expires = 0;
  std::vector<codec::Digest> entries;
};

/// The keys that count.
struct Keys {
  trust::TrustedKeys trusted;
  trust::RevokedKeys revoked;
};

/// What did not count, for a while.
struct Bad {
  SignatureFinding finding;
  SteadyTime until{};
};

struct OfScope {
  std::unordered_map<codec::Digest, std::shared_ptr<Genuine>> covered;  ///< by trust::stated()
  std::unordered_map<codec::Digest, Bad> bad;
  SteadyTime second{};  ///< since when these are counted
  size_t bad_in_second = 0;
  SteadyTime minute{};
  size_t bad_in_minute = 0;
  SteadyTime rests_until{};
};

SignatureFinding finding_of(const Genuine& genuine, uint64_t now) {
  SignatureFinding finding{
      Standing::kTrusted, genuine.by.verdict, genuine.signer->key.fingerprint(), genuine.by.name, {},
      genuine.issued,     genuine.expires};
  if (finding.verdict == trust::Verdict::kTrusted && now >= genuine.expires) {
    finding.verdict = trust::Verdict::kStatementExpired;
  }
  if (finding.verdict == trust::Verdict::kTrusted) return finding;
  finding.standing = Standing::kRefused;
  finding.why = "what " + finding.key + " has signed counts no more: " + std::string(to_string(finding.verdict));
  return finding;
}

SignatureFinding not_now(std::string why) {
  SignatureFinding finding;
  finding.why = std::move(why);
  return finding;
}

SignatureFinding without_statement() {
  SignatureFinding finding;
  finding.standing = Standing::kUnsigned;
  finding.why = "nobody has signed it";
  return finding;
}

}  // namespace

struct StatementVerifier::State {
  std::shared_ptr<const Keys> keys = std::make_shared<const Keys>();
  uint64_t epoch = 0;
  std::map<std::string, OfScope> scopes;
  std::deque<std::shared_ptr<Genuine>> statements;  ///< those verified first in front
  size_t covered = 0;                               ///< entries, in all scopes
  size_t bad = 0;
  SteadyTime second{};
  size_t bad_in_second = 0;
  SteadyTime looked{};    ///< at the clock
  uint64_t next_end = 0;  ///< of the statements, Unix seconds

  [[nodiscard]] std::optional<SignatureFinding> known(const std::string& scope, const codec::Digest& entry,
                                                      SteadyTime now, uint64_t seconds) const {
    const auto of = scopes.find(scope);
    if (of == scopes.end()) return std::nullopt;
    const auto covered_by = of->second.covered.find(entry);
    if (covered_by != of->second.covered.end()) {
      SignatureFinding finding = finding_of(*covered_by->second, seconds);
      finding.epoch = epoch;
      if (finding.standing == Standing::kTrusted) return finding;  // somebody else may have signed it since
    }
    const auto found = of->second.bad.find(entry);
    if (found != of->second.bad.end() && now < found->second.until) return found->second.finding;
    if (now < of->second.rests_until) {
      return not_now("too many signatures of this scope do not count: nothing of it is asked for during a minute");
    }
    return std::nullopt;
  }

  /// Whether one more signature of the scope may be looked at that may not count. A flood in one scope, or in many,
  /// leaves something to each.
  [[nodiscard]] bool may_look(OfScope& of, SteadyTime now) {
    const auto begin = [now](SteadyTime& since, size_t& count) {
      if (now - since < kSecond) return;
      since = now;
      count = 0;
    };
    begin(second, bad_in_second);
    begin(of.second, of.bad_in_second);
    if (of.bad_in_second < kBadOfAny) return true;
    return of.bad_in_second < kBadAtOnce / 4 && bad_in_second < kBadAtOnce;
  }

  void note_bad(OfScope& of, SteadyTime now) {
    ++bad_in_second;
    ++of.bad_in_second;
    if (now - of.minute >= kMinute) {
      of.minute = now;
      of.bad_in_minute = 0;
    }
    if (++of.bad_in_minute < kBadOfScope) return;
    of.rests_until = now + kMinute;
    of.bad_in_minute = 0;
  }

  void forget_bad() {
    for (auto& [_, of] : scopes) of.bad.clear();
    bad = 0;
  }

  void uncover(const Genuine& genuine) {
    OfScope& of = scopes[genuine.scope];
    for (const codec::Digest& entry : genuine.entries) {
      const auto found = of.covered.find(entry);
      if (found == of.covered.end() || found->second.get() != &genuine) continue;
      of.covered.erase(found);
      --covered;
    }
  }

  void remember(std::shared_ptr<Genuine> genuine) {
    while (covered + trust::kStatementEntries > kMostEntries && !statements.empty()) {
      uncover(*statements.front());
      statements.pop_front();
    }
    OfScope& of = scopes[genuine->scope];
    for (const codec::Digest& entry : genuine->entries) {
      covered += of.covered.insert_or_assign(entry, genuine).second ? 1 : 0;
      bad -= of.bad.erase(entry);
    }
    next_end = std::min(next_end == 0 ? genuine->expires : next_end, genuine->expires);
    statements.push_back(std::move(genuine));
  }
};

/// One call of examine(). Confined to the calling thread.
class StatementVerifier::Examination {
 public:
  Examination(StatementVerifier& verifier, const std::string& scope, std::span<const codec::Entry> entries,
              Deadline deadline)
      : verifier_(verifier), scope_(scope), deadline_(deadline), findings_(entries.size()) {
    for (const codec::Entry& entry : entries) stated_.push_back(trust::stated(entry));
  }

  std::vector<SignatureFinding> run(From from) {
    const uint64_t begun = verifier_.epoch();
    std::vector<size_t> unknown;
    for (size_t at = 0; at < stated_.size();) {
      at = find_unknown(at, from, unknown);
      if (!unknown.empty()) ask(unknown);
      unknown.clear();
    }
    if (verifier_.epoch() != begun) drop_stale();
    return std::move(findings_);
  }

 private:
  /// Answers from memory, beginning at `at`, until a question is full. Returns where it has stopped.
  size_t find_unknown(size_t at, From from, std::vector<size_t>& unknown) {
    const SteadyTime now = verifier_.clock_.now();
    const uint64_t seconds = verifier_.seconds();
    return verifier_.state_->with([&](const State& state) {
      for (; at < stated_.size() && unknown.size() < remote::kCoveredLimit; ++at) {
        auto finding = from == From::kMemory || asked_.contains(stated_[at])
                           ? state.known(scope_, stated_[at], now, seconds)
                           : std::nullopt;
        if (!finding) unknown.push_back(at);
        if (finding) findings_[at] = *std::move(finding);
      }
      return at;
    });
  }

  /// The keys have changed since: what was trusted may be so no more.
  void drop_stale() {
    const SteadyTime now = verifier_.clock_.now();
    const uint64_t seconds = verifier_.seconds();
    verifier_.state_->with([&](const State& state) {
      for (size_t i = 0; i < findings_.size(); ++i) {
        if (findings_[i].standing != Standing::kTrusted) continue;
        findings_[i] = state.known(scope_, stated_[i], now, seconds).value_or(not_now("the keys that count change"));
      }
    });
  }

  void ask(std::span<const size_t> some) {
    const SteadyTime now = verifier_.clock_.now();
    const bool may_look =
        verifier_.state_->with([&](State& state) { return state.may_look(state.scopes[scope_], now); });
    if (!may_look) return rest(some, now);
    std::vector<std::string> keys;
    for (const size_t i : some) keys.emplace_back(stated_[i].raw().substr(0, remote::kCoverKeySize));
    const auto ids = verifier_.statements_.find_statements(scope_, keys, deadline_);
    if (!ids) return say(some, not_now("its signature cannot be asked for: " + ids.error().text()));
    std::map<std::string, std::vector<size_t>> by_id;
    for (size_t i = 0; i < some.size(); ++i) by_id[(*ids)[i]].push_back(some[i]);
    if (const auto none = by_id.find(""); none != by_id.end()) {
      verifier_.unsigned_.add(none->second.size());
      remember_bad(none->second, without_statement());
      by_id.erase(none);
    }
    std::vector<std::string> wanted;
    for (const auto& [id, _] : by_id) wanted.push_back(id);
    const auto bytes = verifier_.statements_.read_statements(scope_, wanted, deadline_);
    size_t at = 0;
    for (const auto& [id, entries] : by_id) {
      if (!bytes) {
        say(entries, not_now("its signature cannot be read: " + bytes.error().text()));
      } else {
        judge(entries, (*bytes)[at]);
      }
      ++at;
    }
  }

  /// Until the second is over nothing more is read, so that a flood costs the link to the cluster as little.
  void rest(std::span<const size_t> entries, SteadyTime now) {
    const SignatureFinding finding = not_now("too many signatures that do not count were looked at");
    remember_until(entries, finding, now + kSecond);
  }

  void judge(std::span<const size_t> entries, std::string_view bytes) {
    if (bytes.empty()) return remember_bad(entries, without_statement());
    const SteadyTime now = verifier_.clock_.now();
    const auto keys = verifier_.state_->with([&](State& state) {
      return state.may_look(state.scopes[scope_], now) ? state.keys : std::shared_ptr<const Keys>();
    });
    if (!keys) return rest(entries, now);
    const auto given = trust::SignedStatement::decode(bytes);
    trust::Verified verified;
    if (given) {
      verified = trust::verify_statement(
          *given, keys->trusted, keys->revoked,
          {verifier_.options_.cluster, scope_, verifier_.options_.principals(scope_), verifier_.seconds()});
    } else {
      verified.why = given.error().what();
    }
    const auto signer = given ? trust::Signer::from_blob(given->signer) : fail(ErrorCode::kCorrupt);
    if (verified.verdict == trust::Verdict::kTrusted) {
      verifier_.verified_.add();
      return cover(entries, verified, std::make_shared<const trust::Signer>(*signer), keys);
    }
    SignatureFinding finding{Standing::kRefused, verified.verdict, signer ? signer->key.fingerprint() : std::string(),
                             verified.by.name, verified.why};
    verifier_.bad_.add();
    note_bad();
    remember_bad(entries, finding);
  }

  void cover(std::span<const size_t> entries, const trust::Verified& verified,
             std::shared_ptr<const trust::Signer> signer, const std::shared_ptr<const Keys>& keys) {
    const auto genuine =
        std::make_shared<Genuine>(Genuine{scope_, std::move(signer), verified.by, verified.statement.issued,
                                          verified.statement.expires, verified.statement.entries});
    SignatureFinding finding = not_now("the keys that count change");
    verifier_.state_->with([&](State& state) {
      if (state.keys != keys) return;
      finding = finding_of(*genuine, verifier_.seconds());
      finding.epoch = state.epoch;
      state.remember(genuine);
    });
    std::vector<size_t> others;
    for (const size_t i : entries) {
      const bool is_named = std::ranges::binary_search(verified.statement.entries, stated_[i]);
      if (!is_named) others.push_back(i);
      if (is_named) findings_[i] = finding;
    }
    asked_.insert(verified.statement.entries.begin(), verified.statement.entries.end());
    if (others.empty()) return;
    SignatureFinding other = without_statement();
    other.why = "the statement that is said to cover it does not name it";
    note_bad();
    remember_bad(others, other);
  }

  void note_bad() {
    const SteadyTime now = verifier_.clock_.now();
    verifier_.state_->with([&](State& state) {
      OfScope& of = state.scopes[scope_];
      state.note_bad(of, now);
    });
  }

  void remember_bad(std::span<const size_t> entries, const SignatureFinding& finding) {
    remember_until(entries, finding, verifier_.clock_.now() + verifier_.options_.ask_again);
  }

  void remember_until(std::span<const size_t> entries, const SignatureFinding& finding, SteadyTime until) {
    verifier_.state_->with([&](State& state) {
      if (state.bad + entries.size() > kMostBad) state.forget_bad();
      OfScope& of = state.scopes[scope_];
      for (const size_t i : entries)
        state.bad += of.bad.insert_or_assign(stated_[i], Bad{finding, until}).second ? 1 : 0;
    });
    say(entries, finding);
  }

  void say(std::span<const size_t> entries, const SignatureFinding& finding) {
    for (const size_t i : entries) findings_[i] = finding;
  }

  StatementVerifier& verifier_;
  const std::string& scope_;
  const Deadline deadline_;
  std::vector<codec::Digest> stated_;
  std::vector<SignatureFinding> findings_;
  std::unordered_set<codec::Digest> asked_;  ///< what the cluster's statements of this call cover
};

StatementVerifier::StatementVerifier(SignatureOptions options, remote::Statements& statements, Counters& counters,
                                     const Clock& clock)
    : options_(std::move(options)),
      statements_(statements),
      clock_(clock),
      verified_(counters.get("signing.verified")),
      bad_(counters.get("signing.refused")),
      unsigned_(counters.get("signing.unsigned")),
      state_(std::make_unique<Guarded<State>>()) {}

StatementVerifier::~StatementVerifier() = default;

uint64_t StatementVerifier::seconds() const { return static_cast<uint64_t>(clock_.wall_now() / 1'000'000'000); }

uint64_t StatementVerifier::epoch() const {
  return state_->with([](const State& state) { return state.epoch; });
}

size_t StatementVerifier::use_keys(trust::TrustedKeys trusted, trust::RevokedKeys revoked) {
  const auto keys = std::make_shared<const Keys>(Keys{std::move(trusted), std::move(revoked)});
  state_->with([&](State& state) {
    state.keys = keys;
    ++state.epoch;
    state.forget_bad();
    for (auto& [_, of] : state.scopes) of.rests_until = {};
  });
  return decide_again();
}

size_t StatementVerifier::look_at_clock() {
  const SteadyTime now = clock_.now();
  const uint64_t wall = seconds();
  const bool is_due = state_->with([&](State& state) {
    if (now - state.looked < kMinute && (state.next_end == 0 || wall < state.next_end)) return false;
    state.looked = now;
    return true;
  });
  return is_due ? decide_again() : 0;
}

/// The signatures are genuine: what changes is whether their signers count. That is found out without the lock, which
/// lookups wait for.
size_t StatementVerifier::decide_again() {
  using Key = std::pair<std::string, std::string>;  // scope, the signer's blob
  std::map<Key, std::shared_ptr<const trust::Signer>> signers;
  const auto keys = state_->with([&](const State& state) {
    for (const auto& one : state.statements) signers.try_emplace({one->scope, one->signer->blob}, one->signer);
    return state.keys;
  });
  const uint64_t now = seconds();
  std::map<Key, trust::Decision> decided;
  for (const auto& [key, signer] : signers) {
    decided.emplace(key, keys->trusted.decide(*signer, options_.principals(key.first), trust::kNamespace, now,
                                              keys->revoked, true));
  }
  return state_->with([&](State& state) -> size_t {
    if (state.keys != keys) return 0;  // whoever has changed them decides
    size_t lost = 0;
    state.next_end = 0;
    std::erase_if(state.statements, [&](const std::shared_ptr<Genuine>& one) {
      const auto decision = decided.find({one->scope, one->signer->blob});
      if (decision != decided.end()) one->by = decision->second;  // else it has come since, under these keys
      const bool is_good = finding_of(*one, now).standing == Standing::kTrusted;
      if (is_good) state.next_end = state.next_end == 0 ? one->expires : std::min(state.next_end, one->expires);
      if (is_good) return false;
      state.uncover(*one);
      ++lost;
      return true;
    });
    state.epoch += lost > 0 ? 1 : 0;
    return lost;
  });
}

std::vector<SignatureFinding> StatementVerifier::examine(const std::string& scope,
                                                         std::span<const codec::Entry> entries, Deadline deadline,
                                                         From from) {
  return Examination(*this, scope, entries, deadline).run(from);
}

std::optional<SignatureFinding> StatementVerifier::known(const std::string& scope, const codec::Entry& entry) const {
  const codec::Digest stated = trust::stated(entry);
  return state_->with([&](const State& state) { return state.known(scope, stated, clock_.now(), seconds()); });
}

void StatementVerifier::forget(const std::string& scope, std::span<const codec::Entry> entries) {
  state_->with([&](State& state) {
    OfScope& of = state.scopes[scope];
    for (const codec::Entry& entry : entries) {
      const codec::Digest stated = trust::stated(entry);
      state.bad -= of.bad.erase(stated);
      state.covered -= of.covered.erase(stated);
    }
  });
}

std::string cover_key(const codec::Entry& entry) {
  return std::string(trust::stated(entry).raw().substr(0, remote::kCoverKeySize));
}

}  // namespace inductorfs::signing
