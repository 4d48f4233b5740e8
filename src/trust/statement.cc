// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/trust/statement.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "inductorfs/base/encoding.h"
#include "inductorfs/base/number.h"
#include "inductorfs/base/text.h"
#include "inductorfs/codec/entry.h"
#include "inductorfs/trust/ssh_signature.h"

namespace inductorfs::trust {
namespace {

constexpr std::string_view kFirstLine = "inductorfs statement 1";
constexpr std::string_view kMagic = "IFST";
constexpr uint8_t kVersion = 1;
constexpr size_t kSignatureSize = 64;
constexpr size_t kScopeSize = 64;
constexpr size_t kFingerprintSize = 50;  // "SHA256:" and 43 digits
constexpr uint32_t kPermissionBits = 0777;

bool is_hidden(char c) { return static_cast<uint8_t>(c) < 0x20 || c == 0x7f; }

std::string escaped(std::string_view path) {
  std::string text;
  for (const char c : path) {
    if (c == '\\' || is_hidden(c)) {
      text.append("\\x").append(to_hex(std::string_view(&c, 1)));
    } else {
      text += c;
    }
  }
  return text;
}

/// What is not escaped as escaped() does it comes out as something that it escapes otherwise.
std::string unescaped(std::string_view text) {
  std::string path;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte =
        text.substr(i).starts_with("\\x") ? from_hex(text.substr(std::min(i + 2, text.size()), 2)) : std::nullopt;
    if (byte && byte->size() == 1) {
      path += *byte;
      i += 3;
    } else {
      path += text[i];
    }
  }
  return path;
}

std::string_view problem_of(const TrustStatement& statement) {
  const auto is_word = [](std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
  };
  if (!is_word(statement.cluster) || statement.cluster.size() > kClusterIdLimit) return "its cluster is no id";
  if (statement.scope.size() != kScopeSize || !from_hex(statement.scope))
    return "its scope is not 64 hexadecimal digits";
  if (!is_word(statement.publisher) || statement.publisher.size() != kFingerprintSize)
    return "its publisher is no fingerprint";
  if (statement.expires <= statement.issued) return "it ends before it begins";
  if (statement.expires - statement.issued > kStatementLifetime) return "it is for more than 90 days";
  if (statement.entries.empty()) return "it has no entries";
  for (const StatedEntry& entry : statement.entries) {
    if (!codec::is_clean_path(entry.path)) return "a path is not clean";
    if ((entry.mode & ~kPermissionBits) != 0) return "a mode has more than permission bits";
  }
  const auto twice = std::adjacent_find(statement.entries.begin(), statement.entries.end(),
                                        [](const auto& one, const auto& next) { return one.path >= next.path; });
  return twice == statement.entries.end() ? "" : "two entries have one path";
}

std::string line_of(const StatedEntry& entry) {
  std::array<char, 8> mode{};
  (void)std::snprintf(mode.data(), mode.size(), "%04o", entry.mode);
  return "entry " + entry.digest.to_hex() + " " + std::to_string(entry.size) + " " + mode.data() + " " +
         escaped(entry.path) + "\n";
}

std::string text_of(const TrustStatement& statement) {
  std::string text(kFirstLine);
  text += "\ncluster " + statement.cluster + "\nscope " + statement.scope + "\npublisher " + statement.publisher;
  text += "\nserial " + std::to_string(statement.serial) + "\nissued " + std::to_string(statement.issued);
  text += "\nexpires " + std::to_string(statement.expires) + "\n";
  for (const StatedEntry& entry : statement.entries) text += line_of(entry);
  return text;
}

tl::unexpected<Error> corrupt(std::string_view why) {
  return fail(ErrorCode::kCorrupt, "this is no statement: " + std::string(why));
}

/// The value of the next line, whatever its name is: the name is compared when the text is written again.
std::string_view take_value(std::string_view& rest) {
  std::string_view line = take_part(rest, '\n');
  (void)take_part(line, ' ');
  return line;
}

StatedEntry take_entry(std::string_view& rest) {
  std::string_view line = take_value(rest);
  StatedEntry entry;
  entry.digest = codec::Digest::from_hex(take_part(line, ' ')).value_or(codec::Digest{});
  entry.size = number_in<uint64_t>(take_part(line, ' ')).value_or(0);
  (void)parse_number(take_part(line, ' '), entry.mode, 8);
  entry.path = unescaped(line);
  return entry;
}

Verified refused(Verdict verdict, std::string why, Decision by = {}) {
  return {verdict, std::move(why), std::move(by), {}};
}

std::string why_of(const Signer& signer, const Decision& by, const std::vector<std::string>& needed) {
  const std::string key = "its key " + signer.key.fingerprint();
  const std::string line = " (line " + std::to_string(by.line) + " of the trusted keys)";
  if (by.verdict == Verdict::kUnknownKey) {
    const std::string authority =
        signer.certificate ? "the authority " + signer.certificate->authority.fingerprint() + " of " : "";
    return authority + key + " is not among the trusted keys";
  }
  if (by.verdict == Verdict::kWrongNamespace) return key + " may not sign for inductorfs" + line;
  if (by.verdict == Verdict::kNotItsPrincipal) return key + " may not sign for " + joined(needed, " and ") + line;
  if (by.verdict == Verdict::kNotYetValid) return key + " is not valid yet" + line + ": are the clocks right?";
  if (by.verdict == Verdict::kExpired) return key + " is no longer valid" + line;
  if (by.verdict == Verdict::kRevoked) return key + ", its certificate or its authority is revoked";
  return "the certificate of " + key + " is not signed by its authority";
}

}  // namespace

