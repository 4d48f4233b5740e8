// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "answers.h"
#include "command.h"
#include "command_line.h"

namespace inductorfs::cli {
namespace {

/// What may stand at one place of a command line. Immutable.
struct Value {
  enum class Kind { kNone, kAny, kFile, kDirectory, kMountpoint, kPathInMount, kChoice };
  Kind kind = Kind::kNone;
  std::string name;     ///< as the help shows it
  std::string choices;  ///< with spaces between them
};

/// CLI11 shows the words that a value may be one of as "NAME:{one,two}".
Value value_of(const CLI::Option& option, const std::string& command) {
  if (option.get_items_expected_max() == 0) return {};
  const std::string type = option.get_type_name();
  const size_t open = type.find('{');
  const size_t close = type.find('}', std::min(open, type.size()));
  Value value{Value::Kind::kAny, option.get_positional() ? option.get_name(true) : type.substr(0, type.find(':')), {}};
  if (open != std::string::npos && close != std::string::npos) {
    value.kind = Value::Kind::kChoice;
    value.choices = type.substr(open + 1, close - open - 1);
    std::replace(value.choices.begin(), value.choices.end(), ',', ' ');
  } else if (option.get_positional()) {
    const bool makes_one = command == "mount";
    if (value.name == "MOUNTPOINT") value.kind = makes_one ? Value::Kind::kDirectory : Value::Kind::kMountpoint;
    if (value.name == "PATH") value.kind = Value::Kind::kPathInMount;
  } else if (value.name == "FILE" || value.name == "PATH") {
    value.kind = Value::Kind::kFile;
  } else if (value.name == "DIR") {
    value.kind = Value::Kind::kDirectory;
  }
  return value;
}

/// In single quotes of a shell.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string escaped(const std::string& text, std::string_view special) {
  std::string result;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

std::vector<const CLI::App*> shown_commands(const CLI::App& app) {
  std::vector<const CLI::App*> shown;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (!command->get_description().empty()) shown.push_back(command);
  }
  return shown;
}

// ---- bash

constexpr const char* kBashStart = R"(# Completions of inductorfs for bash, printed by "inductorfs completion bash".

# Names of mounts are shown quoted and never evaluated, because every user may make one.
_inductorfs_mountpoints() {
  local root point rest quoted
  while read -r _ _ _ root point rest; do
    [[ $root == / && $rest == *' - fuse.inductorfs '* ]] || continue
    printf -v point %b "${point//\\/\\0}"
    printf -v quoted %q "$point"
    [[ $point == "$1"* || $quoted == "$1"* ]] && COMPREPLY+=("$quoted")
  done </proc/self/mountinfo
}

_inductorfs_files() {
  local found
  compopt -o filenames 2>/dev/null
  mapfile -t found < <(compgen "$1" -- "$2")
  COMPREPLY+=("${found[@]}")
}

_inductorfs() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= i
  local options= files=' ' directories=' ' others=' ' place= words=
  COMPREPLY=()
  # bash makes "--option=value" three words.
  if [[ $cur == = ]]; then
    cur=
  elif [[ $prev == = ]]; then
    prev=${COMP_WORDS[COMP_CWORD-2]}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    [[ ${COMP_WORDS[i]} == -* ]] || { command=${COMP_WORDS[i]}; break; }
  done
  case $command in
)";

constexpr const char* kBashEnd = R"(    *) return ;;
  esac
  case "$command $prev" in
