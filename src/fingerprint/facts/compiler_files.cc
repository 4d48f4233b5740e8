// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/facts/compiler_files.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "fingerprint/facts/facts.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/text.h"

namespace inductorfs::fingerprint {
namespace {

/// cc1plus has 35 MB, with debug information 300; libLLVM 110 to 200. A sparse file may claim to have many TB.
constexpr uint64_t kPartLimit = uint64_t{1} << 30;
/// All parts of clang 14 with its libraries have 300 MB.
constexpr uint64_t kPartBytesLimit = uint64_t{2} << 30;
/// What a compiler without one of its own takes from PATH.
constexpr const char* kInPath[] = {"as", "ld"};
constexpr uint64_t kDriverLimit = uint64_t{512} << 20;
/// What is kept of a program's texts: libclang-cpp has 6 MB of them.
constexpr size_t kTextsLimit = size_t{16} << 20;
constexpr size_t kPiece = size_t{1} << 20;
/// clang 14 has 250 files in its resource directory, 10 MB.
constexpr size_t kPartsLimit = 10'000;
constexpr int kDepthLimit = 8;
constexpr std::string_view kElf =
    "\x7f"
    "ELF";
constexpr const char* kRemedy =
    "; name gcc or clang itself with CXX, or declare the environment of such jobs (--fingerprint)";

using Part = CompilerFiles::Part;
using Names = std::vector<std::string>;

bool contains(std::string_view bytes, std::string_view text) { return bytes.find(text) != std::string_view::npos; }

/// Says whether the bytes hold a C string that is the dotted number D, with D == `version` or D beginning with
/// `version` and a dot: a directory has the whole version of a compiler, or its major version alone.
bool holds_version(std::string_view bytes, const std::string& version) {
  const std::string start = std::string(1, '\0') + version;
  for (size_t at = bytes.find(start); at != std::string_view::npos; at = bytes.find(start, at + 1)) {
    const size_t end = bytes.find('\0', at + 1);
    const std::string_view rest =
        end == std::string_view::npos ? "x" : bytes.substr(at + start.size(), end - at - start.size());
    if (rest.empty() || (rest.front() == '.' && rest.find_first_not_of("0123456789.") == std::string_view::npos)) {
      return true;
    }
  }
  return false;
}

/// The value of --NAME= among the options that gcc was configured with, which its driver holds as a text.
std::string configured(std::string_view driver, std::string_view name) {
  const size_t at = driver.find(name);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = driver.substr(at + name.size());
  return std::string(rest.substr(0, rest.find_first_of(std::string_view(" \0'", 3))));
}

/// Collects the texts of a program, each with the byte before it, so that a C string still begins behind a NUL. Needs
/// external synchronisation.
class Texts {
 public:
  /// Returns false when there are too many.
  bool add(std::string_view piece) {
    for (const char byte : piece) {
      if (byte == '\0' && run_.size() == 1 && run_.front() == '\0') continue;  // a hole
      if (byte >= ' ' && byte <= '~') {
        run_ += byte;
      } else {
        const char between = byte == '\0' ? '\0' : '\n';
        if (run_.size() > kShortest || holds_digit()) all_ += run_ + between;
        run_.assign(1, between);
      }
      if (run_.size() + all_.size() > kTextsLimit) return false;
    }
    return true;
  }
  [[nodiscard]] std::string take() { return std::move(all_) + run_; }

 private:
  static constexpr size_t kShortest = 4;
  /// The number of a version may have one digit.
  [[nodiscard]] bool holds_digit() const { return run_.size() > 1 && run_[1] >= '0' && run_[1] <= '9'; }
  std::string all_;
  std::string run_{'\n'};
};

/// Returns the texts of a file of another user behind its first four bytes, and never has the whole file in memory.
Result<std::string> texts_of(const InRoot& root, const std::string& path, uint64_t limit) {
  INDUCTORFS_TRY_ASSIGN(const auto file, root.open_regular(path, limit));
  std::string piece(kPiece, '\0');
  Texts texts;
  std::string start;
  for (uint64_t at = 0;; at += kPiece) {
    const auto got = pread_full(file.get(), piece.data(), piece.size(), at);
    if (!got) return fail(Error(got.error()).with_context(path));
    const std::string_view bytes = std::string_view(piece).substr(0, *got);
    if (at == 0) start = bytes.substr(0, kElf.size());
    if (!texts.add(bytes)) return fail(ErrorCode::kTooLarge, path + " has more text than a compiler can have");
    if (*got < piece.size()) return start + texts.take();
  }
}

/// Finds the parts of one compiler. Needs external synchronisation.
class Finder {
 public:
  Finder(const InRoot& root, std::string driver, const CompilerCall& call)
      : root_(root), driver_(std::move(driver)), call_(call), prefix_(parent_of(parent_of(driver_))) {}

