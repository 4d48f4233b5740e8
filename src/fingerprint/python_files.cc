// SPDX-License-Identifier: Apache-2.0
#include "python_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/regular_file.h"
#include "inductorfs/base/text.h"

namespace inductorfs::fingerprint {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kTextLimit = uint64_t{1} << 20;
constexpr uint64_t kProgramLimit = uint64_t{1} << 30;
constexpr size_t kPathLimit = 256;
/// Minor versions of Python 3 whose rules are those below; others are asked.
constexpr int kOldestMinor = 8;
constexpr int kNewestMinor = 14;

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

std::string parent_of(const std::string& path) { return fs::path(path).parent_path().string(); }

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

/// Looks at one interpreter. Needs external synchronisation.
class Look {
 public:
  Look(std::string program, std::string home) : program_(std::move(program)), home_(std::move(home)) {}

  PythonFiles take() {
    files_.programs.push_back(program_);
    files_.folders.push_back(parent_of(program_));
    files_.doubt = doubt();
    if (files_.doubt.empty()) files_.facts = std::move(facts_);
    return std::move(files_);
  }

 private:
  std::string doubt() {
    real_ = real_path(program_);
    if (real_.empty() || !is_elf(real_)) return "it is no program but a script";
    files_.folders.push_back(parent_of(real_));
    read_configuration();
    const int minor = version();
    if (minor < kOldestMinor || minor > kNewestMinor) return "its version is not known";
    if (!find_library("python3." + std::to_string(minor))) return "its standard library is not found";
    if (!read_abi(minor)) return "its ABI is not known";
    facts_.executable = program_;
    facts_.implementation = "cpython";
    facts_.version = "3." + std::to_string(minor);
    facts_.extensions = {"." + facts_.soabi + ".so", ".abi3.so", ".so"};
    add_sites("python3." + std::to_string(minor));
    facts_.path = path_;
    if (shares_sites_) return "it takes packages of the interpreter that it was made from, too";
    for (const auto& [name, folder] : {std::pair{"torch", &facts_.torch}, std::pair{"triton", &facts_.triton}}) {
      *folder = find_package(name);
      if (strange_ || (folder->empty() && runs_code_)) return std::string("where ") + name + " is, a hook may say";
    }
    return {};
  }

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
      const std::string text = text_of(at + "/pyvenv.cfg");
      if (text.empty()) continue;
      for_each_line(text, [this](std::string_view line) {
        const size_t equals = line.find('=');
        if (equals == std::string_view::npos) return;
        std::string key(trimmed(line.substr(0, equals)));
        std::transform(key.begin(), key.end(), key.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c | 32 : c; });
        configuration_[key] = trimmed(line.substr(equals + 1));
      });
      if (configuration_["home"].empty()) continue;
      files_.programs.push_back(at + "/pyvenv.cfg");
      prefix_ = parent_of(folder);
      files_.folders.push_back(at);
      files_.folders.push_back(configuration_["home"]);
      shares_sites_ = configuration_["include-system-site-packages"] != "false";
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
      for (std::string at = start; at.size() > 1; at = parent_of(at)) {
        library_ = at + "/lib/" + python;
        if (!is_file(library_ + "/os.py")) continue;
        if (prefix_.empty()) prefix_ = at;
        for (const char* part : {"", "/lib-dynload", "/encodings", "/importlib", "/collections", "/json", "/re"}) {
          if (is_folder(library_ + part)) files_.packages.push_back(library_ + part);
        }
        return true;
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

  /// As getsitepackages() of Lib/site.py, and of Debian's.
  void add_sites(const std::string& python) {
    const bool is_environment = !configuration_["home"].empty();
    const bool is_debian = text_of(library_ + "/site.py").find("dist-packages") != std::string::npos;
    if (!is_environment && !home_.empty()) add_path(home_ + "/.local/lib/" + python + "/site-packages");
    std::vector<std::string> sites;
    if (!is_debian || is_environment) {
      sites.push_back("/" + platform_library_ + "/" + python + "/site-packages");
      sites.push_back("/lib/" + python + "/site-packages");
    }
    if (is_debian) {
      for (const char* folder : {"/local/lib/", "/lib/"}) {
        sites.push_back(folder + python + "/dist-packages");
        if (folder == std::string_view("/local/lib/")) sites.emplace_back("/lib/python3/dist-packages");
      }
    }
    for (const std::string& site : sites) add_site(prefix_ + site);
  }

  bool add_path(const std::string& folder) {
    const bool known = std::find(path_.begin(), path_.end(), folder) != path_.end();
    if (known || path_.size() >= kPathLimit || !is_folder(folder)) return false;
    path_.push_back(folder);
    files_.packages.push_back(folder);
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
      files_.programs.push_back(site + "/" + name);
      // These two add no place of packages: setuptools', virtualenv's.
      const bool harmless = name == "distutils-precedence.pth" || name == "_virtualenv.pth";
      for_each_line(text_of(site + "/" + name), [&](std::string_view line) {
        const std::string text(trimmed(line));
        if (line.starts_with("import ") || line.starts_with("import\t")) {
          runs_code_ = runs_code_ || !harmless;
        } else if (!text.empty() && text.front() != '#') {
          add_path((fs::path(site) / text).lexically_normal().string());
        }
      });
    }
  }

  /// The package's folder without links, as dirname(realpath(spec.origin)); empty when no folder of the path has it.
  std::string find_package(const std::string& name) {
    std::vector<std::string> suffixes = facts_.extensions;
    suffixes.insert(suffixes.end(), {".py", ".pyc"});
    for (const std::string& folder : path_) {
      const std::string base = folder + "/" + name;
      for (const std::string& suffix : suffixes) {
        const std::string origin = base + "/__init__" + suffix;
        if (is_file(origin)) return parent_of(real_path(origin));
        strange_ = strange_ || is_file(base + suffix);
      }
      if (strange_) return {};
    }
    return {};
  }

  std::string program_;
  std::string home_;
  std::string real_;
  std::string prefix_;
  std::string library_;
  std::string platform_library_ = "lib";
  std::map<std::string, std::string> configuration_;  ///< of pyvenv.cfg
  std::vector<std::string> path_;                     ///< folders of packages, in order
  bool shares_sites_ = false;
  bool runs_code_ = false;  ///< some .pth file runs code, which may add places of packages
  bool strange_ = false;    ///< a module of a package's name that is no folder
  PythonFacts facts_;
  PythonFiles files_;
};

}  // namespace

PythonFiles look_at_python(const std::string& program, const std::string& home) { return Look(program, home).take(); }

Result<Owners> owners_of(const PythonFiles& files) {
  Owners owners;
  for (const std::string& program : files.programs) INDUCTORFS_TRY(owners.add(program));
  for (const std::string& folder : files.folders) INDUCTORFS_TRY(owners.add_folder(folder));
  for (const std::string& folder : files.packages) INDUCTORFS_TRY(owners.add_entries(folder));
  return owners;
}

}  // namespace inductorfs::fingerprint
