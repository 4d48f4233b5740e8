// SPDX-License-Identifier: Apache-2.0
#include "cli/common/answer_text.h"
#include "cli/common/answers.h"
#include "cli/common/command.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/text.h"
#include "inductorfs/control/requests.h"

namespace inductorfs::cli {

using config::flag_at;
using config::indented;
using config::Json;
using config::line;
using config::lines_at;
using config::number_at;
using config::part_of;
using config::text_at;

namespace {

/// "torch version=2.15.0\n..." of each facet, under the first label.
std::string facets_text(const Json& facets) {
  std::string text;
  for (const auto& [name, value] : facets.items()) {
    text += line(text.empty() ? "facets" : "", config::printable(name)) +
            indented(lines_at(facets, name.c_str()), std::string(18, ' '));
  }
  return text;
}

std::string nearest_text(const Json& nearest) {
  const std::string none = text_at(nearest, "why_none");
  if (!nearest.is_object() || nearest.empty()) return {};
  if (!none.empty()) return line("nearest", none);
  std::string text =
      line("nearest", text_at(nearest, "scope") + ", of " + std::to_string(number_at(nearest, "others")) +
                          " other scopes of these facets");
  for (const Json& one : part_of(nearest, "differences")) {
    text += line("", "differs in " + text_at(one, "facet"));
    text += indented(lines_at(one, "ours"), std::string(18, ' ') + "- here:  ");
    text += indented(lines_at(one, "theirs"), std::string(18, ' ') + "+ there: ");
  }
  return text;
}

class ExplainCommand final : public Subcommand {
 public:
  void add_to(Words& words) override {
    words.add_path("PATH", path_, "path in a mount").required = true;
    words.add_json(json_);
  }
  [[nodiscard]] int run(const config::Environment& environment) override {
    const Result<LocatedPath> path = locate_path(absolute(path_), environment);
    if (!path) return fail_query(path.error(), json_);
    const auto explanation =
        ask_daemon(path->mount, control::explain_request(path->relative), kQueryPatience, environment);
    if (!explanation) return fail_query(explanation.error(), json_);
    return print(json_ ? pretty(*explanation) : explanation_text(*explanation));
  }

 private:
  std::string path_;
  bool json_ = false;
};

}  // namespace

std::string explanation_text(std::string_view json) {
  const Json explanation = config::from_text(json);
  if (!explanation.is_object()) return {};
  std::string text;
  for (const char* name :
       {"verdict", "path", "canonical", "family", "rule", "scope", "why_private", "digest", "origin", "where"}) {
    const std::string value = text_at(explanation, name);
    if (!value.empty()) text += line(name, value);
  }
  text += line("visible", (flag_at(explanation, "visible") ? "yes: " : "no: ") + text_at(explanation, "why"));
  if (const std::string frozen = text_at(explanation, "frozen"); !frozen.empty()) {
    text += line("frozen", frozen + "; nothing of the cluster is shown until inductorfs freeze --lift");
  }
  const std::string publish = text_at(explanation, "publish");
  if (!publish.empty()) text += line("publish", publish);
  text += facets_text(part_of(explanation, "facets"));
  return text + nearest_text(part_of(explanation, "nearest"));
}

std::unique_ptr<Subcommand> explain_command() { return std::make_unique<ExplainCommand>(); }

}  // namespace inductorfs::cli