@CHOICES@    *) ;;
  esac
  if [[ -n $words ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
  elif [[ $files == *" $prev "* ]]; then
    _inductorfs_files -f "$cur"
  elif [[ $directories == *" $prev "* ]]; then
    _inductorfs_files -d "$cur"
  elif [[ $others == *" $prev "* ]]; then
    return
  elif [[ $cur == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
  else
    case $place in
      mountpoint) _inductorfs_mountpoints "$cur" ;;
      path) _inductorfs_mountpoints "$cur"; [[ ${#COMPREPLY[@]} -gt 0 ]] || _inductorfs_files -f "$cur" ;;
      directory) _inductorfs_files -d "$cur" ;;
      *) mapfile -t COMPREPLY < <(compgen -W "$place" -- "$cur") ;;
    esac
  fi
}

complete -F _inductorfs inductorfs
)";

/// The parts of the case branch of one command.
struct BashBranch {
  std::string options;
  std::string files;
  std::string directories;
  std::string others;
  std::string place;
  std::string choices;  ///< branches of a second case, by command and option
};

void add_positional(const Value& value, BashBranch& branch) {
  if (!branch.place.empty()) return;  // completes the first only
  if (value.kind == Value::Kind::kMountpoint) branch.place = "mountpoint";
  if (value.kind == Value::Kind::kPathInMount) branch.place = "path";
  if (value.kind == Value::Kind::kDirectory) branch.place = "directory";
  if (value.kind == Value::Kind::kChoice) branch.place = value.choices;
}

BashBranch bash_branch(const CLI::App& command) {
  BashBranch branch;
  for (const CLI::Option* option : command.get_options()) {
    const Value value = value_of(*option, command.get_name());
    if (option->get_positional()) add_positional(value, branch);
    for (const std::string& name : names_of(*option)) {
      branch.options += (branch.options.empty() ? "" : " ") + name;
      if (value.kind == Value::Kind::kFile) branch.files += name + " ";
      if (value.kind == Value::Kind::kDirectory) branch.directories += name + " ";
      if (value.kind == Value::Kind::kAny) branch.others += name + " ";
      if (value.kind == Value::Kind::kChoice) {
        branch.choices +=
            "    " + quoted(command.get_name() + " " + name) + ") words=" + quoted(value.choices) + " ;;\n";
      }
    }
  }
  return branch;
}

std::string bash_completions(const CLI::App& app) {
  std::string top;
  std::string branches;
  std::string choices;
  for (const CLI::App* command : shown_commands(app)) {
    const BashBranch branch = bash_branch(*command);
    top += command->get_name() + " ";
    branches += "    " + command->get_name() + ") options=" + quoted(branch.options) +
                " files=" + quoted(" " + branch.files) + " directories=" + quoted(" " + branch.directories) +
                " others=" + quoted(" " + branch.others) + " place=" + quoted(branch.place) + " ;;\n";
    choices += branch.choices;
  }
  std::string end = kBashEnd;
  constexpr std::string_view kMark = "@CHOICES@";
  end.replace(end.find(kMark), kMark.size(), choices);
  return kBashStart + ("    '') words=" + quoted(top + "--help --version") + " ;;\n") + branches + end;
}

// ---- zsh

constexpr const char* kZshStart = R"(#compdef inductorfs
# Completions of inductorfs for zsh, printed by "inductorfs completion zsh".

_inductorfs_mountpoints() {
  local root point rest skip
  local -a points
  while read -r skip skip skip root point rest; do
    [[ $root == / && $rest == *' - fuse.inductorfs '* ]] && points+=("${(g:o:)point}")
  done </proc/self/mountinfo
  compadd -a points
}

_inductorfs_paths() { _inductorfs_mountpoints; _files }

_inductorfs() {
  local curcontext=$curcontext state line
  local -a commands
  _arguments -C '--help[print the help]' '--version[print the version]' '1: :->command' '*:: :->arguments'
  case $state in
    command)
      commands=(
)";

std::string zsh_action(const Value& value) {
  switch (value.kind) {
    case Value::Kind::kFile:
      return "_files";
    case Value::Kind::kDirectory:
      return "_files -/";
    case Value::Kind::kMountpoint:
      return "_inductorfs_mountpoints";
    case Value::Kind::kPathInMount:
      return "_inductorfs_paths";
    case Value::Kind::kChoice:
      return "(" + value.choices + ")";
    case Value::Kind::kNone:
    case Value::Kind::kAny:
      return " ";
  }
  return " ";
}

std::string zsh_branch(const CLI::App& command) {
  std::string words;
  size_t position = 0;
  for (const CLI::Option* option : command.get_options()) {
    const Value value = value_of(*option, command.get_name());
    const std::string takes = ":" + value.name + ":" + zsh_action(value);
    if (option->get_positional()) words += " \\\n          " + quoted(std::to_string(++position) + takes);
    for (const std::string& name : names_of(*option)) {
      const bool has_value = value.kind != Value::Kind::kNone;
      const bool long_name = name.starts_with("--");
      words += " \\\n          " + quoted("*" + name + (has_value && long_name ? "=" : "") + "[" +
                                          escaped(option->get_description(), "[]\\") + "]" + (has_value ? takes : ""));
    }
  }
  return "        " + command.get_name() + ") _arguments" + words + " ;;\n";
}

std::string zsh_completions(const CLI::App& app) {
  std::string text = kZshStart;
  std::string branches;
  for (const CLI::App* command : shown_commands(app)) {
    text += "        " + quoted(command->get_name() + ":" + escaped(command->get_description(), ":\\")) + "\n";
    branches += zsh_branch(*command);
  }
  return text + "      )\n      _describe -t commands command commands ;;\n    arguments)\n      case $words[1] in\n" +
         branches + "      esac ;;\n  esac\n}\n\n_inductorfs \"$@\"\n";
}

class CompletionCommand final : public Subcommand {
 public:
  [[nodiscard]] std::string_view name() const override { return "completion"; }
  [[nodiscard]] std::string_view help() const override { return "Print the completions of this program for a shell"; }
  void add_to(CLI::App& app) override {
    app.add_option("SHELL", shell_, "bash or zsh")->required()->check(CLI::IsMember({"bash", "zsh"}));
  }
  [[nodiscard]] int run(const config::Environment&) override {
    CLI::App app;
    const std::vector<std::unique_ptr<Subcommand>> commands = all_commands();
    add_commands(app, commands);
    return print(shell_ == "zsh" ? zsh_completions(app) : bash_completions(app));
  }

 private:
  std::string shell_;
};

}  // namespace

std::unique_ptr<Subcommand> completion_command() { return std::make_unique<CompletionCommand>(); }

}  // namespace inductorfs::cli
