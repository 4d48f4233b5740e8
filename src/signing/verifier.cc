// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/signing/verifier.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>
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
  std::shared_ptr<const trust::Signer> signer;
  trust::Decision by;
  uint64_t issued = 0;
  uint64_t expires = 0;
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
  SteadyTime minute{};  ///< since when these are counted
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
  std::map<std::string, OfScope> scopes;
  size_t entries = 0;  ///< in all of them
  SteadyTime second{};
  size_t bad_in_second = 0;

  [[nodiscard]] std::optional<SignatureFinding> known(const std::string& scope, const codec::Digest& entry,
                                                      SteadyTime now, uint64_t seconds) const {
    const auto of = scopes.find(scope);
    if (of == scopes.end()) return std::nullopt;
    const auto covered = of->second.covered.find(entry);
    if (covered != of->second.covered.end()) {
      SignatureFinding finding = finding_of(*covered->second, seconds);
      if (finding.standing == Standing::kTrusted) return finding;  // somebody else may have signed it since
    }
    const auto bad = of->second.bad.find(entry);
    if (bad != of->second.bad.end() && now < bad->second.until) return bad->second.finding;
    if (now < of->second.rests_until) {
      return not_now("too many signatures of this scope do not count: nothing of it is asked for during a minute");
    }
    return std::nullopt;
  }

  /// Whether one more signature may be looked at that may not count.
  [[nodiscard]] bool may_look(SteadyTime now) {
    if (now - second >= kSecond) {
      second = now;
      bad_in_second = 0;
    }
    return bad_in_second < kBadAtOnce;
  }

  static void note_bad(OfScope& of, size_t bad, SteadyTime now) {
    if (now - of.minute >= kMinute) {
      of.minute = now;
      of.bad_in_minute = 0;
    }
    of.bad_in_minute += bad;
    if (of.bad_in_minute < kBadOfScope) return;
    of.rests_until = now + kMinute;
    of.bad_in_minute = 0;
  }

  void make_room() {
    if (entries < kMostEntries) return;
    for (auto& [_, of] : scopes) {
      of.covered.clear();
      of.bad.clear();
    }
    entries = 0;
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

  std::vector<SignatureFinding> run() {
    std::vector<size_t> left(stated_.size());
    std::iota(left.begin(), left.end(), size_t{0});
    // What the statements of one question cover is known before the next one.
    for (left = unknown_of(left); !left.empty(); left = unknown_of(left)) {
      const auto some = std::span(left).first(std::min(remote::kCoveredLimit, left.size()));
      ask(some);
      left.erase(left.begin(), left.begin() + static_cast<ptrdiff_t>(some.size()));
    }
    return std::move(findings_);
  }

 private:
  std::vector<size_t> unknown_of(std::span<const size_t> entries) {
    std::vector<size_t> left;
    const SteadyTime now = verifier_.clock_.now();
    verifier_.state_->with([&](const State& state) {
      for (const size_t i : entries) {
        auto finding = state.known(scope_, stated_[i], now, verifier_.seconds());
        if (finding) findings_[i] = *std::move(finding);
        if (!finding) left.push_back(i);
      }
    });
    return left;
  }

  void ask(std::span<const size_t> some) {
    std::vector<std::string> keys;
    for (const size_t i : some) keys.emplace_back(stated_[i].raw().substr(0, remote::kCoverKeySize));
    const auto ids = verifier_.statements_.find_statements(scope_, keys, deadline_);
    if (!ids) return say(some, not_now("its signature cannot be asked for: " + ids.error().text()));
    std::map<std::string, std::vector<size_t>> by_id;
    for (size_t i = 0; i < some.size(); ++i) by_id[(*ids)[i]].push_back(some[i]);
    if (const auto none = by_id.find(""); none != by_id.end()) {
      verifier_.unsigned_.add(none->second.size());
      remember_bad(none->second, without_statement(), false);
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

  void judge(std::span<const size_t> entries, std::string_view bytes) {
    if (bytes.empty()) return remember_bad(entries, without_statement(), false);
    const SteadyTime now = verifier_.clock_.now();
    const auto keys = verifier_.state_->with(
        [&](State& state) { return state.may_look(now) ? state.keys : std::shared_ptr<const Keys>(); });
    if (!keys) return say(entries, not_now("too many signatures that do not count were looked at"));
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
    remember_bad(entries, finding, true);
  }

  void cover(std::span<const size_t> entries, const trust::Verified& verified,
             std::shared_ptr<const trust::Signer> signer, const std::shared_ptr<const Keys>& keys) {
    const auto genuine = std::make_shared<Genuine>(
        Genuine{std::move(signer), verified.by, verified.statement.issued, verified.statement.expires});
    const bool is_current = verifier_.state_->with([&](State& state) {
      if (state.keys != keys) return false;  // other keys count since
      state.make_room();
      OfScope& of = state.scopes[scope_];
      for (const codec::Digest& entry : verified.statement.entries) {
        auto& place = of.covered[entry];
        state.entries += place ? 0 : 1;
        place = genuine;
        state.entries -= of.bad.erase(entry);
      }
      return true;
    });
    std::vector<size_t> others;
    for (const size_t i : entries) {
      const bool is_named = std::ranges::binary_search(verified.statement.entries, stated_[i]);
      if (!is_named) others.push_back(i);
      if (is_named) findings_[i] = is_current ? finding_of(*genuine, verifier_.seconds()) : not_now("the keys change");
    }
    SignatureFinding other = without_statement();
    other.why = "the statement that is said to cover it does not name it";
    if (!others.empty()) remember_bad(others, other, true);
  }

  /// `is_costly`: a signature was verified for it.
  void remember_bad(std::span<const size_t> entries, const SignatureFinding& finding, bool is_costly) {
    const SteadyTime now = verifier_.clock_.now();
    verifier_.state_->with([&](State& state) {
      state.make_room();
      OfScope& of = state.scopes[scope_];
      State::note_bad(of, entries.size(), now);
      state.bad_in_second += is_costly ? 1 : 0;
      for (const size_t i : entries) {
        state.entries += of.bad.contains(stated_[i]) ? 0 : 1;
        of.bad[stated_[i]] = {finding, now + verifier_.options_.ask_again};
      }
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

size_t StatementVerifier::use_keys(trust::TrustedKeys trusted, trust::RevokedKeys revoked) {
  return state_->with([&](State& state) {
    state.keys = std::make_shared<const Keys>(Keys{std::move(trusted), std::move(revoked)});
    for (auto& [_, of] : state.scopes) {
      state.entries -= of.bad.size();
      of.bad.clear();
      of.rests_until = {};
    }
    return decide_again(state);
  });
}

size_t StatementVerifier::look_at_clock() {
  return state_->with([&](State& state) { return decide_again(state); });
}

/// The signatures are genuine: what changes is whether their signers count.
size_t StatementVerifier::decide_again(State& state) const {
  const uint64_t now = seconds();
  size_t lost = 0;
  for (auto& [scope, of] : state.scopes) {
    const auto principals = options_.principals(scope);
    std::map<std::string, trust::Decision> decided;  // by the signer's blob
    std::map<const Genuine*, bool> counts;
    for (auto& [_, genuine] : of.covered) {
      if (counts.contains(genuine.get())) continue;
      const auto [decision, is_new] = decided.try_emplace(genuine->signer->blob);
      if (is_new) {
        decision->second =
            state.keys->trusted.decide(*genuine->signer, principals, trust::kNamespace, now, state.keys->revoked);
      }
      genuine->by = decision->second;
      const bool is_good = finding_of(*genuine, now).standing == Standing::kTrusted;
      counts.emplace(genuine.get(), is_good);
      lost += is_good ? 0 : 1;
    }
    state.entries -= std::erase_if(of.covered, [&](const auto& one) { return !counts.at(one.second.get()); });
  }
  return lost;
}

std::vector<SignatureFinding> StatementVerifier::examine(const std::string& scope,
                                                         std::span<const codec::Entry> entries, Deadline deadline) {
  return Examination(*this, scope, entries, deadline).run();
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
      state.entries -= of.bad.erase(stated) + of.covered.erase(stated);
    }
  });
}

std::string cover_key(const codec::Entry& entry) {
  return std::string(trust::stated(entry).raw().substr(0, remote::kCoverKeySize));
}

}  // namespace inductorfs::signing