  Result<CompilerFiles> find() {
    INDUCTORFS_TRY_ASSIGN(const std::string bytes, texts_of(root_, driver_, kDriverLimit));
    if (!bytes.starts_with(kElf)) return unclear(driver_ + " is no program but a script or the like");
    INDUCTORFS_TRY(add("driver", driver_));
    // Strings of gcc.c and of clang's InitPreprocessor.cpp; a clang of many libraries has the latter in one of them.
    if (contains(bytes, "gcc version %s") && contains(bytes, "cc1plus")) {
      INDUCTORFS_TRY(find_gcc(bytes));
    } else if (contains(bytes, "__clang_version__") || contains(bytes, "libclang-cpp.so")) {
      INDUCTORFS_TRY(find_clang(bytes));
    } else {
      return unclear(driver_ + " is neither gcc nor clang");
    }
    return std::move(files_);
  }

 private:
  [[nodiscard]] static tl::unexpected<Error> unclear(const std::string& what) {
    return fail(ErrorCode::kInvalid, what + kRemedy);
  }

  Result<void> add(const std::string& name, const std::string& path) {
    if (files_.parts.size() >= kPartsLimit) return unclear(driver_ + " has more parts than a compiler can have");
    INDUCTORFS_TRY_ASSIGN(auto real, root_.real_path(path));
    files_.parts.push_back({name, std::move(real)});
    return {};
  }

  /// Adds the first of these files that is there.
  Result<void> add_first(const std::string& name, const Names& paths, const std::string& in_path) {
    for (const std::string& path : paths) {
      if (root_.is_program(path)) return add(name, path);
    }
    const std::string found = program_in(root_, call_.search, in_path);
    if (!found.empty()) return add(name, found);
    return unclear(driver_ + " has no " + name + ", neither beside it nor in PATH");
  }

  /// A directory <target>/<version> of gcc. Immutable value.
  struct Home {
    std::string folder;
    std::string target;
    std::string version;
  };

  /// The directories of gcc's parts below a prefix (gcc.c, process_command: standard_exec_prefix, relative to where the
  /// driver lies) that have this file.
  [[nodiscard]] Result<std::vector<Home>> homes_with(const std::string& prefix, const std::string& file) const {
    std::vector<Home> homes;
    for (const char* place : {"/libexec/gcc", "/lib/gcc", "/lib64/gcc"}) {
      INDUCTORFS_TRY_ASSIGN(const auto targets, root_.names_in(prefix + place));
      for (const std::string& target : targets) {
        const std::string folder = prefix + place + "/" + target;
        INDUCTORFS_TRY_ASSIGN(const auto versions, root_.names_in(folder));
        for (const std::string& version : versions) {
          const auto same = [&](const Home& one) { return one.target == target && one.version == version; };
          if (std::any_of(homes.begin(), homes.end(), same)) continue;  // in libexec already
          if (root_.status((folder + "/").append(version).append("/").append(file))) {
            homes.push_back({folder + "/" + version, target, version});
          }
        }
      }
    }
    return homes;
  }

