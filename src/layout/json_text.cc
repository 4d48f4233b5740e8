// SPDX-License-Identifier: Apache-2.0
#include "json_text.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

namespace inductorfs::layout {
namespace {

constexpr uint32_t kInvalid = 0xffffffff;
constexpr uint32_t kSurrogateFirst = 0xd800;
constexpr uint32_t kSurrogateLow = 0xdc00;
constexpr uint32_t kSurrogateLast = 0xdfff;
/// surrogateescape stands for byte b as U+DC00 + b, b >= 0x80 (PEP 383).
constexpr uint32_t kEscapedByteFirst = 0xdc80;
constexpr uint32_t kEscapedByteLast = 0xdcff;
constexpr char kHexDigits[] = "0123456789abcdef";

enum class Surrogates { kRefuse, kAccept };

uint8_t byte_at(std::string_view text, size_t at) { return static_cast<uint8_t>(text[at]); }

/// The code point at `at`, which moves behind it; kInvalid (and no move) for what is no UTF-8.
uint32_t decode_utf8(std::string_view text, size_t& at, Surrogates surrogates) {
  const uint8_t lead = byte_at(text, at);
  if (lead < 0x80) {
    ++at;
    return lead;
  }
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() - at < length) return kInvalid;
  uint32_t point = lead & (0xffU >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    const uint8_t next = byte_at(text, at + i);
    if ((next & 0xc0U) != 0x80U) return kInvalid;
    point = (point << 6U) | (next & 0x3fU);
  }
  const bool overlong = (length == 3 && point < 0x800) || (length == 4 && point < 0x10000);
  const bool surrogate = point >= kSurrogateFirst && point <= kSurrogateLast;
  if (overlong || point > 0x10ffff || (surrogate && surrogates == Surrogates::kRefuse)) return kInvalid;
  at += length;
  return point;
}

void append_utf8(std::string& out, uint32_t point) {
  const auto put = [&out](uint32_t value) { out.push_back(static_cast<char>(static_cast<uint8_t>(value))); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xc0U | (point >> 6U));
    put(0x80U | (point & 0x3fU));
  } else if (point < 0x10000) {
    put(0xe0U | (point >> 12U));
    put(0x80U | ((point >> 6U) & 0x3fU));
    put(0x80U | (point & 0x3fU));
  } else {
    put(0xf0U | (point >> 18U));
    put(0x80U | ((point >> 12U) & 0x3fU));
    put(0x80U | ((point >> 6U) & 0x3fU));
    put(0x80U | (point & 0x3fU));
  }
}

