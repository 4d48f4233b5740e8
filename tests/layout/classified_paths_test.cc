// SPDX-License-Identifier: Apache-2.0
// What each of a list of paths is, as one document: which family takes a path depends on the order of all of them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "inductorfs/layout/layout.h"

namespace inductorfs::layout {
namespace {

constexpr char kDocument[] = INDUCTORFS_SOURCE_ROOT "/tests/layout/classified_paths.txt";

std::string_view use_of(const std::string& path) {
  switch (common_use_of(path)) {
    case CommonUse::kNone:
      return "";
    case CommonUse::kRead:
      return " read";
    case CommonUse::kWrite:
      return " write";
  }
  return " ?";
}

/// The path, then what is said of it: its family, its root, its name below the root where that is another text, its key
/// directory, the key that a lookup asks for, and what it is to other users.
std::string line_of(const std::string& path) {
  const Classification classified = classify(path);
  std::string line = path + "\t" + std::string(rule_of(classified.family).name);
  if (is_in_a_root(path)) line += " in:" + classified.root;
  const std::string below = classified.root.empty() ? path : path.substr(classified.root.size() + 1);
  if (classified.canonical != below) line += " as:" + classified.canonical;
  if (!classified.key_directory.empty()) line += " key:" + classified.key_directory;
  if (const auto asked = key_asked_by(path))
    line += " asks:" + std::string(rule_of(asked->family).name) + ":" + asked->key;
  line += use_of(path);
  return line + (is_common_directory(path) ? " common" : "");
}

TEST(ClassifiedPaths, AreAsTheDocumentSays) {
  std::ifstream file(kDocument);
  std::vector<std::string> document;
  for (std::string line; std::getline(file, line);) document.push_back(line);
  ASSERT_GT(document.size(), 100U) << kDocument;
  std::string current;
  for (const std::string& line : document) {
    const std::string now = line_of(line.substr(0, line.find('\t')));
    EXPECT_EQ(now, line) << "INDUCTORFS_REWRITE_GOLDEN=1 writes the answers anew";
    current += now + "\n";
  }
  if (std::getenv("INDUCTORFS_REWRITE_GOLDEN") != nullptr) std::ofstream(kDocument) << current;
}

}  // namespace
}  // namespace inductorfs::layout
