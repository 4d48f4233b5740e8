// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "child.h"
#include "facts.h"

namespace inductorfs::fingerprint {
namespace {

using Json = nlohmann::json;

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
  return facts;
}

}  // namespace

Result<PythonFacts> learn_python(const ProbeOptions& options) {
  const std::string python = interpreter(options);
  auto answer = run_child({python, "-I", "-B", "-c", kScript}, options.deadline);
  if (!answer) return fail(std::move(answer).error());
  if (answer->exit_code != 0) {
    return fail(ErrorCode::kUnavailable,
                python + " failed with code " + std::to_string(answer->exit_code) + ": " + answer->err.substr(0, 500));
  }
  return parse(answer->out);
}

Fact python_fact(const Result<PythonFacts>& python) {
  if (!python) return unknown_fact(python.error().what() + "; name the interpreter with --python");
  const std::string source = python->executable;
  if (python->soabi.empty()) return unknown_fact("the interpreter has no SOABI", source);
  return known_fact(
      canonical({{"implementation", python->implementation}, {"soabi", python->soabi}, {"version", python->version}}),
      source);
}

}  // namespace inductorfs::fingerprint
