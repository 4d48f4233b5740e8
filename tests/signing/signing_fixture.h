// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "inductorfs/remote/remote.h"
#include "inductorfs/signing/verifier.h"
#include "support/fake_clock.h"
#include "trust/ssh_tools.h"

namespace inductorfs::signing {

using Standing = SignatureFinding::Standing;
using trust::Verdict;

inline constexpr Milliseconds kLong{600'000};
inline const std::string kScope(64, 'a');
inline const std::string kOtherScope(64, 'b');

inline codec::Entry entry(const std::string& path, const std::string& bytes = "bytes") {
  return {.path = path, .digest = codec::digest_of(bytes), .size = bytes.size(), .origin = {}};
}

inline Deadline soon() { return Deadline::after(Milliseconds(20'000)); }

/// Counts the questions, and answers none while it is away.
class Asked final : public remote::Statements {
 public:
  Result<void> put_statement(const std::string& scope, std::string_view bytes, std::span<const std::string> keys,
                             Milliseconds lifetime, Deadline deadline) override {
    if (is_away) return fail(ErrorCode::kUnavailable, "it is away");
    return inner_->put_statement(scope, bytes, keys, lifetime, deadline);
  }
  Result<std::vector<std::string>> find_statements(const std::string& scope, std::span<const std::string> keys,
                                                   Deadline deadline) override {
    ++questions;
    if (is_away) return fail(ErrorCode::kUnavailable, "it is away");
    return inner_->find_statements(scope, keys, deadline);
  }
  Result<std::vector<std::string>> read_statements(const std::string& scope, std::span<const std::string> ids,
                                                   Deadline deadline) override {
    statements += ids.size();
    if (while_reading) std::exchange(while_reading, {})();
    return inner_->read_statements(scope, ids, deadline);
  }
  /// As a server that was started anew.
  void empty() { inner_ = remote::open_memory(remote::make_memory_cluster()).statements; }
  size_t questions = 0;
  size_t statements = 0;
  bool is_away = false;
  std::function<void()> while_reading;

 private:
  std::shared_ptr<remote::Statements> inner_ = remote::open_memory(remote::make_memory_cluster()).statements;
};

class VerifierTest : public trust::SshTools {
 protected:
  void SetUp() override {
    SshTools::SetUp();
    if (IsSkipped()) return;
    make_key("ca");
    make_key("k");
    use("* " + line("k.pub"));
  }
  size_t use(const std::string& trusted, trust::RevokedKeys revoked = {}) {
    return verifier_.use_keys(trust::TrustedKeys::parse(trusted + "\n", "trusted").value(), std::move(revoked));
  }
  uint64_t now() const { return static_cast<uint64_t>(clock_.wall_now() / 1'000'000'000); }
  trust::TrustStatement stating(const std::vector<codec::Entry>& entries) {
    trust::TrustStatement statement{"cluster-1", kScope, {}, ++serial_, now(), now() + 3600, {}};
    for (const codec::Entry& one : entries) statement.entries.push_back(trust::stated(one));
    return statement;
  }
  void put(const std::string& bytes, const std::vector<codec::Entry>& covered) {
    std::vector<std::string> keys;
    for (const codec::Entry& one : covered) keys.push_back(cover_key(one));
    ASSERT_TRUE(cluster_.put_statement(kScope, bytes, keys, kLong, soon()));
  }
  void sign(const std::vector<codec::Entry>& entries, const std::string& name = "k") {
    put(trust::sign_statement(key(name), stating(entries))->encode(), entries);
  }
  std::vector<Standing> examine(const std::vector<codec::Entry>& entries, const std::string& scope = kScope) {
    found_ = verifier_.examine(scope, entries, soon());
    std::vector<Standing> standings;
    for (const SignatureFinding& one : found_) {
      EXPECT_EQ(one.why.empty(), one.standing == Standing::kTrusted);
      standings.push_back(one.standing);
    }
    return standings;
  }
  Standing standing(const codec::Entry& one) { return examine({one}).front(); }

  testing::FakeClock clock_;
  Counters counters_;
  Asked cluster_;
  std::vector<std::string> principals_{"all"};
  StatementVerifier verifier_{
      {"cluster-1", [this](const std::string&) { return principals_; }}, cluster_, counters_, clock_};
  std::vector<SignatureFinding> found_;
  uint64_t serial_ = 0;
};

}  // namespace inductorfs::signing
