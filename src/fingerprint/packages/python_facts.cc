// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include "fingerprint/common/child.h"
#include "fingerprint/facts/facts.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/regular_file.h"
#include "inductorfs/base/text.h"

namespace inductorfs::fingerprint {
namespace {

namespace fs = std::filesystem;

/// An interpreter looks in a handful of folders, and a fingerprint has a limit of its own.
constexpr size_t kDetailsLimit = size_t{64} << 10;
constexpr uint64_t kTextLimit = uint64_t{1} << 20;
constexpr uint64_t kProgramLimit = uint64_t{1} << 30;
constexpr size_t kPathLimit = 256;
/// Minor versions of Python 3 whose rules are those below.
constexpr int kOldestMinor = 8;
constexpr int kNewestMinor = 14;

std::string environment(const char* name) {
  const char* value = std::getenv(name);  // probe() runs before anything changes the environment
  return value == nullptr ? std::string() : std::string(value);
}

std::string interpreter(const ProbeOptions& options) {
  if (!options.python.empty()) return options.python;
  const std::string active = environment("VIRTUAL_ENV");
  return active.empty() ? "python3" : active + "/bin/python";
}

/// Where the user's own packages are; empty when they are not looked for.
std::string user_base() {
  if (!environment("PYTHONNOUSERSITE").empty()) return {};
  if (std::string base = environment("PYTHONUSERBASE"); !base.empty()) return base;
  std::string home = environment("HOME");
  if (home.empty() && geteuid() == 0) home = "/root";  // a service has no HOME
  return home.empty() ? home : home + "/.local";
}

/// A regular file's text; empty when there is none. A FIFO of that name is not waited for.
std::string text_of(const std::string& path) { return read_regular(path, kTextLimit).value_or(""); }

bool is_file(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

std::string real_path(const std::string& path) {
  std::error_code error;
  const auto real = fs::canonical(path, error);
  return error ? std::string() : real.string();
}

std::string lowered(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c | 32 : c; });
  return lower;
}

template <typename Take>
void for_each_line(std::string_view text, Take take) {
  while (!text.empty()) take(take_part(text, '\n'));
}

/// 11 for "3.11" and "3.11.2", 0 for anything that is no version of Python 3.
int minor_of(std::string_view version) {
  if (!version.starts_with("3.")) return 0;
  int minor = 0;
  const char* const end = version.data() + version.size();
  const auto [rest, error] = std::from_chars(version.data() + 2, end, minor);
  return error == std::errc() && (rest == end || *rest == '.') ? minor : 0;
}

/// Looks at one interpreter: reads pyvenv.cfg, the standard library's _sysconfigdata, and the folders of packages with
/// their .pth files, as CPython 3.8 to 3.14 do at their start (Modules/getpath.py, Lib/site.py). It runs nothing,
/// because a .pth file and a sitecustomize.py are code of any user who can write them. Needs external synchronisation.
class Look {
 public:
  /// `program` is an absolute path, `user_base` as above.
  Look(std::string program, std::string user_base) : program_(std::move(program)), user_base_(std::move(user_base)) {}

  Result<PythonFacts> take() {
    const auto unclear = [this](const char* why) { return fail(ErrorCode::kInvalid, program_ + ": " + why); };
    real_ = real_path(program_);
    if (real_.empty() || !is_elf(real_)) return unclear("it is no program, or a script");
    read_configuration();
    const int minor = version();
    if (minor < kOldestMinor || minor > kNewestMinor) return unclear("it is no Python interpreter that is known");
    const std::string name = "python3." + std::to_string(minor);
    if (!find_library(name)) return unclear("its standard library is not found");
    if (!read_abi(minor)) return unclear("its ABI is not known");
    facts_.executable = program_;
    facts_.implementation = "cpython";
    facts_.version = "3." + std::to_string(minor);
    facts_.extensions = {"." + facts_.soabi + ".so", ".abi3.so", ".so"};
    add_sites(name);
    facts_.torch = find_package("torch");
    facts_.triton = find_package("triton");
    return std::move(facts_);
  }

