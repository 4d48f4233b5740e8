// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "inductorfs/layout/layout.h"

namespace inductorfs::layout {
namespace {

constexpr char kDocument[] = INDUCTORFS_SOURCE_ROOT "/docs/families.md";
constexpr std::string_view kTableHead = "| family | pattern | shared | facets | form | seal sign | contest |\n";

std::string read_document() {
  std::ifstream file(kDocument);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A table's cell: `|` would end it.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

std::string row_of(const Rule& rule) {
  std::string facets;
  for (const fingerprint::Facet facet : rule.facets) {
    facets += (facets.empty() ? "" : ", ") + std::string(fingerprint::to_string(facet));
  }
  if (facets.empty()) facets = "-";
  const std::string seal = rule.shared ? std::string(to_string(rule.seal)) : "-";
  const std::string form = rule.shared ? std::string(to_string(rule.form)) : "-";
  const std::string contest = rule.shared ? std::string(to_string(rule.contest)) : "-";
  return "| " + std::string(rule.name) + " | `" + cell(rule.pattern) + "` | " + (rule.shared ? "yes" : "no") + " | " +
         facets + " | " + form + " | " + seal + " | " + contest + " |\n";
}

/// What is too long for a cell.
std::string item_of(const Rule& rule) {
  return "- `" + std::string(rule.name) + "`: " + std::string(rule.why) + ". *Source*: " + std::string(rule.source) +
         "\n";
}

std::string table() {
  std::string text = std::string(kTableHead) + "|---|---|---|---|---|---|---|\n";
  for (const Rule& rule : all_rules()) text += row_of(rule);
  text += "\n";
  for (const Rule& rule : all_rules()) text += item_of(rule);
  return text;
}

/// The document with its table, and the items below it, replaced by the rules'.
std::string with_current_table(const std::string& document) {
  const size_t begin = document.find(kTableHead);
  if (begin == std::string::npos) return document;
  size_t blank = document.find("\n\n- ", begin);  // before the items
  if (blank != std::string::npos) blank = document.find("\n\n", blank + 1);
  const size_t end = blank == std::string::npos ? document.size() : blank + 1;
  return document.substr(0, begin) + table() + document.substr(end);
}

TEST(Rules, StandInTheDocumentAsTheyAre) {
  const std::string document = read_document();
  ASSERT_NE(document.find(kTableHead), std::string::npos) << kDocument;
  const std::string current = with_current_table(document);
  if (std::getenv("INDUCTORFS_REWRITE_GOLDEN") != nullptr) std::ofstream(kDocument) << current;

  for (const Rule& rule : all_rules()) {
    EXPECT_NE(document.find(row_of(rule)), std::string::npos) << rule.name;
    EXPECT_NE(document.find(item_of(rule)), std::string::npos) << rule.name;
  }
  EXPECT_EQ(document, current) << "INDUCTORFS_REWRITE_GOLDEN=1 writes the table anew";
}

TEST(Rules, SayWhoTheyAreAndWhy) {
  std::set<std::string_view> names;
  for (const Rule& rule : all_rules()) {
    EXPECT_EQ(&rule_of(rule.family), &rule);
    EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
    EXPECT_FALSE(rule.name.empty() || rule.why.empty() || rule.source.empty() || rule.pattern.empty()) << rule.name;
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(Family::kOther) + 1);
}

TEST(Rules, ShareNothingWithoutAFacet) {
  for (const Rule& rule : all_rules()) {
    const std::set<fingerprint::Facet> facets(rule.facets.begin(), rule.facets.end());
    EXPECT_EQ(facets.size(), rule.facets.size()) << rule.name;
    EXPECT_TRUE(!rule.shared || !facets.empty()) << rule.name;
  }
}

bool has_facet(Family family, fingerprint::Facet facet) {
  const auto facets = rule_of(family).facets;
  return std::find(facets.begin(), facets.end(), facet) != facets.end();
}

TEST(Rules, TieHostBoundBinariesToTheHost) {
  using fingerprint::Facet;
  for (const Family family : {Family::kCppBinary, Family::kVecIsaMarker, Family::kPrecompiledHeader}) {
    for (const Facet facet : {Facet::kTorch, Facet::kPython, Facet::kLibc, Facet::kCpu, Facet::kEnvironment}) {
      EXPECT_TRUE(has_facet(family, facet)) << rule_of(family).name;
    }
    // A host without a compiler runs what another's compiler made; it cannot read that one's precompiled header.
    EXPECT_EQ(has_facet(family, Facet::kCompiler), family == Family::kPrecompiledHeader) << rule_of(family).name;
  }
}

TEST(Rules, TieTuningsToTheDeviceAndNotToTheDriver) {
  using fingerprint::Facet;
  for (const Family family : {Family::kBestConfig, Family::kTritonAutotune}) {
    EXPECT_TRUE(has_facet(family, Facet::kGpu)) << rule_of(family).name;
    EXPECT_FALSE(has_facet(family, Facet::kCuda)) << rule_of(family).name;
  }
}

/// One A for sm_86 and sm_120 is a restart loop: what holds machine code, or was timed, is of one model of GPU.
TEST(Rules, TieWhatServingEnginesMakeToTheWholeDevice) {
  using fingerprint::Facet;
  for (const Family family : {Family::kVllmModel, Family::kVllmIndex, Family::kFlashInferAutotune,
                              Family::kFlashInferCubin, Family::kDeepGemm, Family::kTileLang, Family::kSglangJit}) {
    EXPECT_TRUE(has_facet(family, Facet::kGpu)) << rule_of(family).name;
    EXPECT_EQ(has_facet(family, Facet::kCuda), family != Family::kFlashInferCubin) << rule_of(family).name;
  }
  for (const Family family : {Family::kVllmModel, Family::kVllmIndex}) {
    for (const Facet facet : {Facet::kTorch, Facet::kTriton, Facet::kPython, Facet::kCpuIsa, Facet::kEngine}) {
      EXPECT_TRUE(has_facet(family, facet)) << rule_of(family).name;
    }
  }
}

TEST(Rules, HaveAParcelOnlyWhereAProgramNeedsAllOfIt) {
  for (const Rule& rule : all_rules()) {
    const bool is_index = rule.family == Family::kVllmIndex;
    const bool is_directory =
        rule.family == Family::kDeepGemm || rule.family == Family::kTileLang || rule.family == Family::kSglangJit;
    EXPECT_EQ(rule.form, is_index ? Form::kIndex : is_directory ? Form::kDirectory : Form::kFile) << rule.name;
    EXPECT_TRUE(rule.form == Form::kFile || needs_whole(rule.family)) << rule.name;
  }
}

/// What was made under other variables is another thing in every family with generated code that no name tells apart.
TEST(Rules, TieGeneratedCodeToTheEnvironment) {
  for (const Rule& rule : all_rules()) {
    const bool named_by_its_text = rule.family == Family::kGeneratedCode || rule.family == Family::kCppSource;
    const bool made_by_triton_itself = rule.family == Family::kTritonLauncher;
    const bool is_downloaded = rule.family == Family::kFlashInferCubin;
    const bool is_no_code = rule.family == Family::kVllmModelInfo;
    if (!rule.shared || named_by_its_text || made_by_triton_itself || is_downloaded || is_no_code) continue;
    EXPECT_TRUE(has_facet(rule.family, fingerprint::Facet::kEnvironment)) << rule.name;
  }
}

TEST(Rules, TrustQuietOnlyWhereAPartialFileIsSeen) {
  for (const Rule& rule : all_rules()) {
    if (rule.seal != SealSign::kQuiet) continue;
    EXPECT_TRUE(rule.family == Family::kVecIsaMarker || needs_whole(rule.family)) << rule.name;
  }
}

}  // namespace
}  // namespace inductorfs::layout