void append_escape(std::string& out, uint32_t unit) {
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out.push_back(kHexDigits[(unit >> static_cast<unsigned>(shift)) & 0xfU]);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Recursive descent with a limit on depth. Confined to the thread of one parse_json call.
class Parser {
 public:
  Parser(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

  Result<JsonValue> document() {
    auto value = this->value(0);
    if (!value) return value;
    skip_space();
    if (at_ != text_.size()) return corrupt("more after the value");
    return value;
  }

 private:
  tl::unexpected<Error> corrupt(std::string_view what) const {
    return fail(ErrorCode::kCorrupt, "no JSON at byte " + std::to_string(at_) + ": " + std::string(what));
  }

  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }

  bool take(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool take_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Result<JsonValue> value(size_t depth) {
    if (depth > limits_.depth) return fail(ErrorCode::kTooLarge, "JSON nests too deep");
    if (++count_ > limits_.values) return fail(ErrorCode::kTooLarge, "JSON has too many values");
    skip_space();
    if (at_ == text_.size()) return corrupt("ends early");
    JsonValue value;
    value.begin = at_;
    INDUCTORFS_TRY(fill(value, depth));
    value.end = at_;
    return value;
  }

  Result<void> fill(JsonValue& value, size_t depth) {
    const char c = text_[at_];
    if (c == '{') return object(value, depth);
    if (c == '[') return array(value, depth);
    if (c == '"') {
      value.kind = JsonValue::Kind::kString;
      return string(value.text);
    }
    for (const std::string_view word : {"true", "false", "null"}) {
      if (!take_word(word)) continue;
      value.kind = JsonValue::Kind::kLiteral;
      value.text = word;
      return {};
    }
    value.kind = JsonValue::Kind::kNumber;
    return number(value.text);
  }

  Result<void> object(JsonValue& value, size_t depth) {
    value.kind = JsonValue::Kind::kObject;
    ++at_;
    if (take('}')) return {};
    do {
      skip_space();
      if (at_ == text_.size() || text_[at_] != '"') return corrupt("a name is missing");
      std::string name;
      INDUCTORFS_TRY(string(name));
      if (!take(':')) return corrupt("':' is missing");
      INDUCTORFS_TRY_ASSIGN(auto member, this->value(depth + 1));
      value.names.push_back(std::move(name));
      value.values.push_back(std::move(member));
    } while (take(','));
    if (!take('}')) return corrupt("'}' is missing");
    return each_name_once(value);
  }

  Result<void> each_name_once(const JsonValue& value) const {
    std::vector<std::string_view> names(value.names.begin(), value.names.end());
    std::sort(names.begin(), names.end());
    if (std::adjacent_find(names.begin(), names.end()) != names.end()) return corrupt("a name stands twice");
    return {};
  }

  Result<void> array(JsonValue& value, size_t depth) {
    value.kind = JsonValue::Kind::kArray;
    ++at_;
    if (take(']')) return {};
    do {
      INDUCTORFS_TRY_ASSIGN(auto item, this->value(depth + 1));
      value.values.push_back(std::move(item));
    } while (take(','));
    if (!take(']')) return corrupt("']' is missing");
    return {};
  }

  Result<void> number(std::string& out) {
    const size_t begin = at_;
    (void)take_word("-");  // the sign is optional
    if (!(begin == at_ && take_word("NaN")) && !take_word("Infinity")) INDUCTORFS_TRY(finite_number());
    if (at_ - begin > kNumberLength) return corrupt("a number is too long");
    out = text_.substr(begin, at_ - begin);
    return {};
  }

  Result<void> finite_number() {
    const bool zero = at_ < text_.size() && text_[at_] == '0';
    const size_t whole = digits();
    if (whole == 0 || (zero && whole > 1)) return corrupt("not a value");
    if (take_word(".") && digits() == 0) return corrupt("a number has no digit after its point");
    if (take_word("e") || take_word("E")) {
      if (!take_word("-")) (void)take_word("+");  // either sign, or none
      if (digits() == 0) return corrupt("a number has an empty exponent");
    }
    return {};
  }

  size_t digits() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    return at_ - begin;
  }

  /// Requires: text_[at_] is the opening quote.
  Result<void> string(std::string& out) {
    ++at_;
    while (at_ < text_.size() && text_[at_] != '"') INDUCTORFS_TRY(character(out));
    if (at_ == text_.size()) return corrupt("a string does not end");
    ++at_;
    return {};
  }

  Result<void> character(std::string& out) {
    if (text_[at_] == '\\') return escape(out);
    if (byte_at(text_, at_) < 0x20) return corrupt("a control character in a string");
    const uint32_t point = decode_utf8(text_, at_, Surrogates::kRefuse);
    if (point == kInvalid) return corrupt("invalid UTF-8");
    append_utf8(out, point);
    return {};
  }

  Result<void> escape(std::string& out) {
    constexpr std::string_view kLetters = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    ++at_;
    if (at_ == text_.size()) return corrupt("a string does not end");
    const char letter = text_[at_];
    if (const size_t index = kLetters.find(letter); index != std::string_view::npos) {
      ++at_;
      out.push_back(kMeanings[index]);
      return {};
    }
    if (letter != 'u') return corrupt("an unknown escape");
    ++at_;
    uint32_t point = code_unit();
    if (point == kInvalid) return corrupt("a \\u escape without four digits");
    if (point >= kSurrogateFirst && point < kSurrogateLow && text_.substr(at_, 2) == "\\u") {
      const size_t back = at_;
      at_ += 2;
      const uint32_t low = code_unit();
      if (low >= kSurrogateLow && low <= kSurrogateLast) {
        point = 0x10000 + ((point - kSurrogateFirst) << 10U) + (low - kSurrogateLow);
      } else {
        at_ = back;
      }
    }
    append_utf8(out, point);
    return {};
  }

  uint32_t code_unit() {
    if (text_.size() - at_ < 4) return kInvalid;
    uint32_t unit = 0;
    for (size_t i = 0; i < 4; ++i) {
      const char c = text_[at_ + i];
      const auto lower = static_cast<char>(c | 0x20);
      if (is_digit(c)) {
        unit = unit * 16 + static_cast<uint32_t>(c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        unit = unit * 16 + static_cast<uint32_t>(lower - 'a') + 10;
      } else {
        return kInvalid;
      }
    }
    at_ += 4;
    return unit;
  }

  std::string_view text_;
  const JsonLimits& limits_;
  size_t at_ = 0;
  size_t count_ = 0;
};

void dump(std::string& out, const JsonValue& value, size_t depth) {
  constexpr size_t kIndent = 4;
  if (value.kind == JsonValue::Kind::kString) {
    out += python_string(value.text);
    return;
  }
  if (value.kind != JsonValue::Kind::kObject && value.kind != JsonValue::Kind::kArray) {
    out += value.text;
    return;
  }
  const bool object = value.is_object();
  out.push_back(object ? '{' : '[');
  for (size_t i = 0; i < value.values.size(); ++i) {
    out += i == 0 ? "\n" : ",\n";
    out.append(kIndent * (depth + 1), ' ');
    if (object) out += python_string(value.names[i]) + ": ";
    dump(out, value.values[i], depth + 1);
  }
  if (!value.values.empty()) {
    out.push_back('\n');
    out.append(kIndent * depth, ' ');
  }
  out.push_back(object ? '}' : ']');
}

void dump_sorted(std::string& out, const JsonValue& value) {
  if (value.kind == JsonValue::Kind::kString) {
    out += python_string(value.text);
    return;
  }
  if (value.kind != JsonValue::Kind::kObject && value.kind != JsonValue::Kind::kArray) {
    out += value.text;
    return;
  }
  const bool object = value.is_object();
  std::vector<size_t> order(value.values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // By code points, as Python compares strings: the order of UTF-8's bytes is the same.
  if (object) {
    std::sort(order.begin(), order.end(),
              [&value](size_t one, size_t other) { return value.names[one] < value.names[other]; });
  }
  out.push_back(object ? '{' : '[');
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0) out += ", ";
    if (object) out += python_string(value.names[order[i]]) + ": ";
    dump_sorted(out, value.values[order[i]]);
  }
  out.push_back(object ? '}' : ']');
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view name) const {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return nullptr;
  return &values[static_cast<size_t>(found - names.begin())];
}

Result<JsonValue> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    return fail(ErrorCode::kTooLarge,
                "JSON of " + std::to_string(text.size()) + " bytes, the limit is " + std::to_string(limits.bytes));
  }
  return Parser(text, limits).document();
}

