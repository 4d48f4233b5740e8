// SPDX-License-Identifier: Apache-2.0
#include "python_literal.h"

#include <algorithm>
#include <utility>

#include "json_text.h"
#include "name_shapes.h"

namespace inductorfs::layout {
namespace {

/// More digits than any number of a shape or a graph has.
constexpr size_t kMostDigits = 18;

/// Reads from front to back. Confined to the thread of one call.
class Parser {
 public:
  Parser(std::string_view text, const PythonLimits& limits) : text_(text), limits_(limits) {}

  Result<PythonValue> whole() {
    INDUCTORFS_TRY_ASSIGN(auto value, this->value(0));
    skip_space();
    if (at_ < text_.size()) return broken("more after the value");
    return value;
  }

 private:
  tl::unexpected<Error> refuse(ErrorCode code, std::string_view what) const {
    return fail(code, "Python literal, byte " + std::to_string(at_) + ": " + std::string(what));
  }
  tl::unexpected<Error> broken(std::string_view what) const { return refuse(ErrorCode::kCorrupt, what); }

  /// In brackets a line's end is white space. Outside of them Python takes none before a value; nothing writes it.
  void skip_space() { at_ = std::min(text_.find_first_not_of(" \t\n", at_), text_.size()); }
  [[nodiscard]] char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (next() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }

  Result<PythonValue> value(size_t depth) {
    if (depth > limits_.depth) return refuse(ErrorCode::kTooLarge, "deeper than the limit");
    if (++values_ > limits_.values) return refuse(ErrorCode::kTooLarge, "more values than the limit");
    skip_space();
    const char c = next();
    if (take('{')) return dictionary(depth);
    if (take('(')) return tuple(depth);
    if (take('[')) return sequence(PythonValue::Kind::kList, ']', depth);
    if (c == '\'' || c == '"') return strings();
    if (c == '-' || is_in(c, kDigit)) return number();
    return name();
  }

  Result<PythonValue> dictionary(size_t depth) {
    PythonValue whole{PythonValue::Kind::kDictionary, {}, {}};
    for (skip_space(); !take('}'); skip_space()) {
      if (!whole.values.empty() && !take(',')) return broken("no comma in a dictionary");
      skip_space();
      if (!whole.values.empty() && take('}')) break;
      INDUCTORFS_TRY_ASSIGN(auto key, value(depth + 1));
      if (key.is(PythonValue::Kind::kDictionary) || key.is(PythonValue::Kind::kList)) {
        return broken("a key that cannot be hashed");
      }
      skip_space();
      if (!take(':')) return broken("no value in a dictionary");
      INDUCTORFS_TRY_ASSIGN(auto content, value(depth + 1));
      whole.values.push_back(std::move(key));
      whole.values.push_back(std::move(content));
    }
    return whole;
  }

  Result<PythonValue> sequence(PythonValue::Kind kind, char end, size_t depth) {
    PythonValue whole{kind, {}, {}};
    ends_with_comma_ = false;
    bool comma = false;
    for (skip_space(); !take(end); skip_space()) {
      if (!whole.values.empty() && !(comma = take(','))) return broken("no comma between values");
      skip_space();
      if (comma && take(end)) break;
      INDUCTORFS_TRY_ASSIGN(auto element, value(depth + 1));
      whole.values.push_back(std::move(element));
      comma = false;
    }
    ends_with_comma_ = comma;
    return whole;
  }

  /// One value in brackets without a comma is no tuple: pprint puts a string of several lines into such.
  Result<PythonValue> tuple(size_t depth) {
    INDUCTORFS_TRY_ASSIGN(auto whole, sequence(PythonValue::Kind::kTuple, ')', depth));
    if (whole.values.size() != 1 || ends_with_comma_) return whole;
    PythonValue only = std::move(whole.values.front());
    return only;
  }

