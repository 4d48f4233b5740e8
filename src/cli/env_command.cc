// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "answer_text.h"
#include "answers.h"
#include "command.h"
#include "inductorfs/cli/run.h"
#include "inductorfs/places/mountpoint.h"
#include "inductorfs/places/own_mounts.h"

namespace inductorfs::cli {
namespace {

using config::Json;

constexpr std::array<std::string_view, 5> kFormats{"sh", "docker", "systemd", "k8s", "json"};

/// A variable that leads a compile cache into the mount.
struct CacheVariable {
  const char* name;
  const char* below;  ///< the directory below the cache root; empty: the root itself
  const char* why;
};

constexpr std::array kVariables{
    CacheVariable{"TORCHINDUCTOR_CACHE_DIR", "",
                  "torch.compile: graphs, kernels, generated code and tuning results are shared"},
    CacheVariable{"TRITON_CACHE_DIR", "triton_cache", "Triton, with torch.compile and without it: kernels are shared"},
};

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

std::string value_of(const std::string& root, const CacheVariable& variable) {
  return *variable.below == '\0' ? root : root + "/" + variable.below;
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
  Json all = Json::object();
  std::string text = format == "k8s" ? "env:\n" : "";
  for (const CacheVariable& variable : kVariables) {
    const std::string value = value_of(root, variable);
    const std::string given = std::string(variable.name) + "=" + value;
    if (format == "json") {
      all[variable.name] = value;
    } else if (format == "sh") {
      text += "# " + std::string(variable.why) + "\nexport " + variable.name + "=" + quoted(value) + "\n";
    } else if (format == "docker") {
      text += "--env " + quoted(given) + "\n";
    } else if (format == "systemd") {
      text += "# " + std::string(variable.why) + "\nEnvironment=" + systemd_quoted(given) + "\n";
    } else {
      text +=
          "# " + std::string(variable.why) + "\n- name: " + variable.name + "\n  value: " + Json(value).dump() + "\n";
    }
  }
  return format == "json" ? config::to_pretty(all) + "\n" : text;
}

std::unique_ptr<Subcommand> env_command() { return std::make_unique<EnvCommand>(); }

}  // namespace inductorfs::cli