std::string python_string(std::string_view decoded) {
  constexpr std::string_view kShort = "\"\\\b\f\n\r\t";
  constexpr std::string_view kLetters = "\"\\bfnrt";
  std::string out = "\"";
  for (size_t at = 0; at < decoded.size();) {
    const char c = decoded[at];
    if (const size_t index = kShort.find(c); index != std::string_view::npos) {
      out.push_back('\\');
      out.push_back(kLetters[index]);
      ++at;
      continue;
    }
    if (c >= ' ' && c <= '~') {
      out.push_back(c);
      ++at;
      continue;
    }
    uint32_t point = decode_utf8(decoded, at, Surrogates::kAccept);
    if (point == kInvalid) point = kSurrogateLow + byte_at(decoded, at++);
    if (point >= 0x10000) {
      append_escape(out, kSurrogateFirst + ((point - 0x10000) >> 10U));
      point = kSurrogateLow + ((point - 0x10000) & 0x3ffU);
    }
    append_escape(out, point);
  }
  out.push_back('"');
  return out;
}

std::string text_from_path(std::string_view path) {
  std::string out;
  for (size_t at = 0; at < path.size();) {
    uint32_t point = decode_utf8(path, at, Surrogates::kRefuse);
    if (point == kInvalid) point = kSurrogateLow + byte_at(path, at++);
    append_utf8(out, point);
  }
  return out;
}

std::optional<std::string> path_from_text(std::string_view decoded) {
  std::string out;
  for (size_t at = 0; at < decoded.size();) {
    const uint32_t point = decode_utf8(decoded, at, Surrogates::kAccept);
    if (point == kInvalid) return std::nullopt;
    if (point >= kEscapedByteFirst && point <= kEscapedByteLast) {
      out.push_back(static_cast<char>(static_cast<uint8_t>(point - kSurrogateLow)));
    } else if (point >= kSurrogateFirst && point <= kSurrogateLast) {
      return std::nullopt;
    } else {
      append_utf8(out, point);
    }
  }
  return out;
}

std::string python_dump_indented(const JsonValue& value) {
  std::string out;
  dump(out, value, 0);
  return out;
}

std::string python_dump_sorted(const JsonValue& value) {
  std::string out;
  dump_sorted(out, value);
  return out;
}

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (decode_utf8(text, at, Surrogates::kRefuse) == kInvalid) return false;
  }
  return true;
}

bool same_json(const JsonValue& one, const JsonValue& other) {
  if (one.kind != other.kind || one.text != other.text || one.values.size() != other.values.size()) return false;
  for (size_t i = 0; i < one.values.size(); ++i) {
    const JsonValue* counterpart = one.is_object() ? other.find(one.names[i]) : &other.values[i];
    if (counterpart == nullptr || !same_json(one.values[i], *counterpart)) return false;
  }
  return true;
}

}  // namespace inductorfs::layout
