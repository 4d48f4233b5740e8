// SPDX-License-Identifier: Apache-2.0
#include "mount/processes/statement_signer.h"

#include <linux/capability.h>

#include <utility>

#include "inductorfs/base/encoding.h"
#include "inductorfs/config/error_json.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/text.h"
#include "inductorfs/trust/signing_key.h"

namespace inductorfs::mount {

using config::Json;

namespace {

/// A disk that does not answer holds up nobody but the child.
constexpr Milliseconds kDeadline{10'000};
/// In front of an answer that is no error.
constexpr char kDone = '=';

std::string refused(const Error& error) { return config::to_line(config::error_to_json(error)); }

Json request_of(const trust::TrustStatement& statement) {
  Json entries = Json::array();
  for (const codec::Digest& entry : statement.entries) entries.push_back(entry.to_hex());
  return {{"cluster", statement.cluster}, {"scope", statement.scope},     {"serial", statement.serial},
          {"issued", statement.issued},   {"expires", statement.expires}, {"entries", std::move(entries)}};
}

/// Whatever does not make a statement sign_statement() refuses.
trust::TrustStatement statement_from(const Json& json) {
  trust::TrustStatement statement;
  statement.cluster = config::text_at(json, "cluster");
  statement.scope = config::text_at(json, "scope");
  statement.serial = config::number_at(json, "serial");
  statement.issued = config::number_at(json, "issued");
  statement.expires = config::number_at(json, "expires");
  const auto entries = json.find("entries");
  if (entries == json.end() || !entries->is_array()) return statement;
  for (const Json& entry : *entries) {
    const auto digest = codec::Digest::from_hex(entry.is_string() ? entry.get<std::string>() : std::string());
    if (!digest) return {};
    statement.entries.push_back(*digest);
  }
  return statement;
}

/// In a child of the mounter, which has root's rights.
std::string answer(const std::string& file, const std::string& request) {
  const auto key = trust::SigningKey::load(file);
  if (!key) return refused(key.error());
  if (request.empty()) return kDone + key->public_line();
  const Json json = config::from_text(request);
  if (!json.is_object()) return refused(Error(ErrorCode::kInvalid, "the request is no JSON object"));
  const auto made = trust::sign_statement(*key, statement_from(json));
  return made ? kDone + to_hex(made->encode()) : refused(made.error());
}

}  // namespace

fingerprint::ExaminerTask StatementSigner::task(const std::string& file) {
  fingerprint::ExaminerTask task;
  task.capabilities = {CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH};
  task.deadline = kDeadline;
  task.answer = [file](const fingerprint::ExaminerCall& call) { return answer(file, call.request); };
  return task;
}

StatementSigner::StatementSigner(int mounter, std::function<void()> stands_still)
    : link_(mounter, std::move(stands_still)) {}

Result<std::string> StatementSigner::ask(const std::string& request, Deadline deadline) const {
  auto got = link_.ask(kTask, request, deadline);
  if (!got) {
    return fail(ErrorCode::kUnavailable, "the process of this mount that signs has not done so: " + got.error().what());
  }
  if (got->starts_with(kDone)) return got->substr(1);
  if (auto error = config::error_from_json(config::from_text(*got))) return fail(std::move(*error));
  return fail(ErrorCode::kInternal, "the answer of the process of this mount that signs is none");
}

Result<trust::SignedStatement> StatementSigner::sign(const trust::TrustStatement& statement, Deadline deadline) const {
  INDUCTORFS_TRY_ASSIGN(const auto digits, ask(config::to_line(request_of(statement)), deadline));
  const auto binary = from_hex(digits);
  if (!binary) return fail(ErrorCode::kInternal, "the answer of the process of this mount that signs is none");
  return trust::SignedStatement::decode(*binary);
}

Result<std::string> StatementSigner::public_line(Deadline deadline) const { return ask({}, deadline); }

}  // namespace inductorfs::mount