  Result<void> find_gcc(std::string_view driver) {
    INDUCTORFS_TRY(check_followed(call_, "COMPILER_PATH"));
    INDUCTORFS_TRY(check_followed(call_, "GCC_EXEC_PREFIX"));
    INDUCTORFS_TRY_ASSIGN(auto homes, homes_with(prefix_, "cc1plus"));
    std::erase_if(homes, [&](const Home& home) {
      return !contains(driver, home.target) || !holds_version(driver, home.version);
    });
    if (homes.size() != 1) {
      return unclear(driver_ + " has " + (homes.empty() ? "no" : "more than one") + " cc1plus below " + prefix_ +
                     "/lib/gcc or libexec/gcc");
    }
    const Home& home = homes.front();
    files_.kind = "gcc";
    files_.version = home.version;
    files_.target = home.target;
    INDUCTORFS_TRY(add("cc1plus", home.folder + "/cc1plus"));
    INDUCTORFS_TRY(add("collect2", home.folder + "/collect2"));
    // The driver looks for `as` where its own parts are, then below <prefix>/<target>/bin, then in PATH (gcc.c,
    // find_a_file). collect2 does the same for the linker, under three names (collect2.c).
    const auto places_of = [&](const Names& names, std::string_view option) {
      Names paths = {configured(driver, option)};
      if (!paths.front().starts_with('/')) paths.clear();
      for (const std::string& name : names) {
        for (const char* place : {"/libexec/gcc/", "/lib/gcc/", "/lib64/gcc/"}) {
          const std::string folder = prefix_ + place + home.target + "/";
          paths.push_back(folder + home.version + "/" + name);
          paths.push_back(folder + name);
        }
        const std::string tools = prefix_ + "/" + home.target + "/bin/";
        paths.push_back(tools + home.target + "/" + home.version + "/" + name);
        paths.push_back(tools + name);
      }
      return paths;
    };
    INDUCTORFS_TRY(add_first("as", places_of({"as"}, "--with-as="), "as"));
    INDUCTORFS_TRY(add_first("ld", places_of({"real-ld", "collect-ld", "ld"}, "--with-ld="), "ld"));
    return find_libstdcxx(home);
  }

  /// The library of which `-print-file-name=libstdc++.so.6` tells the name.
  Result<void> find_libstdcxx(const Home& home) {
    const std::string gcc = "/gcc/" + home.target + "/" + home.version;
    const Names folders = {prefix_ + "/lib" + gcc,
                           prefix_ + "/lib64" + gcc,
                           prefix_ + "/" + home.target + "/lib64",
                           prefix_ + "/" + home.target + "/lib",
                           prefix_ + "/lib/" + home.target,
                           prefix_ + "/lib64",
                           "/lib/" + home.target,
                           "/lib64",
                           "/usr/lib/" + home.target,
                           "/usr/lib64",
                           prefix_ + "/lib",
                           "/lib",
                           "/usr/lib"};
    for (const std::string& folder : folders) {
      const auto real = root_.real_path(folder + "/libstdc++.so.6");
      if (!real) continue;
      files_.libstdcxx = base_name_of(*real);
      return {};
    }
    return unclear(driver_ + " finds no libstdc++.so.6 where gcc looks for it");
  }

  Result<void> find_clang(std::string_view driver) {
    INDUCTORFS_TRY(check_followed(call_, "COMPILER_PATH"));
    files_.kind = "clang";
    std::string cpp;  // the library that has clang's code, where the driver does not
    INDUCTORFS_TRY(add_clang_libraries(driver, cpp));
    const std::string folder = prefix_ + "/lib/clang";
    INDUCTORFS_TRY_ASSIGN(auto versions, root_.names_in(folder));
    std::erase_if(versions,
                  [&](const std::string& one) { return !root_.is_directory(folder + "/" + one + "/include"); });
    if (versions.size() > 1) {
      std::erase_if(versions, [&](const std::string& one) { return !holds_version(cpp.empty() ? driver : cpp, one); });
    }
    if (versions.size() != 1) {
      return unclear(driver_ + " has " + (versions.empty() ? "no" : "more than one") +
                     " directory of its version below " + folder);
    }
    files_.version = versions.front();
    INDUCTORFS_TRY(add_tree("resource", folder + "/" + files_.version, 0));
    INDUCTORFS_TRY_ASSIGN(const auto beside, root_.names_in(parent_of(driver_)));
    for (const std::string& name : beside) {
      if (name.ends_with(".cfg")) INDUCTORFS_TRY(add(name, parent_of(driver_) + "/" + name));  // further options
    }
    INDUCTORFS_TRY(add_first("ld", {parent_of(driver_) + "/ld"}, "ld"));
    return find_gcc_of_clang();
  }

