// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "answer_text.h"
#include "answers.h"
#include "command.h"
#include "inductorfs/cli/run.h"
#include "inductorfs/places/mountpoint.h"
#include "inductorfs/places/own_mounts.h"
#include "user_caches.h"

namespace inductorfs::cli {
namespace {

using config::Json;

constexpr std::array<std::string_view, 5> kFormats{"sh", "docker", "systemd", "k8s", "json"};

/// For a POSIX shell.
std::string quoted(const std::string& text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:@+,";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

/// As systemd.exec(5) reads Environment=: quotes, and no % or backslash of its own.
std::string systemd_quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '%') result += '%';
    result += c;
  }
  return result + "\"";
}

/// A word of a command line in a unit: systemd.service(5) also replaces variables there.
std::string systemd_word(const std::string& text) {
  std::string result;
  for (const char c : systemd_quoted(text)) result += c == '$' ? std::string("$$") : std::string(1, c);
  return result;
}

std::string value_of(const std::string& root, const UserCache& cache) {
  return *cache.below == '\0' ? root : root + "/" + cache.below;
}

constexpr std::string_view kDirectoriesFirst =
    "Make the directories before an engine starts: what the cluster has is shown in a directory that exists, and vLLM "
    "reads before it makes one";

/// One of the variables, in this format, with what it does.
std::string variable_text(const UserCache& cache, const std::string& value, std::string_view format) {
  const std::string name = cache.variable;
  const std::string about = "# " + std::string(cache.why) + "\n";
  if (format == "docker") return "--env " + quoted(name + "=" + value) + "\n";
  if (format == "sh") return about + "export " + name + "=" + quoted(value) + "\n";
  if (format == "systemd") return about + "Environment=" + systemd_quoted(name + "=" + value) + "\n";
  return about + "- name: " + name + "\n  value: " + Json(value).dump() + "\n";
}

/// The command that makes the directories, as this format can have it.
std::string directories_text(const Json& directories, std::string_view format) {
  if (format == "docker") return {};  // its lines are words of a command line
  std::string text = "# " + std::string(kDirectoriesFirst) + "\n";
  std::string words;
  for (const Json& directory : directories) {
    const auto path = directory.get<std::string>();
    words += format == "k8s" ? ", " + Json(path).dump() : " " + (format == "sh" ? quoted(path) : systemd_word(path));
  }
  if (format == "sh") return text + "mkdir -p" + words + "\n";
  if (format == "systemd") return text + "ExecStartPre=mkdir -p" + words + "\n";
  return text + "# (an init container with the pod's user):\n# command: [mkdir, -p" + words + "]\n";
}

class EnvCommand final : public Subcommand {
 public:
  [[nodiscard]] std::string_view name() const override { return "env"; }
  [[nodiscard]] std::string_view help() const override {
    return "Print the variables that put a user's compile caches into a mount";
  }
  void add_to(CLI::App& app) override {
    add_mountpoint(app, path_);
    app.add_option("--root", root_,
                   "use this directory of the mount [the user's name in a shared mount, else the mount]")
        ->type_name("NAME");
    app.add_option("--format", format_,
                   "print them for a shell (sh), docker, a unit of systemd, a pod (k8s) or as json [sh]")
        ->type_name("FORMAT")
        ->check(CLI::IsMember(std::vector<std::string>(kFormats.begin(), kFormats.end())));
  }
  [[nodiscard]] Result<void> check() const override {
    const bool leads_out = !root_.empty() && config::absolute_path(root_, "/") != "/" + root_;
    if (leads_out) return fail(ErrorCode::kInvalid, "--root: give a directory below the mount, without \"..\"");
    return {};
  }
  [[nodiscard]] int run(const config::Environment& environment) override {
    const std::string mountpoint = absolute(path_);
    const std::vector<MountEntry> table = read_mount_table();
    // By the table: in a container nobody sees the daemon's socket.
    const MountEntry* const mount = places::find_mount_of(table, mountpoint);
    if (mount == nullptr || !mount->is_ours()) {
      return fail_with(
          {ErrorCode::kNotFound, "no inductorfs mount: " + mountpoint + ": \"inductorfs status\" lists all mounts"});
    }
    std::string root = mountpoint;
    if (!root_.empty()) root += "/" + root_;
    const config::User user = config::current_user(environment);
    const auto owner = fuse_user_of(*mount);
    const bool is_shared = owner && *owner != user.uid;
    // LOGNAME may say anything.
    const bool is_plain = !user.name.empty() && user.name.find('/') == std::string::npos && user.name.front() != '.';
    if (root_.empty() && is_shared) root += "/" + (is_plain ? user.name : std::to_string(user.uid));
    return print(variables_text(root, format_));
  }

 private:
  std::string path_;
  std::string root_;
  std::string format_ = "sh";
};

}  // namespace

std::string variables_text(const std::string& root, std::string_view format) {
  Json variables = Json::object();
  Json why = Json::object();
  Json not_set = Json::object();
  Json directories = Json::array();
  std::string text = format == "k8s" ? "env:\n" : "";
  std::string left_alone;
  for (const UserCache& cache : user_caches()) {
    if (cache.below == nullptr) {
      not_set[cache.variable] = cache.why;
      left_alone += "# " + std::string(cache.variable) + " is not set: " + std::string(cache.why) + "\n";
      continue;
    }
    const std::string value = value_of(root, cache);
    variables[cache.variable] = value;
    why[cache.variable] = cache.why;
    directories.push_back(value);
    text += variable_text(cache, value, format);
  }
  if (format == "docker") return text;
  if (format != "json") return text + left_alone + directories_text(directories, format);
  return config::to_pretty(
             Json{{"variables", variables}, {"why", why}, {"not_set", not_set}, {"directories", directories}}) +
         "\n";
}

std::unique_ptr<Subcommand> env_command() { return std::make_unique<EnvCommand>(); }

}  // namespace inductorfs::cli
