// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "content_checks.h"
#include "gpu_target.h"
#include "inductorfs/codec/digest.h"
#include "name_shapes.h"

namespace inductorfs::layout {
namespace {

/// Deeper and larger than any metadata, tuning or list of timings that was seen.
constexpr JsonLimits kMetadataLimits{.bytes = size_t{8} << 20U, .depth = 32, .values = size_t{1} << 18U};
/// More digits than any count in these files has: Python's integers have no end, those of a GPU do.
constexpr size_t kCountDigits = 12;

tl::unexpected<Error> missing(const Artefact& artefact, std::string_view name) {
  return corrupt(artefact, "\"" + std::string(name) + "\" is missing or not what a reader expects");
}

bool is_string(const JsonValue* value) { return value != nullptr && value->is_string(); }
bool is_object(const JsonValue* value) { return value != nullptr && value->is_object(); }
bool is_number(const JsonValue& value) { return value.kind == JsonValue::Kind::kNumber; }
bool is_null(const JsonValue& value) { return value.kind == JsonValue::Kind::kLiteral && value.text == "null"; }
bool is_boolean(const JsonValue& value) { return value.kind == JsonValue::Kind::kLiteral && value.text != "null"; }
bool is_array(const JsonValue& value) { return value.kind == JsonValue::Kind::kArray; }
/// What a dictionary's key or a constant of a kernel can be; a list or a dictionary cannot be hashed.
bool is_scalar(const JsonValue& value) { return !is_array(value) && !value.is_object(); }

/// A count: an integer that is not negative.
bool is_count(const JsonValue* value) {
  return value != nullptr && is_number(*value) && value->text.size() <= kCountDigits &&
         consists_of(value->text, kDigit);
}

/// What Triton asserts of num_warps (triton/backends/*/compiler.py: __post_init__ of the options).
bool is_power_of_two(const JsonValue* value) {
  if (!is_count(value)) return false;
  const unsigned long long number = std::stoull(value->text);
  return number > 0 && (number & (number - 1)) == 0;
}

bool is_sha256_hex(std::string_view text) { return is_text_of(text, kSha256HexLength, kHex); }

/// collections.namedtuple takes the name for a field: an identifier that is no keyword and does not begin with `_`.
bool is_field_name(std::string_view name) {
  constexpr std::string_view kKeywords[] = {"False",  "None",   "True",   "and",      "as",       "assert", "async",
                                            "await",  "break",  "class",  "continue", "def",      "del",    "elif",
                                            "else",   "except", "for",    "finally",  "from",     "global", "if",
                                            "import", "in",     "is",     "lambda",   "nonlocal", "not",    "or",
                                            "pass",   "raise",  "return", "try",      "while",    "with",   "yield"};
  if (name.empty() || name.front() == '_' || is_in(name.front(), kDigit)) return false;
  const auto fits = [](char c) { return c == '_' || (c != '-' && is_in(c, kBase64Url)); };
  if (!std::all_of(name.begin(), name.end(), fits)) return false;
  return std::find(std::begin(kKeywords), std::end(kKeywords), name) == std::end(kKeywords);
}

/// One timing: a number, or the quantiles as a list of numbers.
bool is_timing(const JsonValue& value) {
  if (!is_array(value)) return is_number(value);
  return !value.values.empty() && std::all_of(value.values.begin(), value.values.end(), is_number);
}

/// Config(**config) of a [config, timing] pair: its parameters become a dictionary's key.
bool is_tuned_config(const JsonValue& pair) {
  if (!is_array(pair) || pair.values.size() != 2 || !pair.values[0].is_object()) return false;
  const JsonValue& config = pair.values[0];
  const JsonValue* parameters = config.find("kwargs");
  if (!is_object(parameters) || !is_power_of_two(config.find("num_warps")) || !is_count(config.find("num_stages"))) {
    return false;
  }
  if (!std::all_of(parameters->values.begin(), parameters->values.end(), is_scalar)) return false;
  for (size_t i = 0; i < config.names.size(); ++i) {
    if (config.names[i] != "kwargs" && !is_scalar(config.values[i])) return false;
  }
  return is_timing(pair.values[1]);
}

/// json.dumps(system without its "hash", sort_keys=True), whose SHA-256 torch takes for the hash.
std::string hashed_text(const JsonValue& system) {
  JsonValue hashed = system;
  const auto at = std::find(hashed.names.begin(), hashed.names.end(), "hash");
  if (at != hashed.names.end()) {
    hashed.values.erase(hashed.values.begin() + (at - hashed.names.begin()));
    hashed.names.erase(at);
  }
  return python_dump_sorted(hashed);
}

/// PersistentCache.lookup asks cache[op][inputs][precision][choice], each with dict.get.
bool is_cache_of_timings(const JsonValue& value, size_t depth) {
  constexpr size_t kNames = 3;
  if (!value.is_object()) return false;
  if (depth == kNames) return true;
  return std::all_of(value.values.begin(), value.values.end(),
                     [depth](const JsonValue& member) { return is_cache_of_timings(member, depth + 1); });
}

}  // namespace

Result<JsonValue> whole_json(const Artefact& artefact) {
  if (!artefact.whole()) return wants_whole();
  auto document = parse_json(artefact.bytes, kMetadataLimits);
  if (!document) return corrupt(artefact, document.error().what());
  return document;
}

Result<JsonValue> whole_object(const Artefact& artefact) {
  INDUCTORFS_TRY_ASSIGN(auto document, whole_json(artefact));
  if (!document.is_object()) return corrupt(artefact, "no JSON object");
  return document;
}

Result<void> check_best_config(const Artefact& artefact) {
  INDUCTORFS_TRY_ASSIGN(const auto document, whole_object(artefact));
  if (!is_power_of_two(document.find("num_warps"))) return missing(artefact, "num_warps");
  if (!is_count(document.find("num_stages"))) return missing(artefact, "num_stages");
  const JsonValue* hash = document.find("configs_hash");
  if (!is_string(hash) || !is_sha256_hex(hash->text)) return missing(artefact, "configs_hash");
  for (size_t i = 0; i < document.names.size(); ++i) {
    const std::string& name = document.names[i];
    const JsonValue& value = document.values[i];
    if (name == "found_by_coordesc" && !is_boolean(value)) return missing(artefact, name);
    if (name == "time_taken_ms" && !is_number(value) && !is_null(value)) return missing(artefact, name);
    if (name == "triton_cache_hash" && !value.is_string() && !is_null(value)) return missing(artefact, name);
    if ((name == "num_consumer_groups" || name == "num_buffers_warp_spec") && !is_count(&value)) {
      return missing(artefact, name);
    }
    // Every other member becomes a constant of the kernel; what a backend adds is never looked into.
    if (name != "extra_options" && !is_scalar(value)) return missing(artefact, name);
  }
  return {};
}

Result<void> check_triton_metadata(const Artefact& artefact) {
  INDUCTORFS_TRY_ASSIGN(const auto document, whole_object(artefact));
  for (const std::string& name : document.names) {
    if (!is_field_name(name)) return corrupt(artefact, "a member's name cannot be a field of a named tuple");
  }
  const JsonValue* target = document.find("target");
  if (!is_object(target) || !is_string(target->find("backend")) || !is_count(target->find("warp_size"))) {
    return missing(artefact, "target");
  }
  const JsonValue* arch = target->find("arch");
  if (!is_string(arch) && !is_count(arch)) return missing(artefact, "arch");
  if (!is_string(document.find("name"))) return missing(artefact, "name");
  for (const std::string_view name : {"num_warps", "shared"}) {
    if (!is_count(document.find(name))) return missing(artefact, name);
  }
  return {};
}

Result<void> check_triton_autotune(const Artefact& artefact) {
  INDUCTORFS_TRY_ASSIGN(const auto document, whole_object(artefact));
  const JsonValue* timings = document.find("configs_timings");
  // min() of no timing, or of a number and a list, is an exception.
  if (timings == nullptr || !is_array(*timings) || timings->values.empty()) return missing(artefact, "configs_timings");
  for (const JsonValue& pair : timings->values) {
    if (!is_tuned_config(pair)) return missing(artefact, "configs_timings");
    if (is_array(pair.values[1]) != is_array(timings->values.front().values[1])) {
      return missing(artefact, "configs_timings");
    }
  }
  return {};
}

Result<void> check_system_autotune(const Artefact& artefact) {
  if (!artefact.whole()) return wants_whole();
  const auto document = parse_system_autotune(artefact.bytes);
  if (!document) return corrupt(artefact, document.error().what());
  const JsonValue* system = document->find("system");
  const JsonValue* hash = system->find("hash");
  if (!is_string(hash) || hash->text != artefact.name) return corrupt(artefact, "has the timings of another system");
  if (codec::digest_of(hashed_text(*system)).to_hex() != artefact.name) {
    return corrupt(artefact, "its name is not the hash of the system that it describes");
  }
  if (!is_cache_of_timings(*document->find("cache"), 0)) return missing(artefact, "cache");
  return {};
}

std::string triton_architecture(std::string_view metadata) {
  const auto document = parse_json(metadata, kMetadataLimits);
  if (!document) return {};
  const JsonValue* target = document->find("target");
  if (!is_object(target)) return {};
  const JsonValue* backend = target->find("backend");
  const JsonValue* arch = target->find("arch");
  constexpr size_t kArchitectureDigits = 3;
  if (!is_string(backend) || backend->text != "cuda" || !is_count(arch)) return {};
  if (arch->text.size() > kArchitectureDigits) return {};
  const int number = std::stoi(arch->text);
  constexpr int kFirstArchitecture = 10;
  return number < kFirstArchitecture ? std::string() : capability_text(number);
}

}  // namespace inductorfs::layout
