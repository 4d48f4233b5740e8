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

constexpr std::string_view kEntry = "entry ";
constexpr size_t kEntryLine = kEntry.size() + 2 * codec::Digest::kSize + 1;

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
  const bool is_twice =
      std::ranges::adjacent_find(statement.entries, std::ranges::greater_equal()) != statement.entries.end();
  return is_twice ? "an entry comes twice" : "";
}

std::string line_of(const codec::Digest& entry) { return std::string(kEntry) + entry.to_hex() + "\n"; }

std::string text_of(const TrustStatement& statement) {
  std::string text(kFirstLine);
  text += "\ncluster " + statement.cluster + "\nscope " + statement.scope + "\npublisher " + statement.publisher;
  text += "\nserial " + std::to_string(statement.serial) + "\nissued " + std::to_string(statement.issued);
  text += "\nexpires " + std::to_string(statement.expires) + "\n";
  for (const codec::Digest& entry : statement.entries) text += line_of(entry);
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

/// Takes the lines of entries off the end of a text.
std::vector<codec::Digest> take_entries(std::string_view& text) {
  std::vector<codec::Digest> entries;
  while (text.size() > kEntryLine && entries.size() < kStatementEntries) {
    const std::string_view line = text.substr(text.size() - kEntryLine);
    const auto digest = codec::Digest::from_hex(line.substr(kEntry.size(), 2 * codec::Digest::kSize));
    if (!digest || line_of(*digest) != line || text[text.size() - kEntryLine - 1] != '\n') break;
    entries.push_back(*digest);
    text.remove_suffix(kEntryLine);
  }
  std::ranges::reverse(entries);
  return entries;
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

codec::Digest stated(const codec::Entry& entry) {
  std::array<char, 8> mode{};
  (void)std::snprintf(mode.data(), mode.size(), "%04o", entry.mode & kPermissionBits);
  return codec::digest_of(entry.digest.to_hex() + " " + std::to_string(entry.size) + " " + mode.data() + " " +
                          entry.path);
}

Result<std::string> statement_text(TrustStatement statement) {
  if (statement.entries.size() > kStatementEntries)
    return fail(ErrorCode::kTooLarge, "a statement of more than 256 entries");
  std::ranges::sort(statement.entries);
  if (const std::string_view problem = problem_of(statement); !problem.empty()) {
    return fail(ErrorCode::kInvalid, "a statement cannot be written: " + std::string(problem));
  }
  return text_of(statement);
}

Result<TrustStatement> parse_statement(std::string_view text) {
  if (text.size() > kStatementTextLimit) return corrupt("it has more than 32 KiB");
  std::string_view rest = text;
  if (take_part(rest, '\n') != kFirstLine) return corrupt("its first line is another");
  TrustStatement statement;
  statement.cluster = take_value(rest);
  statement.scope = take_value(rest);
  statement.publisher = take_value(rest);
  for (uint64_t* const number : {&statement.serial, &statement.issued, &statement.expires}) {
    *number = number_in<uint64_t>(take_value(rest)).value_or(0);
  }
  std::string_view head = text;
  statement.entries = take_entries(head);
  if (const std::string_view problem = problem_of(statement); !problem.empty()) return corrupt(problem);
  // One statement has one text: names of fields, digits and the order are compared at once.
  if (text_of(statement) != text) return corrupt("it is cut, or not written as this program writes it");
  return statement;
}

std::string SignedStatement::encode() const {
  std::string_view head = text;
  const auto entries = take_entries(head);
  std::string bytes(kMagic);
  append_integer(bytes, kVersion);
  append_integer(bytes, static_cast<uint16_t>(head.size()));
  append_integer(bytes, static_cast<uint16_t>(signer.size()));
  append_integer(bytes, static_cast<uint16_t>(entries.size()));
  bytes.append(head);
  for (const codec::Digest& entry : entries) bytes.append(entry.raw());
  return bytes.append(signer).append(signature);
}

Result<SignedStatement> SignedStatement::decode(std::string_view bytes) {
  ByteReader reader(bytes);
  if (reader.bytes(kMagic.size()) != kMagic) return corrupt("it begins otherwise");
  if (const auto version = reader.integer<uint8_t>(); version != kVersion) {
    return version == 0 ? corrupt("it has no version")
                        : fail(ErrorCode::kNotSupported, "a statement of version " + std::to_string(version) +
                                                             ", which a newer inductorfs may have written");
  }
  const auto head_size = reader.integer<uint16_t>();
  const auto signer_size = reader.integer<uint16_t>();
  const auto count = reader.integer<uint16_t>();
  if (count > kStatementEntries || head_size + count * kEntryLine > kStatementTextLimit || signer_size > kSignerLimit) {
    return corrupt("it is over a limit");
  }
  SignedStatement statement;
  statement.text = reader.bytes(head_size);
  for (size_t i = 0; i < count; ++i) {
    statement.text += line_of(codec::Digest::from_raw(reader.bytes(codec::Digest::kSize)).value_or(codec::Digest{}));
  }
  statement.signer = reader.bytes(signer_size);
  statement.signature = reader.bytes(kSignatureSize);
  // One statement has one encoding: no line of an entry is in the head.
  if (!reader.complete() || statement.encode() != bytes) return corrupt("it is cut, or longer than it says");
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
  if (given.text.size() > kStatementTextLimit || given.signer.size() > kSignerLimit) {
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