 private:
  static bool is_elf(const std::string& path) {
    const auto file = open_regular(path, kProgramLimit);
    std::string head(4, '\0');
    const auto got = file ? pread_full(file->get(), head.data(), head.size(), 0) : fail(ErrorCode::kNotFound);
    return got && *got == head.size() &&
           head ==
               "\x7f"
               "ELF";
  }

  /// A virtual environment's file, beside the program or above it.
  void read_configuration() {
    const std::string folder = parent_of(program_);
    for (const std::string& at : {folder, parent_of(folder)}) {
      for_each_line(text_of(at + "/pyvenv.cfg"), [this](std::string_view line) {
        const size_t equals = line.find('=');
        if (equals == std::string_view::npos) return;
        configuration_[lowered(trimmed(line.substr(0, equals)))] = trimmed(line.substr(equals + 1));
      });
      if (configuration_["home"].empty()) continue;
      prefix_ = parent_of(folder);
      return;
    }
  }

  int version() {
    const std::string name = fs::path(real_).filename().string();
    if (const int minor = minor_of(name.starts_with("python") ? name.substr(6) : ""); minor > 0) return minor;
    const int minor = minor_of(configuration_["version"]);
    return minor > 0 ? minor : minor_of(configuration_["version_info"]);
  }

  /// The standard library is below the nearest directory above the interpreter that has it.
  bool find_library(const std::string& python) {
    std::vector<std::string> starts;
    if (!prefix_.empty()) starts.push_back(configuration_["home"]);
    starts.push_back(parent_of(real_));
    for (const std::string& start : starts) {
      for (base_ = start; base_.size() > 1; base_ = parent_of(base_)) {
        library_ = base_ + "/lib/" + python;
        if (is_file(library_ + "/os.py")) return true;
      }
    }
    return false;
  }

  /// SOABI and PLATLIBDIR as the build wrote them; every such file must say the same.
  bool read_abi(int minor) {
    std::error_code error;
    for (fs::directory_iterator at(library_, error), end; !error && at != end; at.increment(error)) {
      const std::string name = at->path().filename().string();
      if (!name.starts_with("_sysconfigdata_") || !name.ends_with(".py")) continue;
      const std::string text = text_of(at->path().string());
      const std::string soabi = quoted_after(text, "'SOABI': '");
      if (soabi.empty() || (!facts_.soabi.empty() && facts_.soabi != soabi)) return false;
      facts_.soabi = soabi;
      if (const std::string folder = quoted_after(text, "'PLATLIBDIR': '"); !folder.empty()) platform_library_ = folder;
    }
    // Debug and free-threaded builds (cpython-313t-...) have other suffixes.
    return facts_.soabi.starts_with("cpython-3" + std::to_string(minor) + "-");
  }

  static std::string quoted_after(std::string_view text, std::string_view before) {
    const size_t at = text.find(before);
    if (at == std::string_view::npos) return {};
    text.remove_prefix(at + before.size());
    const size_t end = text.find('\'');
    return end == std::string_view::npos ? std::string() : std::string(text.substr(0, end));
  }

  /// As main() of Lib/site.py.
  void add_sites(const std::string& python) {
    const auto shared = configuration_.find("include-system-site-packages");
    if (!prefix_.empty()) add_sites_below(prefix_, python);
    if (!prefix_.empty() && shared != configuration_.end() && lowered(shared->second) != "true") return;
    if (!user_base_.empty()) add_site(user_base_ + "/lib/" + python + "/site-packages");
    add_sites_below(base_, python);
  }

  /// As getsitepackages() of Lib/site.py, and of Debian's.
  void add_sites_below(const std::string& prefix, const std::string& python) {
    const bool is_debian = text_of(library_ + "/site.py").find("dist-packages") != std::string::npos;
    if (!is_debian || !prefix_.empty()) {
      add_site(prefix + "/" + platform_library_ + "/" + python + "/site-packages");
      add_site(prefix + "/lib/" + python + "/site-packages");
    }
    if (!is_debian) return;
    add_site(prefix + "/local/lib/" + python + "/dist-packages");
    add_site(prefix + "/lib/python3/dist-packages");
    add_site(prefix + "/lib/" + python + "/dist-packages");
  }

