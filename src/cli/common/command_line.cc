// SPDX-License-Identifier: Apache-2.0
#include "cli/common/command_line.h"

#include <CLI/CLI.hpp>
#include <climits>
#include <cstring>
#include <sstream>
#include <utility>

#include "cli/common/answers.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/number.h"
#include "inductorfs/cli/run.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/config/text.h"

namespace inductorfs::cli {
namespace {

constexpr const char* kAbout =
    "A compile cache for torch.compile and Triton that the nodes of a cluster share, as a file system.";
constexpr int kMostSeconds = 24 * 3600;

std::string check_path(const std::string& given) {
  if (given.empty()) return "it is empty: give a path (`.` is the current directory)";
  // Of a path with such a name the first slash comes earlier: /tmp/a://b
  if (const size_t scheme = given.find("://"); scheme != std::string::npos && given.find('/') == scheme + 1)
    return "it is a URL: give it with --remote";
  if (given.size() < PATH_MAX) return {};
  return "it is too long: a path has at most " + std::to_string(PATH_MAX - 1) + " bytes";
}

std::string check_number(const std::string& given) {
  const auto number = number_in<uint64_t>(given);
  return number && *number > 0 ? "" : "give a number of 1 or more";
}

CommandLine usage(const CLI::App& app, std::string_view what, bool json) {
  std::string command = "inductorfs";
  for (const CLI::App* chosen : app.get_subcommands()) command += " " + chosen->get_name();
  const std::string text = "usage: " + config::printable(log::redact_url(what)) + ": see " + command + " --help";
  const std::string answer = json ? config::to_pretty(error_json({ErrorCode::kInvalid, text})) + "\n" : "";
  return {{}, nullptr, "inductorfs: " + text + "\n", answer, kExitUsage};
}

/// The words may be in an order that the parser gives up on before it comes to --json.
bool wants_json(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    if (argv[i] == std::string_view("--json")) return true;
  }
  return false;
}

/// For a word that CLI11 has no place for. CLI11 itself names all of them, the last one first, or says that a command
/// is missing.
std::string unknown_word(CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  const bool is_option = word.starts_with('-');
  if (is_option) {
    for (const CLI::Option* option : (chosen.empty() ? &app : chosen.front())->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  } else if (chosen.empty()) {
    for (const CLI::App* command : app.get_subcommands(nullptr)) {
      if (!command->get_description().empty()) names.push_back(command->get_name());
    }
  }
  if (chosen.empty() && (word == "gc" || word == "prune")) {
    return "no command " + word + ": what no job uses goes by itself, and inductorfs purge removes what is selected";
  }
  if (chosen.empty() && (word == "version" || word == "-V")) return "no " + word + ": inductorfs --version tells it";
  if (chosen.empty() && word == "help") return "no command help: inductorfs --help, or inductorfs COMMAND --help";
  if (chosen.empty() && word == "--json") return "--json follows the command: inductorfs status --json";
  for (const CLI::Option* option : chosen.empty() ? std::vector<CLI::Option*>() : chosen.front()->get_options()) {
    if (!option->get_positional() || option->empty()) continue;
    const std::string wrong = check_path(option->results().front());
    if (!wrong.empty()) return option->results().front() + ": " + wrong;
  }
  const std::string kind = is_option ? "no option " : chosen.empty() ? "no command " : "unexpected argument ";
  return kind + word.substr(0, word.find('=')) + config::suggestion(word.substr(0, word.find('=')), names);
}

CommandLine report(CLI::App& app, const CLI::ParseError& problem, bool json) {
  if (problem.get_exit_code() != 0) {
    const std::vector<std::string> words = app.remaining(true);
    return usage(app, words.empty() ? problem.what() : unknown_word(app, words.front()), json);
  }
  std::ostringstream out;
  std::ostringstream ignored;
  (void)app.exit(problem, out, ignored);  // the code is known: 0
  return {{}, nullptr, out.str(), {}, kExitDone};
}

}  // namespace

void give(const Words& words, CLI::App& app) {
  for (const KnownWord& word : words.all) {
    const auto add = [&](auto* place) {
      if constexpr (std::is_same_v<decltype(place), bool*>) return app.add_flag(word.name, *place, word.help);
      return app.add_option(word.name, *place, word.help);
    };
    CLI::Option* const option = std::visit(add, word.place)->required(word.required);
    if (!word.value.empty()) option->type_name(word.value);
    if (word.is_path) option->check(check_path);
    if (word.one_each) option->allow_extra_args(false);
    if (std::holds_alternative<int64_t*>(word.place)) option->check(CLI::Range(0, kMostSeconds));
    if (std::holds_alternative<uint64_t*>(word.place)) option->check(check_number);
    if (!word.among.empty()) option->check(CLI::IsMember(word.among));
    for (const std::string& other : word.excludes) option->excludes(app.get_option(other));
    if (word.given) option->each([to = word.given](const std::string& value) { to->push_back(value); });
  }
}

CommandLine parse_command_line(int argc, const char* const* argv) {
  CLI::App app(kAbout, "inductorfs");
  app.set_version_flag("--version", std::string("inductorfs ") + INDUCTORFS_VERSION);
  app.require_subcommand(1);
  std::vector<std::pair<CLI::App*, std::unique_ptr<Subcommand>>> commands;
  for (const CommandRow& known : all_commands()) {
    CLI::App* const parser = app.add_subcommand(std::string(known.name), std::string(known.help));
    if (known.help.empty()) parser->group("");
    Words words;
    commands.emplace_back(parser, known.make()).second->add_to(words);
    give(words, *parser);
  }
  const bool json = wants_json(argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return report(app, problem, json);
  }
  for (auto& [parser, command] : commands) {
    if (!parser->parsed()) continue;
    if (const Result<void> checked = command->check(); !checked) return usage(app, checked.error().what(), json);
    return {parser->get_name(), std::move(command), {}, {}, kExitDone};
  }
  return usage(app, "no command", json);
}

void hide_secrets(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    char* const scheme = std::strstr(argv[i], "://");
    char* const at = std::strrchr(argv[i], '@');
    if (scheme == nullptr || at == nullptr || at < scheme) continue;
    for (char* c = scheme + 3; c < at; ++c) *c = '*';
  }
}

}  // namespace inductorfs::cli
