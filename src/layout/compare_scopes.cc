// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inductorfs/layout/scope.h"

namespace inductorfs::layout {
namespace {

using Lines = ScopeText::Lines;

/// Each facet's lines. What stands before the first facet, a header of this version or of a later one, is a facet
/// without a name: it shows only where two texts are of different forms.
std::map<std::string_view, Lines> facets_of(std::string_view text) {
  ScopeText parsed = parse_scope_text(text);
  std::map<std::string_view, Lines> facets;
  facets.emplace(std::string_view(), std::move(parsed.header));
  for (const auto& [name, lines] : parsed.facets) {
    Lines& all = facets[name];
    all.insert(all.end(), lines.begin(), lines.end());
  }
  return facets;
}

/// The lines that the other does not have, one for one.
Lines without(const Lines& lines, Lines others) {
  Lines left;
  for (const std::string_view line : lines) {
    const auto found = std::find(others.begin(), others.end(), line);
    if (found == others.end()) {
      left.push_back(line);
    } else {
      others.erase(found);
    }
  }
  return left;
}

}  // namespace

std::vector<Difference> compare_scopes(std::string_view ours, std::string_view theirs) {
  const auto our_facets = facets_of(ours);
  const auto their_facets = facets_of(theirs);
  std::vector<Difference> differences;
  const auto add = [&differences](std::string_view facet, const Lines& our_lines, const Lines& their_lines) {
    if (our_lines == their_lines) return;
    Difference difference{std::string(facet), fingerprint::joined_lines(without(our_lines, their_lines)),
                          fingerprint::joined_lines(without(their_lines, our_lines))};
    // The same lines in another order are another scope too.
    if (difference.ours.empty() && difference.theirs.empty()) {
      difference = {std::string(facet), fingerprint::joined_lines(our_lines), fingerprint::joined_lines(their_lines)};
    }
    differences.push_back(std::move(difference));
  };
  for (const auto& [facet, lines] : our_facets) {
    const auto found = their_facets.find(facet);
    add(facet, lines, found == their_facets.end() ? Lines() : found->second);
  }
  for (const auto& [facet, lines] : their_facets) {
    if (our_facets.find(facet) == our_facets.end()) add(facet, Lines(), lines);
  }
  std::sort(differences.begin(), differences.end(),
            [](const Difference& one, const Difference& other) { return one.facet < other.facet; });
  return differences;
}

}  // namespace inductorfs::layout