  /// libclang-cpp and libLLVM, by the names that the driver and they themselves need.
  Result<void> add_clang_libraries(std::string_view driver, std::string& cpp) {
    INDUCTORFS_TRY_ASSIGN(auto file, add_library(driver, "libclang-cpp.so"));
    if (!file.empty()) {
      INDUCTORFS_TRY_ASSIGN(cpp, texts_of(root_, file, kPartLimit));
    }
    INDUCTORFS_TRY(add_library(driver, "libLLVM"));
    return {};
  }

  /// Adds the library whose name begins so, if the bytes hold such a name. Returns its file.
  Result<std::string> add_library(std::string_view bytes, std::string_view begin) {
    for (size_t at = bytes.find(begin); at != std::string_view::npos; at = bytes.find(begin, at + 1)) {
      if (at == 0 || bytes[at - 1] != '\0') continue;
      const std::string name(bytes.substr(at, bytes.substr(at).find('\0')));
      if (!contains(name, ".so")) continue;
      for (const std::string& folder :
           {prefix_ + "/lib", prefix_ + "/lib64", std::string("/usr/lib/x86_64-linux-gnu"),
            std::string("/usr/lib/aarch64-linux-gnu"), std::string("/usr/lib64"), std::string("/usr/lib")}) {
        std::string path = folder + "/" + name;
        if (!root_.status(path)) continue;
        INDUCTORFS_TRY(add(name, path));
        return path;
      }
      return unclear(driver_ + " needs " + name + ", which is not found beside it");
    }
    return std::string();
  }

  Result<void> add_tree(const std::string& name, const std::string& folder, int depth) {
    if (depth > kDepthLimit) return unclear(folder + " is deeper than a compiler's directory can be");
    INDUCTORFS_TRY_ASSIGN(const auto entries, root_.names_in(folder));
    for (const std::string& entry : entries) {
      const std::string path = folder + "/" + entry;
      const auto status = root_.status(path);
      if (!status) continue;  // a link that leads nowhere
      const std::string called = name + "/" + entry;
      if (S_ISDIR(status->st_mode)) {
        INDUCTORFS_TRY(add_tree(called, path, depth + 1));
      } else if (S_ISREG(status->st_mode)) {
        INDUCTORFS_TRY(add(called, path));
      }
    }
    return {};
  }

  /// clang takes start files, libgcc and libstdc++ with its headers from the newest gcc of the system.
  Result<void> find_gcc_of_clang() {
    std::vector<Home> homes;
    for (const std::string& prefix : {prefix_, std::string("/usr")}) {
      INDUCTORFS_TRY_ASSIGN(homes, homes_with(prefix, "crtbegin.o"));
      if (!homes.empty()) break;
    }
    if (homes.empty()) return unclear(driver_ + " finds no libstdc++ of a gcc below /usr/lib/gcc");
    for (const Home& home : homes) {
      const bool whole = root_.status(home.folder + "/libgcc.a").has_value();
      const std::string file = whole ? "/libgcc.a" : "/crtbegin.o";
      INDUCTORFS_TRY(add("gcc/" + home.target + "/" + home.version + file, home.folder + file));
    }
    return find_libstdcxx(homes.back());
  }

