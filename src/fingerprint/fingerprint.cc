// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/fingerprint/fingerprint.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace inductorfs::fingerprint {
namespace {

using Json = nlohmann::json;

/// A fingerprint has a few KiB; another host's file is read, so its size is not ours to trust.
constexpr size_t kJsonLimit = size_t{1} << 20;
constexpr std::pair<Facet, std::string_view> kNames[] = {
    {Facet::kTorch, "torch"},       {Facet::kTriton, "triton"},    {Facet::kCuda, "cuda"},
    {Facet::kGpu, "gpu"},           {Facet::kGpuArch, "gpu-arch"}, {Facet::kPython, "python"},
    {Facet::kLibc, "libc"},         {Facet::kCpu, "cpu"},          {Facet::kCpuIsa, "cpu-isa"},
    {Facet::kCompiler, "compiler"}, {Facet::kEngine, "engine"},    {Facet::kEnvironment, "environment"},
    {Facet::kTrust, "trust"}};

/// The optional text member `name`; false when it is there and no text.
bool read_text(const Json& object, const char* name, std::string& out) {
  const auto found = object.find(name);
  if (found == object.end()) return true;
  if (!found->is_string()) return false;
  out = found->get<std::string>();
  return true;
}

Result<Fact> fact_from_json(std::string_view name, const Json& json) {
  const auto known = json.is_object() ? json.find("known") : json.end();
  Fact fact;
  if (!json.is_object() || known == json.end() || !known->is_boolean() || !read_text(json, "value", fact.value) ||
      !read_text(json, "source", fact.source) || !read_text(json, "problem", fact.problem) ||
      !read_text(json, "details", fact.details)) {
    return fail(ErrorCode::kInvalid, "facet " + std::string(name) + " is malformed");
  }
  fact.known = known->get<bool>();
  if (fact.known && fact.value.empty()) {
    return fail(ErrorCode::kInvalid, "facet " + std::string(name) + " is known but has no value");
  }
  return fact;
}

}  // namespace

std::string_view to_string(Facet facet) {
  for (const auto& [value, name] : kNames) {
    if (value == facet) return name;
  }
  return "unknown";
}

Result<Facet> facet_from_string(std::string_view name) {
  for (const auto& [value, known] : kNames) {
    if (known == name && value != Facet::kTrust) return value;  // it is derived from a root, and never given
  }
  return fail(ErrorCode::kInvalid, "no such facet: " + std::string(name));
}

const Fact& Fingerprint::get(Facet facet) const {
  static const Fact never_set{false, {}, {}, "not probed", {}};
  const auto found = facts_.find(facet);
  return found == facts_.end() ? never_set : found->second;
}

std::string Fingerprint::to_json() const {
  // Ordered as the facets are declared: the file is read by people too.
  nlohmann::ordered_json facets = nlohmann::ordered_json::object();
  for (const auto& [facet, fact] : facts_) {
    nlohmann::ordered_json json = {{"known", fact.known}};
    if (fact.known || !fact.value.empty()) json["value"] = fact.value;
    if (!fact.source.empty()) json["source"] = fact.source;
    if (!fact.problem.empty()) json["problem"] = fact.problem;
    if (!fact.details.empty()) json["details"] = fact.details;
    facets[std::string(to_string(facet))] = std::move(json);
  }
  const nlohmann::ordered_json root = {{"facets", std::move(facets)}};
  return root.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

Result<Fingerprint> Fingerprint::from_json(std::string_view text) {
  if (text.size() > kJsonLimit) return fail(ErrorCode::kInvalid, "a fingerprint of more than 1 MiB");
  const Json root = Json::parse(text, nullptr, false);
  if (!root.is_object()) return fail(ErrorCode::kInvalid, "a fingerprint is a JSON object");
  const auto facets = root.find("facets");
  if (facets == root.end() || !facets->is_object()) return fail(ErrorCode::kInvalid, "a fingerprint has \"facets\"");
  Fingerprint result;
  for (const auto& [name, json] : facets->items()) {
    INDUCTORFS_TRY_ASSIGN(const auto facet, facet_from_string(name));
    INDUCTORFS_TRY_ASSIGN(auto fact, fact_from_json(name, json));
    result.set(facet, std::move(fact));
  }
  return result;
}

}  // namespace inductorfs::fingerprint
