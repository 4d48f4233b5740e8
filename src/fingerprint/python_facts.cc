// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "child.h"
#include "facts.h"
#include "owners.h"
#include "python_files.h"

namespace inductorfs::fingerprint {
namespace {

using Json = nlohmann::json;

/// An interpreter looks in a handful of folders, and a fingerprint has a limit of its own.
constexpr size_t kDetailsLimit = size_t{64} << 10;

/// Finds the packages and does not import them: importing torch takes seconds and touches the cache directory. Run with
/// -I, which drops the current directory, PYTHONPATH (ours says nothing about the job's) and the user's site-packages;
/// the latter are put back where an ordinary start outside a virtual environment has them.
constexpr const char* kScript = R"(
import importlib.machinery as machinery, importlib.util, json, os, site, sys, sysconfig
if sys.prefix == sys.base_prefix and not os.environ.get("PYTHONNOUSERSITE"):
    user = site.getusersitepackages()
    if os.path.isdir(user) and user not in sys.path:
        at = [i for i, p in enumerate(sys.path) if p.endswith(("site-packages", "dist-packages"))]
        sys.path.insert(at[0] if at else len(sys.path), user)
def folder(name):
    spec = importlib.util.find_spec(name)
    return os.path.dirname(os.path.realpath(spec.origin)) if spec is not None and spec.has_location else ""
print(json.dumps({
    "executable": sys.executable,
    "implementation": sys.implementation.name,
    "version": "%d.%d" % sys.version_info[:2],
    "soabi": sysconfig.get_config_var("SOABI") or "",
    "extensions": machinery.EXTENSION_SUFFIXES,
    "torch": folder("torch"),
    "triton": folder("triton"),
    "prefix": sys.prefix,
    "path": [p for p in sys.path if p],
}))
)";

std::string environment(const char* name) {
  const char* value = std::getenv(name);  // probe() runs before anything changes the environment
  return value == nullptr ? std::string() : std::string(value);
}

std::string interpreter(const ProbeOptions& options) {
  if (!options.python.empty()) return options.python;
  const std::string active = environment("VIRTUAL_ENV");
  return active.empty() ? "python3" : active + "/bin/python";
}

/// Where the interpreter would look for the user's own packages; empty when it would not.
std::string home_of_packages() {
  if (!environment("PYTHONNOUSERSITE").empty()) return {};
  std::string home = environment("HOME");
  return home.empty() && geteuid() == 0 ? "/root" : home;  // a service has no HOME
}

/// Why a program failed, in its words; other programs than Python quote what they were to run.
std::string complaint(const std::string& err) {
  constexpr size_t kShown = 500;
  const bool quotes = err.find("import importlib.machinery as machinery") != std::string::npos;
  return quotes ? "it is no Python interpreter" : err.substr(0, kShown);
}

Result<PythonFacts> parse(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  const auto broken = [] { return fail(ErrorCode::kInvalid, "the interpreter's answer is not what was asked for"); };
  if (!json.is_object()) return broken();
  PythonFacts facts;
  const std::pair<const char*, std::string*> texts[] = {
      {"executable", &facts.executable}, {"implementation", &facts.implementation},
      {"version", &facts.version},       {"soabi", &facts.soabi},
      {"torch", &facts.torch},           {"triton", &facts.triton}};
  for (const auto& [name, out] : texts) {
    const auto found = json.find(name);
    if (found == json.end() || !found->is_string()) return broken();
    *out = found->get<std::string>();
  }
  const auto extensions = json.find("extensions");
  if (extensions == json.end() || !extensions->is_array()) return broken();
  for (const Json& suffix : *extensions) {
    if (!suffix.is_string()) return broken();
    facts.extensions.push_back(suffix.get<std::string>());
  }
  const auto path = json.find("path");
  for (const Json& folder : path == json.end() ? Json::array() : *path) {
    if (folder.is_string()) facts.path.push_back(folder.get<std::string>());
  }
  return facts;
}

bool is_same_file(const std::string& one, const std::string& other) {
  struct stat a {};
  struct stat b {};
  return stat(one.c_str(), &a) == 0 && stat(other.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/// What the answer depends on: the interpreter, its environment's file, and in each directory of its path the directory
/// itself (a package comes or goes) and the files that extend the path.
std::vector<std::string> watched_files(const std::string& program, const Json& answer) {
  std::vector<std::string> files = {program};
  const auto add_if_there = [&files](std::string file) {
    std::error_code error;
    if (std::filesystem::exists(file, error)) files.push_back(std::move(file));
  };
  const auto prefix = answer.find("prefix");
  if (prefix != answer.end() && prefix->is_string()) add_if_there(prefix->get<std::string>() + "/pyvenv.cfg");
  const auto path = answer.find("path");
  if (path == answer.end() || !path->is_array()) return {};
  for (const Json& entry : *path) {
    if (!entry.is_string()) return {};
    const auto folder = entry.get<std::string>();
    add_if_there(folder);
    for (const char* name : {"/sitecustomize.py", "/usercustomize.py"}) add_if_there(folder + name);
    std::error_code error;
    for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
      if (at->path().extension() == ".pth") files.push_back(at->path().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// An answer of an earlier run, remembered until something that it depends on changes. Starting an interpreter costs
/// more than all other facts together once their keys are remembered. Needs external synchronisation.
class Remembered {
 public:
  Remembered(std::string program, KeyMemory& memory) : memory_(memory), program_(std::move(program)) {
    name_ = program_ + " " + environment("PYTHONNOUSERSITE") + " " + environment("HOME");
  }
  [[nodiscard]] std::optional<std::string> find() const {
    const auto list = memory_.find("python files " + name_, "");
    if (!list) return std::nullopt;
    std::vector<std::string> files;
    for (size_t at = 0; at < list->size();) {
      const size_t end = std::min(list->find('\n', at), list->size());
      files.push_back(list->substr(at, end - at));
      at = end + 1;
    }
    const auto manifest = manifest_of(files);
    return manifest ? memory_.find("python " + name_, manifest->digest) : std::nullopt;
  }
  void keep(const std::string& answer) {
    const Json json = Json::parse(answer, nullptr, false);
    const auto executable = json.is_object() ? json.find("executable") : json.end();
    // A script that chooses an interpreter by more than we see (pyenv's shims) is asked each time.
    if (!json.is_object() || executable == json.end() || !executable->is_string() ||
        !is_same_file(program_, executable->get<std::string>())) {
      return;
    }
    const std::vector<std::string> files = watched_files(program_, json);
    const auto manifest = manifest_of(files);
    if (files.empty() || !manifest || manifest->too_fresh) return;
    std::string list;
    for (const std::string& file : files) list += file + "\n";
    memory_.keep("python files " + name_, "", list);
    memory_.keep("python " + name_, manifest->digest, answer);
  }

 private:
  KeyMemory& memory_;
  std::string program_;
  std::string name_;
};

}  // namespace

Result<PythonFacts> learn_python(const ProbeOptions& options, KeyMemory& memory) {
  const std::string python = interpreter(options);
  const std::string program = program_file(python);
  struct stat status {};
  if (program.empty() || stat(program.c_str(), &status) != 0) {
    return fail(ErrorCode::kNotFound, python + ": no such program");
  }
  PythonFiles files = look_at_python(program, home_of_packages());
  const bool moved = geteuid() != 0 && !environment("PYTHONUSERBASE").empty();
  if (files.facts && !moved) return std::move(*files.facts);
  Remembered remembered(program, memory);
  if (const auto known = remembered.find()) {
    if (auto facts = parse(*known)) return facts;
  }
  Owners owners;
  if (geteuid() == 0) {
    INDUCTORFS_TRY_ASSIGN(auto all, owners_of(files));
    owners = std::move(all);
  }
  const std::string quiet = environment("PYTHONNOUSERSITE");
  INDUCTORFS_TRY_ASSIGN(auto answer, run_as_owner({program, "-I", "-B", "-c", kScript}, owners, options.deadline,
                                                  {"PYTHONNOUSERSITE=" + quiet}));
  if (answer.exit_code != 0) {
    return fail(ErrorCode::kUnavailable,
                python + " failed with code " + std::to_string(answer.exit_code) + ": " + complaint(answer.err));
  }
  auto facts = parse(answer.out);
  if (facts) remembered.keep(answer.out);
  return facts;
}

Fact python_fact(const Result<PythonFacts>& python) {
  if (!python) return unknown_fact(python.error().what() + "; name a Python interpreter with --python");
  const std::string source = python->executable;
  if (python->soabi.empty()) return unknown_fact("the interpreter has no SOABI", source);
  Fact fact = known_fact(
      canonical({{"implementation", python->implementation}, {"soabi", python->soabi}, {"version", python->version}}),
      source);
  Lines lines = {{"executable", python->executable},
                 {"torch", python->torch.empty() ? "none" : python->torch},
                 {"triton", python->triton.empty() ? "none" : python->triton}};
  for (const std::string& suffix : python->extensions) lines.emplace_back("extension", suffix);
  fact.details = canonical(lines);
  for (const std::string& folder : python->path) {
    if (fact.details.size() + folder.size() > kDetailsLimit) break;
    add_line(fact.details, kSiteKey, folder);
  }
  return fact;
}

}  // namespace inductorfs::fingerprint