  bool add_path(const std::string& folder) {
    const bool known = std::find(facts_.path.begin(), facts_.path.end(), folder) != facts_.path.end();
    if (known || facts_.path.size() >= kPathLimit || !is_folder(folder)) return false;
    facts_.path.push_back(folder);
    return true;
  }

  void add_site(const std::string& site) {
    if (!add_path(site)) return;
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator at(site, error), end; !error && at != end; at.increment(error)) {
      if (at->path().extension() == ".pth") names.push_back(at->path().filename().string());
    }
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      for_each_line(text_of(site + "/" + name), [&](std::string_view line) {
        const std::string text(trimmed(line));
        if (line.starts_with("import ") || line.starts_with("import\t")) {
          if (may_add_packages(site, name, text)) {
            facts_.doubt = site + "/" + name + " runs code, which may say where it is";
          }
        } else if (!text.empty() && text.front() != '#') {
          add_path((fs::path(site) / text).lexically_normal().string());
        }
      });
    }
  }

  /// Says whether a line of code in a .pth file may lead to packages. Those of setuptools and virtualenv do not, and
  /// the finder of a `pip install -e` says itself where they are.
  bool may_add_packages(const std::string& site, const std::string& name, const std::string& line) {
    if (name == "distutils-precedence.pth" || name == "_virtualenv.pth") return false;
    if (!name.starts_with("__editable__.")) return true;
    const std::string module = line.substr(0, line.find(';')).substr(std::string_view("import ").size());
    const std::string finder = text_of(site + "/" + module + ".py");
    finders_ += finder;
    return finder.empty();
  }

  /// The package's folder without links, as dirname(realpath(spec.origin)); empty when no folder of the path has it.
  std::string find_package(const std::string& name) {
    std::vector<std::string> suffixes = facts_.extensions;
    suffixes.insert(suffixes.end(), {".py", ".pyc"});
    for (const std::string& folder : facts_.path) {
      const std::string base = folder + "/" + name;
      for (const std::string& suffix : suffixes) {
        const std::string origin = base + "/__init__" + suffix;
        if (is_file(origin)) return parent_of(real_path(origin));
      }
      for (const std::string& suffix : suffixes) {
        if (!is_file(base + suffix)) continue;
        facts_.doubt = base + suffix + " is no folder of a package";
        return {};
      }
    }
    if (finders_.find("'" + name + "'") == std::string::npos) return {};
    std::string mapped = real_path(quoted_after(finders_, "'" + name + "': '"));
    if (is_file(mapped + "/__init__.py")) return mapped;
    facts_.doubt = "a finder of pip install -e says where it is, and is not understood";
    return {};
  }

  std::string program_;
  std::string user_base_;
  std::string real_;
  std::string prefix_;  ///< of the virtual environment; empty: there is none
  std::string base_;    ///< of the interpreter's installation
  std::string library_;
  std::string platform_library_ = "lib";
  std::map<std::string, std::string> configuration_;  ///< of pyvenv.cfg
  std::string finders_;                               ///< texts of what pip install -e has left
  PythonFacts facts_;
};

}  // namespace

Result<PythonFacts> learn_python(const ProbeOptions& options) {
  const std::string python = interpreter(options);
  const std::string program = program_file(python);
  struct stat status {};
  if (program.empty() || stat(program.c_str(), &status) != 0) {
    return fail(ErrorCode::kNotFound, python + ": no such program");
  }
  return Look(program, user_base()).take();
}

Fact python_fact(const Result<PythonFacts>& python) {
  if (!python) return unknown_fact(python.error().what() + "; name a Python interpreter with --python");
  const std::string source = python->executable;
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