Result<std::string> statement_text(TrustStatement statement) {
  if (statement.entries.size() > kStatementEntries)
    return fail(ErrorCode::kTooLarge, "a statement of more than 256 entries");
  std::sort(statement.entries.begin(), statement.entries.end(),
            [](const StatedEntry& one, const StatedEntry& other) { return one.path < other.path; });
  if (const std::string_view problem = problem_of(statement); !problem.empty()) {
    return fail(ErrorCode::kInvalid, "a statement cannot be written: " + std::string(problem));
  }
  std::string text = text_of(statement);
  if (text.size() > kStatementLimit) return fail(ErrorCode::kTooLarge, "a statement of more than 1 MiB");
  return text;
}

Result<TrustStatement> parse_statement(std::string_view text) {
  if (text.size() > kStatementLimit) return corrupt("it has more than 1 MiB");
  std::string_view rest = text;
  if (take_part(rest, '\n') != kFirstLine) return corrupt("its first line is another");
  TrustStatement statement;
  statement.cluster = take_value(rest);
  statement.scope = take_value(rest);
  statement.publisher = take_value(rest);
  for (uint64_t* const number : {&statement.serial, &statement.issued, &statement.expires}) {
    *number = number_in<uint64_t>(take_value(rest)).value_or(0);
  }
  while (!rest.empty()) {
    if (statement.entries.size() == kStatementEntries) return corrupt("it has more than 256 entries");
    statement.entries.push_back(take_entry(rest));
  }
  if (const std::string_view problem = problem_of(statement); !problem.empty()) return corrupt(problem);
  // One statement has one text: names of fields, digits, escapes and the order are compared at once.
  if (text_of(statement) != text) return corrupt("it is cut, or not written as this program writes it");
  return statement;
}

std::string SignedStatement::encode() const {
  std::string bytes(kMagic);
  append_integer(bytes, kVersion);
  append_integer(bytes, static_cast<uint32_t>(text.size()));
  append_integer(bytes, static_cast<uint32_t>(signer.size()));
  return bytes.append(text).append(signer).append(signature);
}

Result<SignedStatement> SignedStatement::decode(std::string_view bytes) {
  ByteReader reader(bytes);
  if (reader.bytes(kMagic.size()) != kMagic) return corrupt("it begins otherwise");
  if (const auto version = reader.integer<uint8_t>(); version != kVersion) {
    return version == 0 ? corrupt("it has no version")
                        : fail(ErrorCode::kNotSupported, "a statement of version " + std::to_string(version) +
                                                             ", which a newer inductorfs may have written");
  }
  const auto text_size = reader.integer<uint32_t>();
  const auto signer_size = reader.integer<uint32_t>();
  if (text_size > kStatementLimit || signer_size > kSignerLimit) return corrupt("it is over a limit");
  SignedStatement statement;
  statement.text = reader.bytes(text_size);
  statement.signer = reader.bytes(signer_size);
  statement.signature = reader.bytes(kSignatureSize);
  if (!reader.complete()) return corrupt("it is cut, or longer than it says");
  return statement;
}

std::string SignedStatement::armoured() const { return armoured_signature(signer, kNamespace, signature); }

Result<SignedStatement> sign_statement(const SigningKey& key, TrustStatement statement) {
  statement.publisher = key.public_key().fingerprint();
  INDUCTORFS_TRY_ASSIGN(auto text, statement_text(std::move(statement)));
  std::string signature = sign_text(key, kNamespace, text);
  return SignedStatement{std::move(text), std::move(signature), key.signer().blob};
}

Verified verify_statement(const SignedStatement& given, const TrustedKeys& trusted, const RevokedKeys& revoked,
                          const Expectation& expected) {
  if (given.text.size() > kStatementLimit || given.signer.size() > kSignerLimit) {
    return refused(Verdict::kMalformed, "the statement is over a limit");
  }
  const auto signer = Signer::from_blob(given.signer);
  if (!signer) return refused(Verdict::kMalformed, signer.error().what());
  Decision by = trusted.decide(*signer, expected.principals, kNamespace, expected.now, revoked);
  if (by.verdict != Verdict::kTrusted) return refused(by.verdict, why_of(*signer, by, expected.principals), by);
  if (!is_signed_by(signer->key, kNamespace, given.text, given.signature)) {
    return refused(Verdict::kBadSignature, "the signature is not one of this text", by);
  }
  auto statement = parse_statement(given.text);
  if (!statement) return refused(Verdict::kMalformed, statement.error().what(), by);
  if (statement->publisher != signer->key.fingerprint()) {
    return refused(Verdict::kMalformed, "the statement names another publisher than its signer", by);
  }
  if (statement->cluster != expected.cluster) {
    return refused(Verdict::kOtherCluster, "the statement is of the cluster " + statement->cluster, by);
  }
  if (statement->scope != expected.scope) {
    return refused(Verdict::kOtherScope, "the statement is of the scope " + statement->scope, by);
  }
  if (statement->issued > expected.now && statement->issued - expected.now > kClockSkewSeconds) {
    return refused(Verdict::kNotYetIssued, "the statement is of a later time than now: are the clocks right?", by);
  }
  if (expected.now >= statement->expires) return refused(Verdict::kStatementExpired, "the statement has expired", by);
  return {Verdict::kTrusted, {}, std::move(by), *std::move(statement)};
}

}  // namespace inductorfs::trust
