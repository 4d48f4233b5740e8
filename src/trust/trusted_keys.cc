// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/trust/trusted_keys.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <optional>
#include <utility>

#include "inductorfs/base/number.h"
#include "inductorfs/base/text.h"
#include "trust/wire.h"

namespace inductorfs::trust {
namespace {

constexpr std::string_view kBlank = " \t";

bool matches(std::string_view pattern, std::string_view text) {
  size_t at = 0;
  size_t star = pattern.npos;
  size_t held = 0;  // of the text: what the last star has taken
  for (size_t i = 0; i < text.size();) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      held = i;
    } else if (at < pattern.size() && (pattern[at] == '?' || pattern[at] == text[i])) {
      ++at;
      ++i;
    } else if (star != pattern.npos) {
      at = star + 1;
      i = ++held;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == pattern.npos;
}

/// Whether one pattern matches, and none that begins with "!".
bool any_matches(std::string_view patterns, std::string_view text) {
  bool found = false;
  for (std::string_view pattern : parts_of(patterns, ',')) {
    const bool is_negated = pattern.starts_with('!');
    if (is_negated) pattern.remove_prefix(1);
    if (!matches(pattern, text)) continue;
    if (is_negated) return false;
    found = true;
  }
  return found;
}

std::string_view problem_of_patterns(std::string_view patterns) {
  if (patterns.size() > TrustedKeys::kPatternsLimit) return "its list of patterns has more than 1024 bytes";
  const bool is_whole =
      !patterns.empty() && patterns.front() != ',' && patterns.back() != ',' && patterns.find(",,") == patterns.npos;
  return is_whole ? "" : "its list of patterns has an empty one";
}

/// YYYYMMDD[HHMM[SS]][Z], as ssh-keygen reads it: local time without Z.
std::optional<uint64_t> time_in(std::string_view text) {
  const bool is_utc = text.ends_with('Z');
  if (is_utc) text.remove_suffix(1);
  if (text.size() != 8 && text.size() != 12 && text.size() != 14) return std::nullopt;
  if (text.find_first_not_of("0123456789") != text.npos) return std::nullopt;
  const auto part = [text](size_t at, size_t size) {
    return at < text.size() ? leading_number<int>(text.substr(at, size)) : 0;
  };
  std::tm given{};
  given.tm_year = part(0, 4) - 1900;
  given.tm_mon = part(4, 2) - 1;
  given.tm_mday = part(6, 2);
  given.tm_hour = part(8, 2);
  given.tm_min = part(10, 2);
  given.tm_sec = part(12, 2);
  given.tm_isdst = -1;
  std::tm normal = given;
  const std::time_t time = is_utc ? ::timegm(&normal) : std::mktime(&normal);
  // What was no date has become another one. The hour of a local time that summer time leaves out moves too.
  const bool is_date = normal.tm_mday == given.tm_mday && normal.tm_mon == given.tm_mon && given.tm_hour < 24 &&
                       given.tm_min < 60 && given.tm_sec < 60;
  if (time <= 0 || !is_date) return std::nullopt;
  return static_cast<uint64_t>(time);
}

/// Takes a word off the front; a quoted one without its quotes. Nothing if its quote does not end.
std::optional<std::string_view> take_word(std::string_view& rest) {
  const bool is_quoted = rest.starts_with('"');
  if (is_quoted) rest.remove_prefix(1);
  const size_t end = is_quoted ? rest.find('"') : std::min(rest.find_first_of(kBlank), rest.size());
  if (end == rest.npos) return std::nullopt;
  const std::string_view word = rest.substr(0, end);
  rest.remove_prefix(is_quoted ? end + 1 : end);
  if (!rest.empty() && kBlank.find(rest.front()) == kBlank.npos) return std::nullopt;
  rest = trimmed(rest);
  return word;
}

/// Takes NAME or NAME="VALUE" off the front of a list of options. False: it is neither.
bool take_option(std::string_view& rest, std::string& name, std::optional<std::string>& value) {
  const size_t end = std::min(rest.find_first_of("=, \t"), rest.size());
  name = rest.substr(0, end);
  for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  rest.remove_prefix(end);
  value.reset();
  if (!rest.starts_with('=')) return true;
  rest.remove_prefix(1);
  const size_t close = rest.starts_with('"') ? rest.find('"', 1) : rest.npos;
  if (close == rest.npos) return false;
  value = rest.substr(1, close - 1);
  rest.remove_prefix(close + 1);
  return true;
}

/// Reads one option into a line. Answers what is wrong with it.
std::string set_option(TrustedKeys::Line& line, const std::string& name, const std::optional<std::string>& value) {
  if (name == "cert-authority") {
    line.is_authority = true;
    return value ? "cert-authority has no value" : "";
  }
  if (name != "namespaces" && name != "valid-after" && name != "valid-before") {
    return "its option \"" + name.substr(0, 64) +
           "\" is unknown: there are cert-authority, namespaces, valid-after and valid-before";
  }
  if (!value) return name + " needs a value in quotes";
  if (name == "namespaces") {
    line.namespaces = *value;
    return std::string(problem_of_patterns(*value));
  }
  const auto time = time_in(*value);
  if (!time) return name + " is no time: write YYYYMMDD, YYYYMMDDHHMM or YYYYMMDDHHMMSS, and Z after it for UTC";
  (name == "valid-after" ? line.valid_after : line.valid_before) = *time;
  return "";
}

/// Takes the options off the front of what follows the principals. Answers what is wrong.
std::string take_options(TrustedKeys::Line& line, std::string_view& rest) {
  std::vector<std::string> seen;
  for (;;) {
    std::string name;
    std::optional<std::string> value;
    if (!take_option(rest, name, value)) return "the value of " + name.substr(0, 64) + " is not in quotes";
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) return "it has " + name.substr(0, 64) + " twice";
    if (std::string problem = set_option(line, name, value); !problem.empty()) return problem;
    seen.push_back(std::move(name));
    if (!rest.starts_with(',')) break;
    rest.remove_prefix(1);
  }
  if (!rest.empty() && kBlank.find(rest.front()) == kBlank.npos) return "its options are no list of words and commas";
  rest = trimmed(rest);
  return line.valid_after >= line.valid_before ? "its valid-before is not after its valid-after" : "";
}

bool begins_key(std::string_view text) {
  return text.starts_with("ssh-") || text.starts_with("ecdsa-") || text.starts_with("sk-");
}

/// Reads a line that is not empty. Answers what is wrong with it.
std::string read_line(std::string_view text, TrustedKeys::Line& line) {
  std::string_view rest = text;
  if (begins_key(rest)) {
    return "it begins with the key: write who it is before it, as tier=ci or \"*\", and then the line of the .pub file";
  }
  const auto principals = take_word(rest);
  if (!principals) return "a quote does not end";
  line.principals = *principals;
  if (const std::string_view problem = problem_of_patterns(*principals); !problem.empty()) return std::string(problem);
  if (rest.empty()) return "it has no key: a line is PRINCIPALS [OPTIONS] TYPE BASE64 [COMMENT]";
  if (!begins_key(rest)) {
    if (std::string problem = take_options(line, rest); !problem.empty()) return problem;
  }
  auto signer = Signer::from_line(rest);
  if (!signer) return signer.error().what();
  if (signer->certificate) return "it has a certificate: write its authority's key, with the option cert-authority";
  line.key = signer->key;
  line.comment = signer->comment;
  return "";
}

/// How near a line is to what was asked; its verdict is the reason why it does not fit.
Verdict verdict_of(const TrustedKeys::Line& line, const Signer& signer, const std::vector<std::string>& needed,
                   std::string_view space, uint64_t now) {
  if (!line.namespaces.empty() && !any_matches(line.namespaces, space)) return Verdict::kWrongNamespace;
  for (const std::string& principal : needed) {
    if (!any_matches(line.principals, principal)) return Verdict::kNotItsPrincipal;
    if (!signer.certificate) continue;
    const auto& has = signer.certificate->principals;
    if (std::find(has.begin(), has.end(), principal) == has.end()) return Verdict::kNotItsPrincipal;
  }
  if (needed.empty()) return Verdict::kNotItsPrincipal;
  const uint64_t early = now > UINT64_MAX - kClockSkewSeconds ? now : now + kClockSkewSeconds;
  if (early < line.valid_after) return Verdict::kNotYetValid;
  if (now > line.valid_before) return Verdict::kExpired;
  if (!signer.certificate) return Verdict::kTrusted;
  if (early < signer.certificate->valid_after) return Verdict::kNotYetValid;
  return now >= signer.certificate->valid_before ? Verdict::kExpired : Verdict::kTrusted;
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  constexpr std::array<std::string_view, 13> kNames{
      "trusted",     "unknown_key",    "wrong_namespace",  "not_its_principal", "not_yet_valid",
      "expired",     "revoked",        "malformed",        "bad_signature",     "other_cluster",
      "other_scope", "not_yet_issued", "statement_expired"};
  return kNames.at(static_cast<size_t>(verdict));
}

Result<TrustedKeys> TrustedKeys::load(const std::string& path) {
  INDUCTORFS_TRY_ASSIGN(const auto text, read_trusted_list("trusted keys", path, kFileLimit));
  return parse(text, path);
}

Result<TrustedKeys> TrustedKeys::parse(std::string_view text, const std::string& name) {
  const auto bad = [&name](size_t number, std::string_view why) {
    return fail(ErrorCode::kInvalid, "trusted keys " + name + ":" + std::to_string(number) + ": " + std::string(why));
  };
  if (text.size() > kFileLimit) return fail(ErrorCode::kTooLarge, "trusted keys " + name + ": it has more than 1 MiB");
  if (const size_t number = line_with_return(text); number != 0) {
    return bad(number, "the line ends with a carriage return: run sed -i 's/\\r$//' on the file");
  }
  TrustedKeys keys;
  size_t number = 0;
  for (const std::string_view whole : parts_of(text, '\n')) {
    if (++number > kLineLimit)
      return bad(number, "it has more than 4096 lines: trust an authority with cert-authority instead");
    const std::string_view content = trimmed(whole);
    if (content.empty() || content.front() == '#') continue;
    if (content.find('\0') != content.npos) return bad(number, "it has a NUL: this is no text");
    Line line;
    line.number = number;
    if (const std::string why = read_line(content, line); !why.empty()) return bad(number, why);
    keys.lines_.push_back(std::move(line));
  }
  return keys;
}

Decision TrustedKeys::decide(const Signer& signer, const std::vector<std::string>& needed, std::string_view space,
                             uint64_t now, const RevokedKeys& revoked, bool is_genuine) const {
  const auto rank = [](Verdict verdict) { return verdict == Verdict::kTrusted ? 100 : static_cast<int>(verdict); };
  const PublicKey& wanted = signer.certificate ? signer.certificate->authority : signer.key;
  Decision best;
  for (const Line& line : lines_) {
    if (line.is_authority != signer.certificate.has_value() || line.key != wanted) continue;
    const Verdict verdict = verdict_of(line, signer, needed, space, now);
    if (rank(verdict) <= rank(best.verdict)) continue;
    best = {verdict, signer.certificate ? signer.certificate->key_id : line.comment, line.number};
  }
  if (best.line == 0) return best;
  if (signer.certificate && !is_genuine && !signer.certificate->is_genuine())
    return {Verdict::kBadSignature, {}, best.line};
  if (revoked.has(signer)) best.verdict = Verdict::kRevoked;
  return best;
}

}  // namespace inductorfs::trust
