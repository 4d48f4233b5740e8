// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/facts/named_files.h"

#include <optional>
#include <string_view>
#include <utility>

#include "fingerprint/facts/facts.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/fingerprint/variables.h"

namespace inductorfs::fingerprint {
namespace {

/// ptxas of CUDA 13.2 has 52 MB. A sparse file of another user may claim to have many TB.
constexpr uint64_t kNamedFileLimit = uint64_t{1} << 30;

/// Digests files of one root. Needs external synchronisation.
class FileReader {
 public:
  FileReader(const InRoot& root, const PackagePlaces& packages, KeyMemory& memory)
      : root_(root), packages_(packages), memory_(memory) {}

  /// Returns the value of a line of named_files_fact().
  [[nodiscard]] std::string meaning(const NamedFile& file, const FileKind& kind) {
    if (!file.path.starts_with('/')) {
      return not_known_value(quoted(file.path) + " is not an absolute path; give an absolute path");
    }
    const auto named = digest_of(file.path, kind);
    if (!named) return not_known_value(named.error().what());
    const auto usual = usual_of(kind);
    if (!usual) return not_known_value("the one that is used without the variable: " + usual.error().what());
    return *usual == *named ? std::string(kUsualFile) : content_value(*named);
  }

 private:
  using Content = std::optional<codec::Digest>;

  static std::string quoted(const std::string& text) { return "\"" + text + "\""; }

  [[nodiscard]] Result<codec::Digest> digest_of(const std::string& path, const FileKind& kind) {
    auto file = root_.open_regular(path, kNamedFileLimit);
    if (!file && file.error().code() == ErrorCode::kNotFound)
      return fail(ErrorCode::kNotFound, path + " does not exist");
    if (!file) return fail(file.error());
    std::string begin(kind.magic.size(), '\0');
    const auto got = pread_full(file->get(), begin.data(), begin.size(), 0);
    if (!got) return fail(Error(got.error()).with_context(path));
    begin.resize(*got);
    if (begin != kind.magic) {
      return fail(ErrorCode::kInvalid,
                  path + " is no " + std::string(kind.what) + ", so its content does not say what it does");
    }
    return remembered_digest(file->get(), path, memory_);
  }

  /// Returns the content that is used when the variable is unset; empty when the packages have no such file.
  [[nodiscard]] Result<Content> usual_of(const FileKind& kind) {
    for (const auto& [package, name] :
         {std::pair(packages_.torch, kind.in_torch), std::pair(packages_.triton, kind.in_triton)}) {
      if (package.empty() || name.empty()) continue;
      auto digest = digest_of(package + "/" + std::string(name), kind);
      if (digest) return Content(*digest);
      if (digest.error().code() != ErrorCode::kNotFound) return fail(digest.error());
    }
    return Content();
  }

  const InRoot& root_;
  const PackagePlaces& packages_;
  KeyMemory& memory_;
};

}  // namespace

std::vector<NamedFile> named_files(const std::map<std::string, std::string>& environment, const std::string& torch) {
  std::vector<NamedFile> files;
  for (const auto& [name, value] : environment_values(environment)) {
    const Variable* const variable = find_variable(name);
    if (variable == nullptr || variable->file == nullptr) continue;
    const std::string_view in_torch = variable->file->in_torch;
    if (!torch.empty() && !in_torch.empty() && value == torch + "/" + std::string(in_torch)) continue;
    files.push_back({name, value, {}});
  }
  return files;
}

Fact named_files_fact(const std::vector<NamedFile>& files, const InRoot& root, const PackagePlaces& packages,
                      KeyMemory& memory) {
  FileReader reader(root, packages, memory);
  std::string text;
  for (const NamedFile& file : files) {
    const Variable* const variable = find_variable(file.variable);
    if (variable == nullptr || variable->file == nullptr) continue;
    add_line(text, file.variable, reader.meaning(file, *variable->file));
  }
  return known_fact(text.empty() ? std::string(kNone) : text, files.empty() ? std::string() : files.front().path);
}

std::string named_value(const Fact& fact, const std::string& variable) {
  if (!fact.known) return not_known_value(fact.problem);
  const auto value = value_of(fact.value, variable);
  if (!value) return not_known_value("it was not read");
  return *value == kUsualFile ? std::string() : *value;
}

}  // namespace inductorfs::fingerprint
