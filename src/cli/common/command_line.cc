// SPDX-License-Identifier: Apache-2.0
#include "cli/common/command_line.h"

#include <cstring>

#include "cli/common/answers.h"
#include "inductorfs/base/log.h"
#include "inductorfs/cli/run.h"
#include "inductorfs/config/paths.h"
#include "inductorfs/config/text.h"

namespace inductorfs::cli {
namespace {

constexpr const char* kAbout =
    "A compile cache for torch.compile and Triton that the nodes of a cluster share, as a file system.";

CommandLine usage(const CLI::App& app, std::string_view what, bool json) {
  std::string command = "inductorfs";
  for (const CLI::App* chosen : app.get_subcommands()) command += " " + chosen->get_name();
  const std::string text = "usage: " + config::printable(log::redact_url(what)) + ": see " + command + " --help";
  const std::string answer = json ? config::to_pretty(error_json({ErrorCode::kInvalid, text})) + "\n" : "";
  return {nullptr, nullptr, "inductorfs: " + text + "\n", answer, kExitUsage};
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
  return {nullptr, nullptr, out.str(), {}, kExitDone};
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
  auto parser = std::make_unique<CLI::App>(kAbout, "inductorfs");
  CLI::App& app = *parser;
  app.set_version_flag("--version", std::string("inductorfs ") + INDUCTORFS_VERSION);
  app.require_subcommand(1);
  std::vector<std::pair<CLI::App*, std::unique_ptr<Subcommand>>> commands;
  for (const CommandRow& known : all_commands()) {
    CLI::App* const words = app.add_subcommand(std::string(known.name), std::string(known.help));
    if (known.help.empty()) words->group("");
    commands.emplace_back(words, known.make()).second->add_to(*words);
  }
  const bool json = wants_json(argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return report(app, problem, json);
  }
  for (auto& [words, command] : commands) {
    if (!words->parsed()) continue;
    if (const Result<void> checked = command->check(); !checked) return usage(app, checked.error().what(), json);
    return {std::move(parser), std::move(command), {}, {}, kExitDone};
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