  const InRoot& root_;
  const std::string driver_;
  const CompilerCall& call_;
  const std::string prefix_;
  CompilerFiles files_;
};

Result<std::string> digest_of_parts(const InRoot& root, const std::string& driver, const CompilerFiles& files,
                                    KeyMemory& memory) {
  ManifestMaker maker;
  uint64_t bytes = 0;
  for (const Part& part : files.parts) {
    const auto status = root.status(part.path);
    if (!status) return fail(ErrorCode::kNotFound, part.path + " cannot be read");
    bytes += static_cast<uint64_t>(status->st_size);
    if (bytes > kPartBytesLimit) {
      return fail(ErrorCode::kTooLarge, driver + " has more than " + std::to_string(kPartBytesLimit) +
                                            " bytes of parts, more than a compiler can have");
    }
    maker.add(part.name + " " + part.path, *status, memory);
  }
  const Manifest manifest = maker.finish();
  const std::string name = "compiler " + driver;
  if (auto known = memory.find(name, manifest.digest)) return *known;
  codec::Hasher hasher;
  for (const Part& part : files.parts) {
    INDUCTORFS_TRY_ASSIGN(const auto file, root.open_regular(part.path, kPartLimit));
    INDUCTORFS_TRY_ASSIGN(const auto digest, remembered_digest(file.get(), part.path, memory));
    hasher.update(part.name);
    hasher.update(std::string_view("\0", 1));
    hasher.update(digest.raw());
  }
  std::string digest = hasher.finish().to_hex();
  if (!manifest.too_fresh) memory.keep(name, manifest.digest, digest);
  return digest;
}

bool is_same_file(const std::optional<struct stat>& one, const std::optional<struct stat>& other) {
  return one && other && one->st_dev == other->st_dev && one->st_ino == other->st_ino;
}

/// One compiler as one process sees it. Immutable value.
struct Sighting {
  const InRoot& root;
  const CompilerCall& call;
  CompilerPlace place;
};

/// A process of our own root has the host's parts, but for those that gcc and clang look for in PATH. A container may
/// have no more of the host than the driver.
bool is_hosts(const Sighting& job, const CompilerRequest& request) {
  if (!request.host || !job.call.unfollowed.empty()) return false;
  const InRoot root = InRoot::host();
  const auto place = find_compiler(root, *request.host);
  if (!place || place->options != job.place.options) return false;
  if (!is_same_file(job.root.status(job.place.driver), root.status(place->driver))) return false;
  if (request.root.is_host()) {
    return std::ranges::all_of(kInPath, [&](const char* name) {
      const std::string theirs = program_in(root, job.call.search, name);
      const std::string ours = program_in(root, request.host->search, name);
      return theirs == ours || is_same_file(root.status(theirs), root.status(ours));
    });
  }
  const auto theirs = find_compiler_files(job.root, job.place.driver, job.call);
  const auto ours = find_compiler_files(root, place->driver, *request.host);
  return theirs && ours &&
         std::equal(theirs->parts.begin(), theirs->parts.end(), ours->parts.begin(), ours->parts.end(),
                    [&](const Part& one, const Part& other) {
                      return is_same_file(job.root.status(one.path), root.status(other.path));
                    });
}

Result<std::string> text_of(const Sighting& job, const Fact& cpu, KeyMemory& memory) {
  const std::string& driver = job.place.driver;
  INDUCTORFS_TRY_ASSIGN(const auto files, find_compiler_files(job.root, driver, job.call));
  INDUCTORFS_TRY_ASSIGN(auto digest, digest_of_parts(job.root, driver, files, memory));
  Lines lines = {
      {"files", std::move(digest)}, {"kind", files.kind}, {"libstdcxx", files.libstdcxx}, {"version", files.version}};
  if (!files.target.empty()) lines.emplace_back("target", files.target);
  std::string options;
  for (const std::string& option : job.place.options) options += (options.empty() ? "" : " ") + option;
  if (!options.empty()) lines.emplace_back("options", options);
  // -march=native turns these on too, and a precompiled header is refused by a compiler with other options.
  if (const auto more = value_of(cpu.details, kOnlyAskedForKey)) lines.emplace_back("native_more", *more);
  return canonical(lines);
}

}  // namespace

Result<CompilerFiles> find_compiler_files(const InRoot& root, const std::string& driver, const CompilerCall& call) {
  return Finder(root, driver, call).find();
}

Fact compiler_fact(const CompilerRequest& request, const Fact& cpu, KeyMemory& memory) {
  const std::string& command = request.call.command;
  const auto unknown = [&command](const Error& why) {
    return unknown_fact("the C++ compiler: " + why.what(), command);
  };
  auto place = find_compiler(request.root, request.call);
  if (!place) return unknown(place.error());
  const Sighting job{request.root, request.call, std::move(*place)};
  if (is_hosts(job, request)) return known_fact(std::string(kHostCompiler), job.place.driver);
  auto text = text_of(job, cpu, memory);
  return text ? known_fact(std::move(*text), job.place.driver) : unknown(text.error());
}

}  // namespace inductorfs::fingerprint