  /// Strings side by side are one.
  Result<PythonValue> strings() {
    PythonValue whole{PythonValue::Kind::kString, {}, {}};
    for (char quote = next(); quote == '\'' || quote == '"'; quote = next()) {
      if (text_.substr(at_, 3) == std::string(3, quote)) return refuse(ErrorCode::kNotSupported, "three quotes");
      ++at_;
      INDUCTORFS_TRY(characters(quote, whole.text));
      // Where no bracket is open, a line's end would end the string; nothing writes such a text.
      skip_space();
    }
    return whole;
  }

  Result<void> characters(char quote, std::string& out) {
    while (!take(quote)) {
      if (at_ == text_.size()) return broken("cut off in a string");
      const auto c = static_cast<unsigned char>(text_[at_++]);
      if (c < ' ' || c == 0x7f) return broken("a control character in a string");
      if (c != '\\') {
        out.push_back(static_cast<char>(c));
        continue;
      }
      if (at_ == text_.size()) return broken("cut off in a string");
      const char escaped = next();
      if (escaped != '\\' && escaped != '\'' && escaped != '"') {
        return refuse(ErrorCode::kNotSupported, "an escape in a string");
      }
      out.push_back(escaped);
      ++at_;
    }
    return {};
  }

  Result<PythonValue> number() {
    const size_t begin = at_;
    (void)take('-');
    const size_t digits = at_;
    while (is_in(next(), kDigit)) ++at_;
    const std::string_view text = text_.substr(digits, at_ - digits);
    if (text.empty() || (text.size() > 1 && text.front() == '0')) return broken("no number");
    if (text.size() > kMostDigits) return refuse(ErrorCode::kTooLarge, "a number of too many digits");
    if (is_in(next(), kBase64Url) || next() == '.') return refuse(ErrorCode::kNotSupported, "no decimal integer");
    return PythonValue{PythonValue::Kind::kNumber, std::string(text_.substr(begin, at_ - begin)), {}};
  }

  Result<PythonValue> name() {
    for (const std::string_view known : {"None", "True", "False"}) {
      if (!text_.substr(at_).starts_with(known)) continue;
      at_ += known.size();
      if (is_in(next(), kBase64Url)) break;
      return PythonValue{PythonValue::Kind::kName, std::string(known), {}};
    }
    return broken("no value");
  }

  std::string_view text_;
  PythonLimits limits_;
  size_t at_ = 0;
  size_t values_ = 0;
  bool ends_with_comma_ = false;  ///< of the sequence that was read last
};

/// The place behind the string that begins at `at`; npos when the text ends in it.
size_t end_of_string(std::string_view text, size_t at) {
  std::string_view mark = text.substr(at, 3);
  const bool is_long = mark.size() == 3 && mark.find_first_not_of(mark.front()) == std::string_view::npos;
  if (!is_long) mark = mark.substr(0, 1);
  for (at += mark.size(); at < text.size(); at += text[at] == '\\' ? 2 : 1) {
    if (text.substr(at).starts_with(mark)) return at + mark.size();
  }
  return std::string_view::npos;
}

}  // namespace

const PythonValue* PythonValue::find(std::string_view key) const {
  if (kind != Kind::kDictionary) return nullptr;
  for (size_t i = values.size(); i > 1; i -= 2) {
    if (values[i - 2].is(Kind::kString) && values[i - 2].text == key) return &values[i - 1];
  }
  return nullptr;
}

Result<PythonValue> parse_python(std::string_view text, const PythonLimits& limits) {
  if (text.size() > limits.bytes) return fail(ErrorCode::kTooLarge, "Python literal: larger than the limit");
  if (!is_utf8(text)) return fail(ErrorCode::kCorrupt, "Python literal: text that is no UTF-8");
  return Parser(text, limits).whole();
}

bool is_unclosed(std::string_view text) {
  size_t depth = 0;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (c == '\'' || c == '"') {
      at = end_of_string(text, at);
      if (at == std::string_view::npos) return true;
    } else {
      if (std::string_view("([{").find(c) != std::string_view::npos) ++depth;
      if (std::string_view(")]}").find(c) != std::string_view::npos && depth > 0) --depth;
      ++at;
    }
  }
  return depth > 0;
}

}  // namespace inductorfs::layout
